"""Making and updating bare mirrors, one process at a time, safe against being killed in the middle.

A mirror is cloned under a temporary name and renamed when it is whole. Objects of a repository on
the same disk are hard-linked where git can, so that even a large one costs little, and nothing that
its owner throws away later is missed.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.git.fetching import UNCHECKED, Fetching, Route, Watch, route, unfinished
from perfbisect.git.process import Git, GitError, Progress, failure, limiting_prefix
from perfbisect.git.source import Source
from perfbisect.untrusted import remove_quietly

#: Where the source's HEAD is kept; the mirror's own HEAD points there.
HEAD_REF = "refs/perfbisect/HEAD"
#: Commits that were asked for by name and lie on no branch.
FETCHED_REFS = "refs/perfbisect/fetched/"

_REMOTE = "source"
_BRANCHES = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_REMOTE_BRANCHES = "+refs/remotes/*:refs/remotes/*"

_TELLING = 2000

_REDIRECTED = re.compile(r"returned error: 30\d|redirect", re.IGNORECASE)

#: Parts of git's messages that mean another try may work.
_PASSING = (
    "could not resolve host",
    "connection timed out",
    "connection refused",
    "failed to connect",
    "connection reset",
    "operation timed out",
    "operation too slow",
    "early eof",
    "unexpected disconnect",
    "the remote end hung up",
    "the requested url returned error: 5",
    "network is unreachable",
    "temporary failure in name resolution",
)


def update_mirror(
    source: Source,
    mirrors_dir: Path,
    *,
    update: bool,
    progress: Progress | None,
    fetching: Fetching = UNCHECKED,
) -> Path:
    """Return the mirror of ``source``, made or brought up to date.

    Raises:
        BadInputError: the source can't be read, holds no commit, is too large, or is on a machine
            that may not be reached.
        TransientError: the network, the server or the disk failed.
    """
    mirrors_dir.mkdir(parents=True, exist_ok=True)
    path = mirrors_dir / source.name
    with locked(path, progress):
        made = not path.exists()
        if made:
            _clone(source, path, progress, fetching)
        if made or update:
            _fetch_all(source, path, progress, fetching)
    if not Git(path).text("for-each-ref", "--count=1"):
        raise BadInputError(
            f"repo: '{source.shown}' has no commits yet", field="repo", value=source.shown
        )
    return path


def fetch_commit(source: Source, path: Path, sha: str, fetching: Fetching = UNCHECKED) -> bool:
    """Fetch one commit that no branch may hold; return whether the source has it."""
    with locked(path, None):
        try:
            _fetch(source, path, [f"+{sha}:{FETCHED_REFS}{sha}"], None, fetching)
        except GitError as error:
            if _is_passing(error):
                raise _translated(error, source) from error
            return False
    return True


@contextlib.contextmanager
def locked(path: Path, progress: Progress | None) -> Iterator[None]:
    """Hold the lock of one mirror, and clear away what a killed process left behind."""
    lock = FileLock(f"{path}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if progress is not None:
            progress("waiting for another process that updates the mirror")
        lock.acquire()
    try:
        _end_orphan(path)
        for leftover in path.parent.glob(f"{path.name}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # Whoever held these is gone: the orphan was ended, and only holders of the lock write refs.
        for stale in _lock_files(path):
            stale.unlink(missing_ok=True)
        for stale in unfinished(path):
            remove_quietly(stale)
        yield
    finally:
        lock.release()


def _lock_files(path: Path) -> Iterator[Path]:
    for name in ("packed-refs.lock", "shallow.lock", "config.lock", "HEAD.lock"):
        if (path / name).exists():
            yield path / name
    yield from (path / "refs").rglob("*.lock")


def _clone(source: Source, path: Path, progress: Progress | None, fetching: Fetching) -> None:
    partial = path.with_name(f"{path.name}.partial-{uuid.uuid4().hex[:8]}")
    try:
        if source.local:
            # A clone hard-links the objects where it can; a fetch would copy them all.
            clone = ["clone", "--bare", "--template=", "--progress", "--", source.url, str(partial)]
            git = _git(source, None, UNCHECKED)
            _watched(git, clone, path, progress, source, fetching, partial)
            Git(partial).run("config", "--remove-section", "remote.origin", ok=(0, 128))
        else:
            Git(None).run("init", "--quiet", "--bare", "--template=", "--", str(partial))
            _fetch(source, partial, _BRANCHES, progress, fetching, note_of=path)
        Git(partial).run("symbolic-ref", "HEAD", HEAD_REF)
        partial.rename(path)
    except GitError as error:
        raise _translated(error, source) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _fetch_all(source: Source, path: Path, progress: Progress | None, fetching: Fetching) -> None:
    refs = [*_BRANCHES, _REMOTE_BRANCHES] if source.local else [*_BRANCHES]
    options = ["--prune"]
    if (path / "shallow").exists():
        options.append("--unshallow")
    try:
        try:
            _fetch(source, path, [*refs, f"+HEAD:{HEAD_REF}"], progress, fetching, options)
        except GitError as error:
            # The source's HEAD is on a branch without commits; its other branches may do.
            if "couldn't find remote ref HEAD" not in error.stderr:
                raise
            Git(path).run("update-ref", "-d", HEAD_REF)
            _fetch(source, path, refs, progress, fetching, options)
    except GitError as error:
        raise _translated(error, source) from error


def _fetch(
    source: Source,
    path: Path,
    refs: Sequence[str],
    progress: Progress | None,
    fetching: Fetching,
    options: Sequence[str] = (),
    note_of: Path | None = None,
) -> None:
    arguments = ["fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
    arguments += ["--no-auto-maintenance", "--progress", *options, _REMOTE, *refs]
    git = _git(source, path, fetching)
    _watched(git, arguments, note_of or path, progress, source, fetching, path)


def _git(source: Source, path: Path | None, fetching: Fetching) -> Git:
    way = Route(source.url) if source.local else route(source.url, fetching)
    # The URL travels as configuration: it may hold a token, and process lists are public.
    settings = {**way.settings, f"remote.{_REMOTE}.url": way.url}
    return Git(
        path,
        network=True,
        allow_local=source.local,
        settings=settings,
        variables=way.variables,
    )


def _watched(
    git: Git,
    arguments: Sequence[str],
    mirror: Path,
    progress: Progress | None,
    source: Source,
    fetching: Fetching,
    directory: Path,
) -> None:
    """Run git where its progress is told on and a later process can find it if we are killed.

    Args:
        mirror: beside which the note about the process is left.
        directory: what it writes to.

    Raises:
        GitError: it failed.
        BadInputError: the repository is too large.
        TransientError: the disk or the memory is full.
    """
    note = _note(mirror)
    process = subprocess.Popen(
        [*limiting_prefix(), *git.command(arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=git.environment,
        # Without a terminal nothing can ask for a password there.
        start_new_session=True,
    )
    try:
        started = psutil.Process(process.pid).create_time()
        note.write_text(json.dumps({"pid": process.pid, "started": started}))
        with Watch(process, directory, fetching, _kill_tree) as watch:
            said = _follow(process, progress)
            process.wait()
    except BaseException:
        _kill_tree(process.pid)
        process.wait()
        raise
    finally:
        note.unlink(missing_ok=True)
    ended = watch.error(source.shown)
    if ended is not None:
        for left in unfinished(directory):
            remove_quietly(left)
        raise ended
    if process.returncode != 0:
        raise failure(arguments, process.returncode, "\n".join(said))


def _follow(process: subprocess.Popen[bytes], progress: Progress | None) -> list[str]:
    """Tell the lines of standard error on as they come; return the last that are no progress."""
    assert process.stderr is not None
    said: list[str] = []
    rest = b""
    with process.stderr as stream:
        while chunk := stream.read1(4096):  # type: ignore[attr-defined]
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            for raw in [*lines]:
                line = raw.decode("utf-8", "replace").strip()
                if not line:
                    continue
                if progress is not None:
                    progress(line)
                if "%" not in line:
                    said = [*said, line][-40:]
    last = rest.decode("utf-8", "replace").strip()
    return [*said, last] if last else said


def _note(mirror: Path) -> Path:
    return mirror.with_name(f"{mirror.name}.running")


def stop_update(path: Path) -> None:
    """End the git process that updates a mirror; whoever waits for it is told that it failed."""
    _end_orphan(path)


def _end_orphan(mirror: Path) -> None:
    """End the git process of a killed predecessor, which may still write into the mirror."""
    note = _note(mirror)
    try:
        told = json.loads(note.read_text())
        process = psutil.Process(told["pid"])
        # The clock may have been set since; no number is used again within two seconds.
        if abs(process.create_time() - told["started"]) < 2:
            _kill_tree(process.pid)
    except (FileNotFoundError, ValueError, KeyError, TypeError, psutil.Error):
        pass
    note.unlink(missing_ok=True)


def _kill_tree(pid: int) -> None:
    """Kill a process that we started and everything below it, and wait until it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, timeout=5)


def _is_passing(error: GitError) -> bool:
    said = error.stderr.lower()
    return any(part in said for part in _PASSING)


def _translated(error: GitError, source: Source) -> PerfbisectError:
    """Return the error a person should see for a failed clone or fetch."""
    said = error.stderr.replace(source.url, source.shown).strip()[-_TELLING:]
    lines = [line for line in said.splitlines() if line.startswith(("fatal:", "error:", "remote:"))]
    telling = "; ".join(lines[-3:]) or said or f"git ended with {error.returncode}"
    if _REDIRECTED.search(error.stderr):
        telling += "; it sends us to another address, which is not followed: give that one"
    if _is_passing(error):
        return TransientError(
            f"repo: could not read '{source.shown}' just now: {telling}",
            field="repo",
            value=source.shown,
        )
    return BadInputError(
        f"repo: could not read '{source.shown}': {telling}", field="repo", value=source.shown
    )
