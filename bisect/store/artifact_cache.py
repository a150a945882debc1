"""Copies on this machine of artifacts that are elsewhere; the longest unused go first."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

#: Seconds for which a copy stays after its last use, whatever the limit: a run may be using it.
GRACE = 86_400.0


class ArtifactCache:
    """Files by key below one directory, about as many as a limit allows."""

    def __init__(self, directory: Path, limit: int, clock: Callable[[], float] = time.time) -> None:
        """Keep copies.

        Args:
            directory: where they are.
            limit: bytes of all together.
            clock: seconds since the epoch.
        """
        self._directory = directory
        self._limit = limit
        self._clock = clock
        self._pruning = threading.Lock()

    def find(self, key: str) -> Path | None:
        """Return the copy, if there is one, and remember that it was used."""
        path = self._directory / key
        try:
            facts = path.stat()
            # The time of its last use; that of its last change tells whether it was changed.
            os.utime(path, (self._clock(), facts.st_mtime))
        except OSError:
            return None
        return path

    @contextlib.contextmanager
    def adding(self, key: str) -> Iterator[BinaryIO]:
        """Yield a file to write a copy to; it appears when the block ends, and only then.

        Raises:
            OSError: the directory can't be written.
        """
        target = self._directory / key
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with partial.open("wb") as file:
                yield file
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        self.find(key)
        self.prune()

    def add(self, key: str, path: Path) -> None:
        """Copy a file in; a full disk is no reason to fail: it will be fetched when needed."""
        with contextlib.suppress(OSError), path.open("rb") as source, self.adding(key) as sink:
            shutil.copyfileobj(source, sink)

    def drop(self, key: str) -> None:
        """Remove a copy; none there is no error."""
        with contextlib.suppress(OSError):
            (self._directory / key).unlink()

    def prune(self) -> None:
        """Remove the longest unused beyond the limit, but nothing that was used of late."""
        if not self._pruning.acquire(blocking=False):
            return
        try:
            total, now = 0, self._clock()
            for used, size, path in sorted(self._files(), reverse=True):
                total += size
                if total > self._limit and now - used > GRACE:
                    with contextlib.suppress(OSError):
                        path.unlink()
        finally:
            self._pruning.release()

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Return (time of the last use, bytes, file) of each copy."""
        for folder, _, names in os.walk(self._directory):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    facts = path.stat()
                    yield facts.st_atime, facts.st_size, path
