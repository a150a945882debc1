"""Directories that are expensive to make, kept and shared: environments, unpacked archives.

Every directory has a lock beside it. Users hold it shared, whoever fills or removes it alone; the
kernel drops it when its holder dies, so that a kill leaves nothing locked and nothing half-made.

What fills a directory may be foreign code, in a container but with the directory in its hands: the
file that says that it is complete lies outside of what that code can write to.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.untrusted import remove

#: Written last: a directory without it was never finished.
COMPLETE = "complete.json"
#: Below each directory: what was filled in.
CONTENT = "content"
#: Name of the fact that says how many bytes were filled in.
SIZE = "content_bytes"
#: Seconds between two tries for a lock.
_POLL = 0.1

Facts = Mapping[str, Any]


def _usable(directory: Path) -> bool:
    return True


class LeasedDirectories:
    """A bounded set of directories below one root, each under a key."""

    def __init__(
        self,
        root: Path,
        keep: int,
        keep_bytes: int = sys.maxsize,
        usable: Callable[[Path], bool] = _usable,
    ) -> None:
        """Keep directories.

        Args:
            root: where they are.
            keep: how many stay when nobody uses them; the longest unused go first.
            keep_bytes: how large they may be together.
            usable: looks at the content of a finished directory; False: it gets filled again.
        """
        self._root = root
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._is_usable = usable

    @contextlib.contextmanager
    def lease(
        self, key: str, fill: Callable[[Path], Facts], cancel: CancelToken
    ) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Hold a directory; yield its content and the facts that ``fill`` returned.

        Args:
            key: a file name, e.g. a digest.
            fill: makes the content of an empty directory; what it raises leaves nothing behind.
            cancel: ends the wait for somebody else who fills the same directory.

        Raises:
            CancelledWork: the token asked for the end while waiting.
            OSError: the directory can't be written.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        directory = self._root / key
        with self._locked(key) as lock:
            facts = self._held(lock, directory, fill, cancel)
            try:
                yield directory / CONTENT, facts
            finally:
                with contextlib.suppress(OSError):
                    os.utime(directory / COMPLETE)
        self._prune()

    def _held(
        self, lock: int, directory: Path, fill: Callable[[Path], Facts], cancel: CancelToken
    ) -> dict[str, Any]:
        """Return the facts of a finished directory that is held shared."""
        while True:
            _acquire(lock, fcntl.LOCK_SH, cancel)
            facts = self._finished(directory)
            if facts is not None:
                return facts
            # Not atomic: somebody else may have filled it between the two locks.
            _acquire(lock, fcntl.LOCK_EX, cancel)
            if self._finished(directory) is None:
                self._fill(directory, fill)

    def _finished(self, directory: Path) -> dict[str, Any] | None:
        facts = self._facts(directory)
        return facts if facts is not None and self._is_usable(directory / CONTENT) else None

    def _facts(self, directory: Path) -> dict[str, Any] | None:
        try:
            facts = json.loads((directory / COMPLETE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def _fill(self, directory: Path, fill: Callable[[Path], Facts]) -> None:
        """Fill in place, as environments can't be moved; the file that completes it comes last."""
        _remove(directory)
        (directory / CONTENT).mkdir(parents=True)
        try:
            facts = fill(directory / CONTENT)
            partial = directory / f"{COMPLETE}.partial"
            size = _size(directory / CONTENT)
            partial.write_text(json.dumps({**facts, SIZE: size}), encoding="utf-8")
            partial.rename(directory / COMPLETE)
        except BaseException:
            _remove(directory)
            raise

    def _prune(self) -> None:
        """Remove the longest unused directories beyond what to keep, but none in use.

        The one used last stays, however large it is.
        """
        directories = [path for path in self._root.iterdir() if path.is_dir()]
        directories.sort(key=_last_used, reverse=True)
        sizes = accumulate(self._recorded_size(directory) for directory in directories)
        for rank, (directory, size) in enumerate(zip(directories, sizes, strict=True)):
            if rank >= self._keep or (rank and size > self._keep_bytes):
                with self._locked(directory.name) as lock, contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(directory)

    def _recorded_size(self, directory: Path) -> int:
        size = (self._facts(directory) or {}).get(SIZE, 0)
        return size if isinstance(size, int) else 0

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[int]:
        # Lock files are left behind: to remove one that somebody is opening would split it in two.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self._root / f"{key}.lock", flags, 0o644)
        try:
            yield lock
        finally:
            os.close(lock)


def _acquire(lock: int, mode: int, cancel: CancelToken) -> None:
    while True:
        try:
            fcntl.flock(lock, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if cancel.wait(_POLL):
                raise CancelledWork from None
        else:
            return


def _last_used(directory: Path) -> float:
    try:
        return (directory / COMPLETE).stat().st_mtime
    except OSError:
        return 0.0


def _size(directory: Path) -> int:
    """Return the bytes of the files below a directory; one that goes meanwhile counts nothing."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return size


def _remove(directory: Path) -> None:
    if directory.exists():
        remove(directory)
