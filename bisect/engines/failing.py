"""One place that decides whose fault an exception of a build or run is."""

from __future__ import annotations

from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.ports import Failure


def failure_of(error: Exception) -> Failure:
    """Return a failure for an exception: transient for disk and network, otherwise ours."""
    if isinstance(error, TransientError):
        return Failure(FailureKind.TRANSIENT, error.message)
    if isinstance(error, BadInputError):
        return Failure(FailureKind.OURS, error.message)
    kind = FailureKind.TRANSIENT if isinstance(error, OSError) else FailureKind.OURS
    message = error.message if isinstance(error, PerfbisectError) else str(error)
    return Failure(kind, f"{type(error).__name__}: {message}")
