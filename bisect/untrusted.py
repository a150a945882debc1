"""Directories that other people's code wrote to: read, handed over and removed without surprises.

What a build or a benchmark leaves may be links that lead out, pipes that never end, devices, or
directories so deep that neither a path nor the interpreter's stack can hold them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

#: Directories below each other that are looked into; whoever nests deeper hides something.
DEEPEST = 200


def is_own_file(path: Path, root: Path) -> bool:
    """Return whether it is a file below ``root``, and neither a link nor behind one."""
    try:
        plain = stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
    return plain and path.resolve().is_relative_to(root.resolve())


def entries_below(root: Path) -> Iterator[os.DirEntry[str]]:
    """Yield files and links below a directory, each folder's by name; no link is followed.

    Pipes, sockets and devices are left out, and so is what lies deeper than ``DEEPEST``.
    """
    waiting = [(str(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST:
                    waiting.append((entry.path, depth + 1))
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                yield entry


def glob_files(root: Path, pattern: str) -> list[Path]:
    """Return the files below a directory that a glob fits, by name; links are not followed."""
    top = root.resolve()
    try:
        return sorted({path for path in top.glob(pattern) if is_own_file(path, top)})
    except (RecursionError, OSError):
        # Nested to break programs that look there: what can be looked at is looked at.
        found = (Path(entry.path) for entry in entries_below(top) if not entry.is_symlink())
        return sorted(path for path in found if _fits(path.relative_to(top), pattern))


def _fits(path: Path, pattern: str) -> bool:
    """Return whether a relative path fits a glob; ``**`` stands for any directories, also none."""
    if "**" not in pattern:
        return len(path.parts) == pattern.count("/") + 1 and path.match(pattern)
    return path.match(pattern) or path.match(pattern.replace("**/", ""))


def remove(path: Path) -> None:
    """Remove a file, link or directory, also one that a build made read-only; missing is fine.

    Raises:
        OSError: it can't be removed.
    """
    if path.is_dir() and not path.is_symlink():
        try:
            _make_writable(path)
            shutil.rmtree(path)
        except (RecursionError, OSError):
            _tool("chmod", "-R", "u+rwX", str(path))
            _tool("rm", "-rf", str(path), must=True)
    else:
        path.unlink(missing_ok=True)


def remove_quietly(path: Path) -> None:
    """Remove what can be removed of a directory."""
    with contextlib.suppress(OSError):
        remove(path)


def hand_over(top: Path, uid: int) -> None:
    """Give a directory and everything in it to a user and the group of the same number.

    Raises:
        OSError: this process may not.
    """
    try:
        for entry in _everything_below(top):
            if entry.stat(follow_symlinks=False).st_uid != uid:
                os.chown(entry.path, uid, uid, follow_symlinks=False)
        # The last: whose the top is, everything is.
        os.chown(top, uid, uid)
    except OSError:
        _tool("chown", "-hRP", f"{uid}:{uid}", str(top), must=True)


def _make_writable(path: Path) -> None:
    path.chmod(0o700)
    for entry in _everything_below(path):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)


def _everything_below(top: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all that is below a directory, each directory before what it holds, without recursion.

    Raises:
        OSError: a path is too long to be said, or a directory can't be read.
    """
    waiting = [str(top)]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            entries = list(found)
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _tool(*command: str, must: bool = False) -> None:
    """Run a program that walks trees by descriptors, however deep they are."""
    *words, path = command
    done = subprocess.run([*words, "--", path], capture_output=True, text=True, check=False)
    if must and done.returncode != 0:
        raise OSError(f"{words[0]} {path}: {done.stderr.strip()[-300:]}")
