"""Failures of a run on their way to the runner, which returns them as values."""

from __future__ import annotations

from perfbisect.core.states import FailureKind
from perfbisect.ports import Failure

#: Lines of output that people are shown when a run fails.
LAST_LINES = 20
#: Longest line shown; what lies beyond is in the log.
_WIDTH = 500


class RunFailed(Exception):
    """Ends a run; the runner turns it into its ``failure``."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


def failed(
    kind: FailureKind,
    cause: str,
    *,
    output: str = "",
    advice: str = "",
    seconds: float = 0.0,
    certain: bool = False,
) -> RunFailed:
    """Return the exception of a failure that shows the last lines of ``output``."""
    return RunFailed(Failure(kind, cause, last_lines(output), advice, seconds, certain))


def last_lines(output: str, count: int = LAST_LINES) -> tuple[str, ...]:
    """Return the last lines that hold anything, each of bounded length."""
    lines = [line.rstrip()[:_WIDTH] for line in output.splitlines()]
    return tuple([line for line in lines if line][-count:])
