"""perfbisect.building.kept_tree: updated in place, a tree is what a fresh checkout would be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.helpers.repositories import Workshop
from tests.helpers.waiting import until

from perfbisect.building.checkout import remove
from perfbisect.building.kept_tree import KeptTree
from perfbisect.errors import BadInputError
from perfbisect.git.checkout import checkout_tree
from perfbisect.git.objects import Entry, Objects
from perfbisect.git.process import Git
from perfbisect.history import open_mirror

#: (kind, content): a file, an executable, a link, or a submodule.
Content = tuple[str, str]

MODES = {"file": b"100644", "program": b"100755", "link": b"120000", "module": b"160000"}
NAMES = ("a", "A", "a.t", "é b", "bazel-out", ".gitattributes")
CONTENTS = ("1\n", "2\r\n", "*.t text eol=crlf\n", "../a")

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
contents = st.tuples(st.sampled_from(tuple(MODES)), st.sampled_from(CONTENTS))
trees = st.dictionaries(paths, contents, max_size=8)
#: What a build may do to its tree.
deeds = st.lists(
    st.tuples(
        paths, st.sampled_from(["write", "remove", "folder", "link", "close", "run", "repository"])
    ),
    max_size=4,
)


def store(objects: Objects, files: Mapping[str, Content]) -> str:
    """Store a tree and return its name; of a path and one below it, the longer one stays."""
    below: dict[str, dict[str, Content]] = {}
    entries: dict[bytes, Entry] = {}
    for path, (kind, text) in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = (kind, text)
        elif kind == "module":
            entries[name.encode()] = Entry(MODES[kind], "1" * 40)
        else:
            entries[name.encode()] = Entry(MODES[kind], objects.write("blob", text.encode(), 40))
    for name, inner in below.items():
        entries[name.encode()] = Entry(b"40000", store(objects, inner))
    return objects.write_tree(entries, 40)


def disturb(root: Path, path: str, deed: str) -> None:
    """Do to a tree what a build might."""
    place = root / path
    if any(parent.is_symlink() or parent.is_file() for parent in place.parents):
        return
    if deed == "close" and place.is_dir() and not place.is_symlink():
        place.chmod(0o500)
    elif deed == "run" and place.is_file() and not place.is_symlink():
        place.chmod(0o755)
    elif deed != "close" and deed != "run":
        remove(place)
        if deed == "write":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("of the build\n")
        elif deed in ("folder", "repository"):
            (place / "deep").mkdir(parents=True)
            (place / (".git" if deed == "repository" else "file")).write_text("of the build\n")
        elif deed == "link":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to("..")


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return kind, mode and content of all below a directory but its ``.git`` and Bazel's links."""
    found = {}
    for directory, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if path.is_symlink():
                content = os.readlink(path).encode()
            else:
                content = b"" if path.is_dir() else path.read_bytes()
            top = directory == str(root)
            if not (top and (name == ".git" or (name == "bazel-out" and content == b".."))):
                found[str(path.relative_to(root))] = (mode, content)
        if directory == str(root) and ".git" in folders:
            folders.remove(".git")
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path / "source")
    made.commit("one", {"a": "1\n", "deep/same": "x\n", "deep/er/file": "x\n", "same": "1\n"})
    made.commit("two", {"a": "2\n", "new/file": "1\n"})
    return made


def mirror_of(shop: Workshop) -> Path:
    return open_mirror(shop.path, shop.path.with_name("mirrors")).path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror with one empty commit, into which trees are stored."""
    shop = Workshop(tmp_path_factory.mktemp("bare") / "source")
    shop.commit("empty")
    return mirror_of(shop)


FILE, MODULE, LINK = ("file", "1\n"), ("module", ""), ("link", "../a")


@example([({"a": MODULE}, [("a", "remove")]), ({"a": MODULE}, [("a/A", "write")]), ({}, [])])
@example([({"a": MODULE}, [("a", "write")]), ({"a": MODULE, "A": FILE}, [])])
@example([({}, [("bazel-out", "link")]), ({"bazel-out/a": FILE}, [])])
@example([({"bazel-out": LINK}, []), ({"bazel-out": LINK, "a": FILE}, []), ({}, [])])
@example([({"a/A/a": FILE, "a/b": FILE}, [("a/A", "link")]), ({"a/A/a": FILE}, [])])
@example([({"a/A/a": FILE}, [("a/A/a", "folder")]), ({"a/A": FILE}, []), ({"a": LINK}, [])])
@example([({"a/A/a": FILE}, [("a/A/a", "remove"), ("a/A", "close")]), ({"a/A/A": FILE}, [])])
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(trees, deeds), min_size=2, max_size=3))
def test_updated_in_place_it_is_what_a_fresh_checkout_is(
    bare: Path, steps: list[tuple[dict[str, Content], list[tuple[str, str]]]]
) -> None:
    """Whatever two trees are, and whatever a build did to the first, the second is there whole."""
    commit = Git(bare).text("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory() as name, Objects(bare) as objects:
        root = Path(name)
        kept = KeptTree(root / "src")
        for files, done in steps:
            tree = store(objects, files)
            kept.update(bare, tree, commit)
            checkout_tree(bare, tree, commit, root / "fresh")
            assert snapshot(root / "src") == snapshot(root / "fresh")
            remove(root / "fresh")
            for path, deed in done:
                disturb(root / "src", path, deed)


def test_files_that_stay_are_not_touched(shop: Workshop, tmp_path: Path) -> None:
    """Inode and times of equal files stay; changed and damaged ones are new; git sees all clean."""
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree("HEAD~1"), shop.git("rev-parse", "HEAD~1"))
    (tmp_path / "src/deep/er/file").write_text("edited\n")
    (tmp_path / "src/stray").write_text("of a build\n")
    names = ("a", "same", "deep/same", "deep/er/file")
    before = {name: os.lstat(tmp_path / "src" / name) for name in names}
    updated = kept.update(mirror, shop.tree(), shop.head)
    after = {name: os.lstat(tmp_path / "src" / name) for name in names}
    same = [name for name in names if after[name].st_mtime_ns == before[name].st_mtime_ns]
    assert same == ["same", "deep/same"]
    assert all(after[name].st_ino == before[name].st_ino for name in same)
    assert (updated.in_place, updated.written, updated.removed, updated.files) == (True, 3, 1, 5)
    assert str(updated) == "source tree: 3 files written, 1 removed, 2 as they were"
    told = subprocess.run(
        ["git", "status", "--porcelain", "--ignored"],
        cwd=tmp_path / "src",
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == ""
    # The index knows the files: a script that asks without refreshing it gets the same answer.
    diff = ["git", "diff-index", "--quiet", "HEAD"]
    assert subprocess.run(diff, cwd=tmp_path / "src", check=False).returncode == 0


def test_a_touched_file_is_written_again_though_size_and_time_are_the_same(
    shop: Workshop, tmp_path: Path
) -> None:
    """A build that edits a file and sets its time back deceives nobody."""
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree(), shop.head)
    file = tmp_path / "src/same"
    before = file.stat()
    file.write_text("9\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kept.update(mirror, shop.tree(), shop.head).written == 1
    assert file.read_text() == "1\n"


def test_attributes_that_change_are_followed_by_files_that_do_not(
    shop: Workshop, tmp_path: Path
) -> None:
    """Where .gitattributes asks for other line ends, files with the same content get them too."""
    shop.commit("attributes", {".gitattributes": "same text eol=crlf\n"})
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree("HEAD~1"), shop.git("rev-parse", "HEAD~1"))
    assert not kept.update(mirror, shop.tree(), shop.head).in_place
    assert (tmp_path / "src/same").read_bytes() == b"1\r\n"
    assert kept.update(mirror, shop.tree(), shop.head).in_place


def test_a_new_owner_is_no_change_once_it_is_settled(shop: Workshop, tmp_path: Path) -> None:
    """Files given to the user of a container stay as they are; those touched later do not."""
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree(), shop.head)
    # As a change of owner, this leaves content and its time alone.
    for path in (tmp_path / "src").rglob("*"):
        os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
    kept.settle()
    assert kept.update(mirror, shop.tree(), shop.head).written == 0
    (tmp_path / "src/a").write_text("edited\n")
    assert kept.update(mirror, shop.tree(), shop.head).written == 1


def test_what_git_refuses_leaves_the_tree_alone(shop: Workshop, tmp_path: Path) -> None:
    """A tree with .git inside is refused before anything is touched; the next one is in place."""
    blob = shop.git("hash-object", "-w", "--stdin", stdin="x\n")
    inner = shop.git("mktree", stdin=f"100644 blob {blob}\tconfig\n")
    evil = shop.git("mktree", stdin=f"040000 tree {inner}\t.git\n")
    shop.git("update-ref", "refs/heads/evil", shop.git("commit-tree", evil, "-m", "evil"))
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree(), shop.head)
    before = snapshot(tmp_path / "src")
    with pytest.raises(BadInputError, match="invalid path"):
        kept.update(mirror, evil, shop.head)
    assert snapshot(tmp_path / "src") == before
    assert kept.update(mirror, shop.tree(), shop.head).in_place


def test_configuration_that_a_build_left_in_git_is_never_read(
    shop: Workshop, tmp_path: Path
) -> None:
    """Filters and hooks which a build wrote into the tree's .git are gone and never run."""
    shop.commit("filtered", {".gitattributes": "*.c filter=evil\n", "x.c": "1\n"})
    shop.commit("next", {"x.c": "2\n"})
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree("HEAD~1"), shop.git("rev-parse", "HEAD~1"))
    command = f"touch {tmp_path}/ran; cat"
    for key in ("filter.evil.smudge", "filter.evil.clean"):
        shop_git = ["git", "config", key, command]
        subprocess.run(shop_git, cwd=tmp_path / "src", check=True)
    assert kept.update(mirror, shop.tree(), shop.head).in_place
    assert (tmp_path / "src/x.c").read_text() == "2\n"
    assert not (tmp_path / "ran").exists()
    assert "evil" not in (tmp_path / "src/.git/config").read_text()


@pytest.mark.parametrize("damage", ["record", "index", "mirror", "boot"])
def test_what_is_known_may_be_lost(shop: Workshop, tmp_path: Path, damage: str) -> None:
    """Without a record, its index, the tree before, or since the machine started: all is right."""
    mirror, kept = mirror_of(shop), KeptTree(tmp_path / "src")
    kept.update(mirror, shop.tree("HEAD~1"), shop.git("rev-parse", "HEAD~1"))
    record = tmp_path / "src.record.json"
    told = record.read_text()
    if damage == "record":
        record.write_text(told[:40])
    elif damage == "index":
        (tmp_path / "src.index").write_bytes(b"DIRC and nonsense")
    elif damage == "mirror":
        record.write_text(told.replace(shop.tree("HEAD~1"), "1" * 40))
    else:
        record.write_text(told.replace('"boot": "', '"boot": "not '))
    before = os.lstat(tmp_path / "src/same")
    assert not kept.update(mirror, shop.tree(), shop.head).in_place
    fresh = tmp_path / "fresh"
    checkout_tree(mirror, shop.tree(), shop.head, fresh)
    assert snapshot(tmp_path / "src") == snapshot(fresh)
    assert os.lstat(tmp_path / "src/same").st_ino == before.st_ino


_SWAP = """
import sys
from pathlib import Path
from perfbisect.building.kept_tree import KeptTree
mirror, path, *trees = sys.argv[1:]
commit = trees.pop()
print("begun", flush=True)
while True:
    for tree in trees:
        KeptTree(Path(path)).update(Path(mirror), tree, commit)
"""


def test_killed_in_the_middle_the_next_update_repairs_it(tmp_path: Path) -> None:
    """After kill -9 while files were being written, the tree is recognised as unknown and is right
    again after the next update.
    """
    shop = Workshop(tmp_path / "source")
    for version in ("1", "2", "3"):
        shop.commit(version, {f"{n % 20}/{n}-{version}": version for n in range(200)})
    mirror, commit = mirror_of(shop), shop.head
    found = [shop.tree(rev) for rev in ("HEAD~2", "HEAD~1", "HEAD")]
    kept, record = KeptTree(tmp_path / "src"), tmp_path / "src.record.json"
    kept.update(mirror, found[0], commit)
    checkout_tree(mirror, found[2], commit, tmp_path / "fresh")
    for _ in range(2):
        arguments = [str(mirror), str(tmp_path / "src"), *found[:2], commit]
        with subprocess.Popen([sys.executable, "-c", _SWAP, *arguments]) as child:
            until(lambda: not record.exists(), "an update under way", pause=0.0005)
            os.kill(child.pid, signal.SIGKILL)
        if not record.exists():
            assert not kept.update(mirror, found[2], commit).in_place
        else:
            kept.update(mirror, found[2], commit)
        assert snapshot(tmp_path / "src") == snapshot(tmp_path / "fresh")
    shutil.rmtree(tmp_path / "fresh")
