"""Runs of published wheels: fetched just before the run, held while it lasts, never stored."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError, TransientError
from perfbisect.packages import Published, WheelCache, index_access
from perfbisect.ports import CancelToken, Failure, Runner, RunRequest, RunSuccess
from perfbisect.units import format_size

#: Directory of downloaded wheels below a run's cache directory.
DIRECTORY = "published"
#: Fields of errors that are mistakes of settings, rather than of a wheel.
_SETTINGS = ("index", "wheel_cache_size")


class PublishedRunner:
    """Gets a published wheel from the cache or the index, and lets another runner run it.

    Requests for other wheels are passed on as they are. Implements ``ports.Runner``.
    """

    def __init__(self, inner: Runner, index_url: str, limit: int) -> None:
        """Make a runner.

        Args:
            inner: runs what is there.
            index_url: root of the index; empty: this machine's own.
            limit: bytes that all downloaded wheels may take together.
        """
        self._inner = inner
        self._index_url = index_url
        self._limit = limit

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Run the benchmark once.

        A wheel that is gone, or is not what the index says, fails for good.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        if request.published is None:
            return self._inner.run(request, cancel)
        wheel = Published.from_dict(request.published)
        started = time.monotonic()
        with ExitStack() as held:
            try:
                access = index_access(self._index_url)
                cache = WheelCache(request.cache_dir / DIRECTORY, access, self._limit)
                log = _Log(request.log_path, wheel)
                path = held.enter_context(cache.hold(wheel, cancel, log.progress))
            except (BadInputError, TransientError, OSError) as error:
                return _failure(error, time.monotonic() - started)
            return self._inner.run(replace(request, wheel=path, published=None), cancel)


def _failure(error: BadInputError | TransientError | OSError, seconds: float) -> Failure:
    if isinstance(error, BadInputError):
        kind = FailureKind.OURS if error.field in _SETTINGS else FailureKind.PERMANENT
        return Failure(kind, error.message, seconds=seconds, certain=kind is FailureKind.PERMANENT)
    return Failure(FailureKind.TRANSIENT, f"the wheel can't be fetched: {error}", seconds=seconds)


class _Log:
    """Says in the run's log that a download goes on."""

    def __init__(self, path: Path, wheel: Published) -> None:
        self._path = path
        self._wheel = wheel
        self._told = False

    def progress(self, done: int, total: int) -> None:
        """Write a line when it begins."""
        if self._told:
            return
        self._told = True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as log:
            log.write(f"downloading {self._wheel.filename} ({format_size(total)})\n")
