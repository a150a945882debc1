"""Mirrors of real repositories: made, updated, refused, and whole whatever gets killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.helpers.repositories import Workshop

from perfbisect.errors import BadInputError, TransientError
from perfbisect.git.process import failure
from perfbisect.git.source import known_source, parse_source
from perfbisect.history import Mirror, open_mirror


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path / "source")
    made.commit("one", {"a": "1\n"})
    made.git("tag", "v1")
    made.commit("two", {"a": "2\n"})
    return made


def test_a_mirror_has_branches_tags_head_and_remote_branches(
    shop: Workshop, tmp_path: Path
) -> None:
    """Everything that a person may name in the source resolves to the same commit in the mirror."""
    shop.git("update-ref", "refs/remotes/origin/r2.0", "HEAD~1")
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    two, one = shop.head, shop.git("rev-parse", "HEAD~1")
    assert mirror.resolve("master").sha == two
    assert mirror.resolve("HEAD").sha == two
    assert mirror.resolve("HEAD~1").sha == one
    assert mirror.resolve("v1").sha == one
    assert mirror.resolve("origin/r2.0").sha == one
    assert mirror.resolve("r2.0").sha == one
    assert mirror.resolve(two[:8]).sha == two
    assert mirror.resolve(two.upper()).sha == two


def test_a_later_call_brings_the_mirror_up_to_date(shop: Workshop, tmp_path: Path) -> None:
    """New commits come, deleted and moved refs follow, and old commits can still be named."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    gone = shop.head
    shop.git("branch", "short-lived")
    open_mirror(shop.path, tmp_path / "mirrors")
    shop.git("branch", "-D", "short-lived")
    shop.git("reset", "--quiet", "--hard", "HEAD~1")
    shop.commit("other two", {"a": "3\n"})
    shop.git("tag", "--force", "v1")
    again = open_mirror(shop.path, tmp_path / "mirrors")
    assert again.path == mirror.path
    assert again.resolve("master").sha == again.resolve("v1").sha == shop.head
    assert again.resolve(gone).subject == "two"
    with pytest.raises(BadInputError, match="short-lived"):
        again.resolve("short-lived")


def test_without_update_the_source_is_not_looked_at(shop: Workshop, tmp_path: Path) -> None:
    """A mirror that is there can be used as it is, so that work goes on without the network."""
    open_mirror(shop.path, tmp_path / "mirrors")
    before = shop.head
    shop.commit("three", {"a": "3\n"})
    assert (
        open_mirror(shop.path, tmp_path / "mirrors", update=False).resolve("master").sha == before
    )


def test_a_commit_on_no_branch_is_fetched_when_it_is_named(shop: Workshop, tmp_path: Path) -> None:
    """A commit that only the source's object store holds is found, by full and short SHA."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    shop.switch("side", "HEAD")
    lost = shop.commit("lost", {"b": "1\n"})
    shop.switch("master")
    shop.git("branch", "-D", "side")
    assert mirror.resolve(lost[:10]).sha == lost
    other = shop.git("commit-tree", f"{lost}^{{tree}}", "-m", "never on a branch")
    assert mirror.resolve(other).subject == "never on a branch"


def test_the_mirror_does_not_need_the_source_any_more(shop: Workshop, tmp_path: Path) -> None:
    """Objects are linked or copied, not borrowed: the source may vanish."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    shutil.rmtree(shop.path)
    assert [c.subject for c in mirror.candidates("v1", "master")] == ["one", "two"]
    mirror.checkout_tree(mirror.resolve("v1").tree, mirror.resolve("v1").sha, tmp_path / "out")
    assert (tmp_path / "out/a").read_text() == "1\n"


def test_worktrees_subdirectories_and_file_urls_are_the_same_repository(
    shop: Workshop, tmp_path: Path
) -> None:
    """A repository has one mirror, however its path is written."""
    shop.git("worktree", "add", "--quiet", str(tmp_path / "tree"), "v1")
    (shop.path / "deep").mkdir()
    ways: list[str | Path] = [
        shop.path,
        str(shop.path),
        f"file://{shop.path}",
        shop.path / ".git",
        shop.path / "deep",
        tmp_path / "tree",
    ]
    assert len({open_mirror(way, tmp_path / "mirrors").path for way in ways}) == 1


def test_names_of_mirrors_differ_with_their_sources(tmp_path: Path) -> None:
    """Two sources with equal last parts get different directories."""
    names = {
        parse_source(url, allow_local=False).name
        for url in (
            "https://a.example/x/tf.git",
            "https://b.example/x/tf.git",
            "git@c.example:x/tf",
        )
    }
    assert len(names) == 3


@pytest.mark.parametrize(
    "url",
    [
        "https://user:t0ken@a.example/x/tf.git",
        "https://t0ken@a.example/x/tf.git",
        "ssh://git:t0ken@a.example/x/tf.git",
    ],
)
def test_credentials_are_refused_and_not_repeated(url: str) -> None:
    """A URL with a secret is refused, with what to do instead, and the secret is not shown."""
    with pytest.raises(BadInputError, match="credential helper") as caught:
        parse_source(url, allow_local=False)
    assert "t0ken" not in str(caught.value)
    assert "t0ken" not in str(caught.value.value)
    assert parse_source("ssh://git@a.example/x/tf.git", allow_local=False).shown


@pytest.mark.parametrize(
    ("source", "telling"),
    [
        ("ext::sh -c 'touch pwned'", "transport helpers"),
        ("fd::17", "transport helpers"),
        ("--upload-pack=touch pwned", "give the path or the URL"),
        ("-x", "give the path or the URL"),
        ("", "give the path or the URL"),
        ("https://a.example/x\n", "give the path or the URL"),
        ("ftp://a.example/x", "not one of https"),
        ("https://-oProxyCommand=x/y", "names no host"),
        ("ssh:///x", "names no host"),
        ("file://other.example/x", "names no other host"),
        ("/no/such/place", "no such file"),
        ("https://[::1/x", "not a URL"),
    ],
)
def test_what_is_no_repository_is_refused(source: str, telling: str, tmp_path: Path) -> None:
    """Options, transport helpers, foreign schemes and missing paths get an error that says why."""
    with pytest.raises(BadInputError, match=telling) as caught:
        open_mirror(source, tmp_path / "mirrors")
    assert caught.value.field == "repo"
    assert not (tmp_path / "mirrors").exists()


def test_a_directory_or_file_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    """A plain directory and a plain file are named as what they are."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInputError, match="not a git repository"):
        open_mirror(tmp_path / "plain", tmp_path / "mirrors")
    with pytest.raises(BadInputError, match="not a directory"):
        open_mirror(tmp_path / "file", tmp_path / "mirrors")


@pytest.mark.parametrize("spelling", ["{}", "file://{}"])
def test_local_paths_are_refused_where_they_are_not_allowed(
    spelling: str, shop: Workshop, tmp_path: Path
) -> None:
    """A service that serves others reads no repository of its own disk."""
    with pytest.raises(BadInputError, match="give a URL"):
        open_mirror(spelling.format(shop.path), tmp_path / "mirrors", allow_local=False)


def test_an_empty_repository_is_refused_and_leaves_a_mirror_that_works_later(
    tmp_path: Path,
) -> None:
    """No commits: a clear error; once there are some, the same call succeeds."""
    empty = Workshop(tmp_path / "empty")
    with pytest.raises(BadInputError, match="no commits yet"):
        open_mirror(empty.path, tmp_path / "mirrors")
    empty.commit("first", {"a": "1\n"})
    assert open_mirror(empty.path, tmp_path / "mirrors").resolve("HEAD").subject == "first"


def test_a_source_whose_head_is_unborn_serves_its_other_branches(
    shop: Workshop, tmp_path: Path
) -> None:
    """HEAD on a branch without commits: branches resolve, HEAD gets an error that says so."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    shop.git("symbolic-ref", "HEAD", "refs/heads/unborn")
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    assert mirror.resolve("master").subject == "two"
    with pytest.raises(BadInputError, match="branch without commits"):
        mirror.resolve("HEAD~1", "bad")


def test_a_shallow_source_says_so_and_is_completed_later(shop: Workshop, tmp_path: Path) -> None:
    """What a shallow clone lacks is explained; completing the source completes the mirror."""
    for number in range(5):
        shop.commit(f"more {number}", {"a": f"more {number}\n"})
    clone = tmp_path / "shallow"
    shop.git("clone", "--quiet", "--depth=2", "--no-tags", f"file://{shop.path}", str(clone))
    mirror = open_mirror(clone, tmp_path / "mirrors")
    assert mirror.shallow
    assert mirror.resolve("master~1").subject == "more 3"
    old = shop.git("rev-parse", "v1")
    with pytest.raises(BadInputError, match="--unshallow"):
        mirror.resolve(old)
    subprocess.run(["git", "-C", clone, "fetch", "--quiet", "--unshallow"], check=True)
    completed = open_mirror(clone, tmp_path / "mirrors")
    assert not completed.shallow
    assert completed.resolve(old).subject == "one"


def test_a_partial_clone_is_refused(shop: Workshop, tmp_path: Path) -> None:
    """A clone without old file contents can't build old commits, so it is refused up front."""
    shop.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "partial"
    shop.git("clone", "--quiet", "--filter=blob:none", f"file://{shop.path}", str(clone))
    with pytest.raises(BadInputError, match="partial clone"):
        open_mirror(clone, tmp_path / "mirrors")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to another user")
def test_a_repository_of_another_user_gets_advice(shop: Workshop, tmp_path: Path) -> None:
    """Git's refusal to read what another user owns becomes an error with the command to run."""
    for place in [shop.path, *shop.path.rglob("*")]:
        os.chown(place, 12345, 12345)
    with pytest.raises(BadInputError, match=r"safe\.directory"):
        open_mirror(shop.path, tmp_path / "mirrors")


def test_hooks_and_configuration_of_the_source_never_run(shop: Workshop, tmp_path: Path) -> None:
    """Programs that a hostile repository configures are not started by mirroring or reading it."""
    proof = tmp_path / "pwned"
    hooks = shop.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "pre-auto-gc", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {proof}\n")
        (hooks / name).chmod(0o755)
    for key in ("core.fsmonitor", "uploadpack.packObjectsHook", "core.pager", "diff.external"):
        shop.git("config", key, f"touch {proof}; false")
    shop.git("config", "filter.evil.smudge", f"touch {proof}")
    two = shop.commit("attributes", {".gitattributes": "* filter=evil\n", "x": "y\n"})
    proof.unlink(missing_ok=True)
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    mirror.checkout_tree(mirror.resolve(two).tree, two, tmp_path / "out")
    mirror.diff(two)
    assert (tmp_path / "out/x").read_text() == "y\n"
    assert not proof.exists()


def test_progress_is_told(shop: Workshop, tmp_path: Path) -> None:
    """Whoever waits sees git's own lines."""
    lines: list[str] = []
    open_mirror(f"file://{shop.path}", tmp_path / "mirrors", progress=lines.append)
    assert any("Cloning" in line for line in lines)


def test_an_unreachable_server_is_worth_another_try(tmp_path: Path) -> None:
    """A refused connection is transient, and leaves nothing behind."""
    with pytest.raises(TransientError) as caught:
        open_mirror("http://127.0.0.1:9/x.git", tmp_path / "mirrors")
    assert "127.0.0.1:9/x.git" in str(caught.value)
    assert [p.name for p in (tmp_path / "mirrors").iterdir() if not p.name.endswith(".lock")] == []


_OPEN = """
import sys
from pathlib import Path
from perfbisect.history import open_mirror
open_mirror(sys.argv[1], Path(sys.argv[2]))
"""


def _big(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path / "big")
    noise = os.urandom(12 << 20).hex()
    shop.commit("big", {"noise": noise})
    return shop


def test_killed_in_the_middle_of_a_clone_the_next_call_succeeds(tmp_path: Path) -> None:
    """kill -9 while git clones leaves no half mirror; the next call makes a whole one."""
    shop = _big(tmp_path)
    mirrors = tmp_path / "mirrors"
    process = subprocess.Popen([sys.executable, "-c", _OPEN, f"file://{shop.path}", str(mirrors)])
    while not list(mirrors.glob("*.partial-*")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    mirror = open_mirror(shop.path, mirrors)
    assert mirror.resolve("HEAD").subject == "big"
    assert {p.suffix for p in mirrors.iterdir()} <= {".git", ".lock"}


def test_what_a_killed_fetch_left_behind_is_cleared_away(shop: Workshop, tmp_path: Path) -> None:
    """Lock files, a half clone and a still running git of a killed process don't stop the next."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    (mirror.path / "packed-refs.lock").touch()
    (mirror.path / "refs/heads").mkdir(parents=True, exist_ok=True)
    (mirror.path / "refs/heads/master.lock").touch()
    half = mirror.path.with_name(f"{mirror.path.name}.partial-0")
    half.mkdir()
    orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
    started = psutil.Process(orphan.pid).create_time()
    note = mirror.path.with_name(f"{mirror.path.name}.running")
    note.write_text(json.dumps({"pid": orphan.pid, "started": started}))
    three = shop.commit("three", {"a": "3\n"})
    assert open_mirror(shop.path, tmp_path / "mirrors").resolve("master").sha == three
    assert not psutil.pid_exists(orphan.pid)
    orphan.wait()
    assert not half.exists()
    assert not note.exists()


def test_a_note_about_another_process_kills_nobody(shop: Workshop, tmp_path: Path) -> None:
    """A process number that was used again since belongs to somebody else."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        note = mirror.path.with_name(f"{mirror.path.name}.running")
        note.write_text(json.dumps({"pid": stranger.pid, "started": 1.0}))
        open_mirror(shop.path, tmp_path / "mirrors")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def _open(source: Path, mirrors: Path) -> str:
    return open_mirror(source, mirrors).resolve("master").sha


def test_processes_that_start_together_make_one_mirror(shop: Workshop, tmp_path: Path) -> None:
    """Four processes at once all get the same, whole mirror."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.starmap(_open, [(shop.path, tmp_path / "mirrors")] * 4)
    assert found == [shop.head] * 4
    assert len(list((tmp_path / "mirrors").glob("*.git"))) == 1


def test_a_mirror_opened_by_path_alone_reads(shop: Workshop, tmp_path: Path) -> None:
    """A builder needs no more than the directory."""
    made = open_mirror(shop.path, tmp_path / "mirrors")
    mirror = Mirror(made.path)
    assert mirror.commit(shop.head).subject == "two"
    with pytest.raises(BadInputError, match="no such revision"):
        mirror.resolve("0" * 40)


def test_a_mirror_is_found_after_its_source_has_vanished(shop: Workshop, tmp_path: Path) -> None:
    """What was stored of a source leads to its mirror, though nothing is there any more."""
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    assert mirror.source is not None
    shutil.rmtree(shop.path)
    assert known_source(mirror.source.url).name == mirror.path.name
    for url in ("https://a.example/x.git", "git@a.example:x.git"):
        parsed = parse_source(url, allow_local=False)
        assert known_source(parsed.url) == parsed


@pytest.mark.parametrize(
    ("returncode", "stderr", "passing"),
    [
        (128, "fatal: write error: No space left on device", True),
        (128, "error: unable to write file: Disk quota exceeded", True),
        (128, "fatal: Out of memory, malloc failed", True),
        (-9, "", True),
        (128, "fatal: bad object", False),
        (1, "", False),
    ],
)
def test_a_machine_that_fails_is_worth_another_try(
    returncode: int, stderr: str, passing: bool
) -> None:
    """A full disk, no memory and a kill say nothing about the repository."""
    error = failure(["fetch"], returncode, stderr)
    assert isinstance(error, TransientError) == passing
    assert "git fetch failed" in error.message


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def served(shop: Workshop) -> Iterator[str]:
    """The repository's URL at a git server on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = [f"--port={port}", "--listen=127.0.0.1", f"--base-path={shop.path.parent}"]
    daemon = subprocess.Popen(
        ["git", "daemon", "--export-all", "--reuseaddr", "--log-destination=none", *place],
        start_new_session=True,
    )
    try:
        while not _listens(port):
            assert daemon.poll() is None
            time.sleep(0.02)
        yield f"git://127.0.0.1:{port}/{shop.path.name}/.git"
    finally:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def test_a_repository_behind_a_url_is_mirrored_and_updated(
    served: str, shop: Workshop, tmp_path: Path
) -> None:
    """Over the network: branches by both spellings, tags, HEAD, then news and commits by SHA."""
    shop.git("update-ref", "refs/pull/1/head", "HEAD~1")
    lines: list[str] = []
    mirrors = tmp_path / "mirrors"
    mirror = open_mirror(served, mirrors, allow_local=False, progress=lines.append)
    assert mirror.resolve("origin/master") == mirror.resolve("HEAD") == mirror.resolve("master")
    assert mirror.resolve("v1").subject == "one"
    assert lines
    refs = subprocess.check_output(["git", "-C", mirror.path, "for-each-ref"], text=True)
    assert "refs/pull" not in refs
    loose = shop.git("commit-tree", shop.tree(), "-m", "proposed")
    shop.git("update-ref", "refs/pull/2/head", loose)
    three = shop.commit("three", {"a": "3\n"})
    again = open_mirror(served, mirrors, allow_local=False)
    assert again.resolve("master").sha == three
    assert again.resolve(loose).subject == "proposed"
    with pytest.raises(BadInputError, match="no such revision"):
        again.resolve("0" * 40)


def test_a_url_without_a_repository_is_bad_input(served: str, tmp_path: Path) -> None:
    """The server answers that there is none: no use trying again."""
    with pytest.raises(BadInputError, match="could not read"):
        open_mirror(f"{served}/none.git", tmp_path / "mirrors")
