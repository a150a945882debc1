"""Remembers which wheel hung in which benchmark: once may be bad luck, twice is the wheel's way.

Kept on disk beside the environments, as it has to outlive this process; to lose it costs one more
run that hangs.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from perfbisect.core.recipe import digest_of
from perfbisect.core.states import FailureKind
from perfbisect.ports import Failure, RunRequest


class Hangs:
    """The hangs seen on this host."""

    def __init__(self, request: RunRequest) -> None:
        benchmark = request.benchmark
        what = [request.wheel_sha256, benchmark.digest({}), benchmark.timeout]
        self._file = request.cache_dir / "hangs" / digest_of(what)[:32]

    def judge(self, failure: Failure) -> Failure:
        """Return the failure of a run that hung: transient at first, permanent from then on."""
        if self._file.exists():
            cause = f"{failure.cause}, for the second time"
            return replace(failure, kind=FailureKind.PERMANENT, cause=cause)
        # Without the note the run is tried again, which is right too.
        with contextlib.suppress(OSError):
            _touch(self._file)
        return failure

    def forget(self) -> None:
        """Note that the wheel does run."""
        self._file.unlink(missing_ok=True)


def _touch(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
