"""Checkouts for builds: the files, a real .git, and nothing of a hostile tree run or followed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.helpers.repositories import Workshop

from perfbisect.core.revision import reverting
from perfbisect.errors import BadInputError, InternalError
from perfbisect.history import Mirror, Resolved, open_mirror


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path / "source")
    made.commit("one", {"a": "1\n", "tool.sh": "#!/bin/sh\n", "deep/er/file": "x\n"})
    (made.path / "tool.sh").chmod(0o755)
    (made.path / "link").symlink_to("/etc/passwd")
    (made.path / "dirlink").symlink_to("..")
    made.commit("two", {"empty": ""})
    made.git("tag", "-a", "-m", "x", "v1.5")
    made.commit("three", {"a": "3\n"})
    return made


@pytest.fixture
def mirror(shop: Workshop, tmp_path: Path) -> Mirror:
    return open_mirror(shop.path, tmp_path / "mirrors")


def _git(place: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=place, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_files_are_those_of_the_commit(shop: Workshop, mirror: Mirror, tmp_path: Path) -> None:
    """Contents, executable bits and symbolic links are right, and git sees nothing changed."""
    out = tmp_path / "deep" / "out"
    mirror.checkout_tree(shop.tree(), shop.head, out)
    assert (out / "a").read_text() == "3\n"
    assert (out / "deep/er/file").read_text() == "x\n"
    assert os.access(out / "tool.sh", os.X_OK)
    assert not os.access(out / "a", os.X_OK)
    assert os.readlink(out / "link") == "/etc/passwd"
    assert os.readlink(out / "dirlink") == ".."
    assert _git(out, "status", "--porcelain") == ""
    assert _git(out, "rev-parse", "HEAD") == shop.head
    assert _git(out, "fsck") == ""


def test_version_stamping_works(shop: Workshop, mirror: Mirror, tmp_path: Path) -> None:
    """git describe, log and tags answer as in a full clone."""
    mirror.checkout_tree(shop.tree(), shop.head, tmp_path / "out")
    assert _git(tmp_path / "out", "describe", "--tags") == shop.git("describe", "--tags")
    assert _git(tmp_path / "out", "describe", "--tags", "--long", "--dirty") == (
        f"v1.5-1-g{shop.head[:7]}"
    )
    assert _git(tmp_path / "out", "rev-list", "--count", "HEAD") == "3"
    assert _git(tmp_path / "out", "tag") == "v1.5"


def test_a_revision_with_changes_is_one_commit_on_top_of_its_base(
    shop: Workshop, mirror: Mirror, tmp_path: Path
) -> None:
    """Its HEAD has the merged tree, the base as parent, and is the same commit each time."""
    resolved = mirror.resolve_revision(reverting("master", "master"))
    assert isinstance(resolved, Resolved)
    heads = []
    for name in ("first", "second"):
        mirror.checkout_tree(resolved.tree, resolved.base, tmp_path / name)
        heads.append(_git(tmp_path / name, "rev-parse", "HEAD"))
    assert heads[0] == heads[1] != shop.head
    assert (tmp_path / "first/a").read_text() == "1\n"
    assert _git(tmp_path / "first", "rev-parse", "HEAD~1") == shop.head
    assert _git(tmp_path / "first", "status", "--porcelain") == ""
    assert _git(tmp_path / "first", "describe", "--tags").startswith("v1.5-2-g")


def test_a_checkout_of_a_shallow_mirror_works(shop: Workshop, tmp_path: Path) -> None:
    """Where history is cut off, git in the checkout knows where."""
    clone = tmp_path / "shallow"
    shop.git("clone", "--quiet", "--depth=1", f"file://{shop.path}", str(clone))
    mirror = open_mirror(clone, tmp_path / "mirrors")
    mirror.checkout_tree(shop.tree(), shop.head, tmp_path / "out")
    assert _git(tmp_path / "out", "rev-list", "--count", "HEAD") == "1"


def test_submodules_and_lfs_pointers_stay_what_they_are(shop: Workshop, tmp_path: Path) -> None:
    """A submodule is an empty directory, and a file kept in LFS is its pointer."""
    shop.git("update-index", "--add", "--cacheinfo", f"160000,{shop.head},third_party/sub")
    (shop.path / "third_party/sub").mkdir(parents=True)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (shop.path / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (shop.path / "x.bin").write_text(pointer)
    shop.git("add", ".gitattributes", "x.bin")
    shop.git("commit", "--quiet", "-m", "modules")
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    mirror.checkout_tree(shop.tree(), shop.head, tmp_path / "out")
    assert list((tmp_path / "out/third_party/sub").iterdir()) == []
    assert (tmp_path / "out/x.bin").read_text() == pointer


def _tree_of(shop: Workshop, *entries: str) -> str:
    return shop.git("mktree", stdin="".join(f"{entry}\n" for entry in entries))


def test_a_tree_that_would_write_into_git_is_refused(shop: Workshop, tmp_path: Path) -> None:
    """A commit that carries .git/hooks is not written out at all."""
    blob = shop.git("hash-object", "-w", "--stdin", stdin="#!/bin/sh\n")
    hooks = _tree_of(shop, f"100755 blob {blob}\tpost-checkout")
    inner = _tree_of(shop, f"040000 tree {hooks}\thooks")
    evil = _tree_of(shop, f"040000 tree {inner}\t.git")
    commit = shop.git("commit-tree", evil, "-m", "evil")
    shop.git("update-ref", "refs/heads/evil", commit)
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    with pytest.raises(BadInputError, match="invalid path"):
        mirror.checkout_tree(evil, commit, tmp_path / "out")
    assert not (tmp_path / "out/.git/hooks/post-checkout").exists()


def test_a_symbolic_link_is_never_followed_when_files_are_written(
    shop: Workshop, tmp_path: Path
) -> None:
    """A tree with a link and, by the same name, a directory writes nothing outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    target = shop.git("hash-object", "-w", "--stdin", stdin=str(outside))
    blob = shop.git("hash-object", "-w", "--stdin", stdin="x\n")
    folder = _tree_of(shop, f"100644 blob {blob}\tfile")
    evil = _tree_of(shop, f"120000 blob {target}\tname", f"040000 tree {folder}\tname")
    commit = shop.git("commit-tree", evil, "-m", "evil")
    shop.git("update-ref", "refs/heads/evil", commit)
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    with contextlib.suppress(BadInputError, InternalError):
        mirror.checkout_tree(evil, commit, tmp_path / "out")
    assert list(outside.iterdir()) == []


def test_a_directory_that_is_not_empty_is_left_alone(
    shop: Workshop, mirror: Mirror, tmp_path: Path
) -> None:
    """Nothing is overwritten: a checkout needs a place of its own."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("keep")
    with pytest.raises(InternalError, match="not empty"):
        mirror.checkout_tree(shop.tree(), shop.head, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine"]


def test_names_with_spaces_and_sha256_are_no_trouble(tmp_path: Path) -> None:
    """A repository with SHA-256 names, below a path with spaces and accents, works throughout."""
    odd = tmp_path / "a spâce # and 'more'"
    odd.mkdir()
    place = odd / "source"
    place.mkdir()
    subprocess.run(["git", "init", "--quiet", "--object-format=sha256", place], check=True)
    shop = Workshop(place)
    shop.commit("one", {"a": "1\n"})
    shop.git("tag", "v1")
    shop.commit("two", {"b": "1\n"})
    shop.commit("three", {"a": "3\n"})
    mirror = open_mirror(place, odd / "mirrors")
    assert len(shop.head) == 64
    assert [c.subject for c in mirror.candidates("v1", "HEAD")] == ["one", "two", "three"]
    resolved = mirror.resolve_revision(reverting("HEAD", "HEAD~1"))
    assert isinstance(resolved, Resolved)
    mirror.checkout_tree(resolved.tree, resolved.base, odd / "out")
    assert sorted(p.name for p in (odd / "out").iterdir()) == [".git", "a"]
    assert _git(odd / "out", "describe", "--tags").startswith("v1-3-g")
