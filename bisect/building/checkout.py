"""Putting a tree where it is built: fresh, or into a kept directory with few files touched."""

from __future__ import annotations

import contextlib
import filecmp
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from perfbisect.errors import TransientError
from perfbisect.untrusted import remove

__all__ = ["empty", "remove", "slot", "sync_tree"]

#: Kept directories of one kind: as many builds of it can go on at once.
_SLOTS = 64


@contextlib.contextmanager
def slot(directory: Path, name: str) -> Iterator[Path]:
    """Lend a kept directory ``{name}-{i}``, the first that no other build is using.

    Raises:
        TransientError: all are in use.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for index in range(_SLOTS):
        lock = FileLock(directory / f"{name}-{index}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        try:
            path = directory / f"{name}-{index}"
            path.mkdir(exist_ok=True)
            yield path
        finally:
            lock.release()
        return
    raise TransientError(f"all {_SLOTS} build directories '{name}' are in use")


def sync_tree(incoming: Path, target: Path) -> None:
    """Make ``target`` equal to ``incoming``, which is used up, without touching equal files.

    Build tools see by time and inode which files changed; so those that did not stay as they are.
    Links named ``bazel-*`` at the top of ``target`` are Bazel's own and stay.
    """
    if not target.exists():
        incoming.rename(target)
        return
    _sync_directory(incoming, target, top=True)
    remove(incoming)


def _sync_directory(incoming: Path, target: Path, *, top: bool = False) -> None:
    wanted = {entry.name: entry for entry in os.scandir(incoming)}
    for entry in list(os.scandir(target)):
        ours = top and entry.is_symlink() and entry.name.startswith("bazel-")
        if entry.name not in wanted and not ours:
            remove(Path(entry.path))
    for name, entry in wanted.items():
        old = target / name
        if _is_directory(entry) and old.is_dir() and not old.is_symlink() and name != ".git":
            _sync_directory(Path(entry.path), old)
        elif name == ".git" or not _equal(entry, old):
            remove(old)
            os.rename(entry.path, old)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _equal(entry: os.DirEntry[str], old: Path) -> bool:
    if not os.path.lexists(old) or _is_directory(entry):
        return False
    if entry.is_symlink() or old.is_symlink():
        both = entry.is_symlink() and old.is_symlink()
        return both and os.readlink(entry.path) == os.readlink(old)
    if not old.is_file() or entry.stat().st_mode != old.stat().st_mode:
        return False
    return filecmp.cmp(entry.path, old, shallow=False)


def empty(path: Path) -> None:
    """Remove what is in a directory, which itself stays; one that is missing stays so."""
    if path.is_dir():
        path.chmod(0o755)
        for entry in list(path.iterdir()):
            remove(entry)
