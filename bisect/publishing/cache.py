"""Downloaded wheels, shared by all processes of a machine, within a limit.

    ROOT/SHA256/name-of-the.whl         complete and verified
    ROOT/SHA256/name-of-the.whl.part    what came so far, to go on with
    ROOT/SHA256.lock                    held shared by users, alone by who downloads or removes
    ROOT/admission.lock                 held while room is made

The kernel drops a lock when its holder dies: a kill leaves nothing locked, and nothing half-made
under a wheel's name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfbisect.errors import BadInputError, TransientError
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.publishing.access import IndexAccess
from perfbisect.publishing.download import Progress, download
from perfbisect.publishing.index import FIRST_WAIT, PackageIndex
from perfbisect.publishing.values import Published
from perfbisect.units import format_size

#: Bytes that downloaded wheels may take unless settings say otherwise.
DEFAULT_LIMIT = 20 * 1024**3

#: Seconds between two tries for a lock.
_POLL = 0.1
_ADMISSION = "admission"
#: Holds the bytes that a download under way will need.
_EXPECTED = "expected"


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """What a cache holds now."""

    wheels: int
    #: Downloads under way count with all that they will need.
    bytes: int


class WheelCache:
    """Wheels by SHA-256; the longest unused go first, but none that is held."""

    def __init__(
        self,
        root: Path,
        access: IndexAccess,
        limit: int = DEFAULT_LIMIT,
        *,
        first_wait: float = FIRST_WAIT,
    ) -> None:
        """Use a directory, which is made when the first wheel comes.

        Args:
            root: the directory; nothing else may be in it.
            access: how the index is reached.
            limit: bytes that complete and partial wheels may take together.
            first_wait: seconds before a failed request is repeated.
        """
        self._root = root
        self._access = access
        self._limit = limit
        self._first_wait = first_wait

    @contextlib.contextmanager
    def hold(
        self,
        wheel: Published,
        cancel: CancelToken | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Path]:
        """Yield the file of a wheel, downloaded now if it is not there; it stays until the end.

        Args:
            wheel: what to get.
            cancel: ends the download, and the wait for somebody else's.
            progress: called with bytes done and bytes of the whole.

        Raises:
            BadInputError: the file is gone, not what the index says, or larger than the cache.
            TransientError: the index, the disk, or wheels in use stand in the way for now.
            CancelledWork: the token asked for the end.
        """
        cancel = cancel or CancelToken()
        self._root.mkdir(parents=True, exist_ok=True)
        with self._lock(wheel.sha256) as lock:
            path = self._entry(wheel) / wheel.filename
            while True:
                _acquire(lock, fcntl.LOCK_SH, cancel)
                if path.exists():
                    break
                # Not atomic: somebody else may have got it between the two locks.
                _acquire(lock, fcntl.LOCK_EX, cancel)
                if not path.exists():
                    self._download(wheel, path, cancel, progress)
            try:
                yield path
            finally:
                with contextlib.suppress(OSError):
                    os.utime(path.parent)

    def usage(self) -> CacheUsage:
        """Return how much is there."""
        entries = self._entries()
        complete = sum(1 for entry in entries if any(entry.glob("*.whl")))
        return CacheUsage(complete, sum(map(_bytes, entries)))

    def prune(self, limit: int | None = None) -> int:
        """Remove the longest unused wheels beyond a limit, but none that is held.

        Args:
            limit: bytes; None: the cache's own limit.

        Returns:
            Bytes removed.
        """
        if not self._root.is_dir():
            return 0
        with self._lock(_ADMISSION) as lock:
            _acquire(lock, fcntl.LOCK_EX, CancelToken())
            before = self.usage().bytes
            return before - self._make_room(self._limit if limit is None else limit)

    def _download(
        self, wheel: Published, path: Path, cancel: CancelToken, progress: Progress | None
    ) -> None:
        """Fill an entry that is locked."""
        part = path.with_name(f"{path.name}.part")

        def admit(total: int) -> None:
            self._admit(wheel, total, cancel)

        path.parent.mkdir(exist_ok=True)
        with PackageIndex(self._access, first_wait=self._first_wait) as index:
            download(index, wheel, part, admit, cancel, progress)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.rename(path)
        (path.parent / _EXPECTED).unlink(missing_ok=True)

    def _admit(self, wheel: Published, total: int, cancel: CancelToken) -> None:
        """Make room for a file before its first byte is written, and reserve it."""
        if total > self._limit:
            raise BadInputError(
                f"{wheel.filename} has {format_size(total)}, and all wheels together may take "
                f"{format_size(self._limit)}; raise the limit",
                field="wheel_cache_size",
                value=self._limit,
            )
        own = self._entry(wheel)
        with self._lock(_ADMISSION) as lock:
            _acquire(lock, fcntl.LOCK_EX, cancel)
            held = self._make_room(self._limit - total, without=own)
            if held > self._limit - total:
                raise TransientError(
                    f"no room for {wheel.filename} ({format_size(total)}): wheels in use take "
                    f"{format_size(held)} of {format_size(self._limit)}"
                )
            (own / _EXPECTED).write_text(str(total), encoding="ascii")
        missing = total - sum(path.stat().st_size for path in own.glob("*.part"))
        free = shutil.disk_usage(self._root).free
        if free < missing:
            raise TransientError(
                f"no room for {wheel.filename}: {format_size(free)} are free on the disk, and "
                f"{format_size(missing)} are needed"
            )

    def _make_room(self, limit: int, without: Path | None = None) -> int:
        """Remove entries, the longest unused first, and return the bytes that stay."""
        entries = [entry for entry in self._entries() if entry != without]
        left = sum(map(_bytes, entries))
        for entry in sorted(entries, key=_last_used):
            if left <= limit:
                break
            size = _bytes(entry)
            if self._remove(entry):
                left -= size
        return left

    def _remove(self, entry: Path) -> bool:
        """Remove an entry unless somebody holds it."""
        with self._lock(entry.name) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            shutil.rmtree(entry)
            return True

    def _entry(self, wheel: Published) -> Path:
        return self._root / wheel.sha256

    def _entries(self) -> list[Path]:
        if not self._root.is_dir():
            return []
        return [path for path in self._root.iterdir() if path.is_dir()]

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[int]:
        # Lock files are left behind: to remove one that somebody is opening would split it in two.
        lock = os.open(self._root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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


def _bytes(entry: Path) -> int:
    """Return what an entry takes, or will take once its download is done."""
    try:
        present = sum(path.stat().st_size for path in entry.iterdir())
        expected = int((entry / _EXPECTED).read_text(encoding="ascii"))
    except FileNotFoundError:
        # No download under way, or removed or finished while we looked.
        return sum(_size(path) for path in entry.glob("*"))
    except ValueError:
        return present
    return max(present, expected)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _last_used(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0
