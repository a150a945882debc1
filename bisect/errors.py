"""Every error that perfbisect raises on purpose.

    PerfbisectError                 exit code   HTTP
    |-- BadInputError                    2      422   field, value, what would be right
    |   |-- NotFoundError                2      404
    |   `-- ConflictError                2      409
    |-- NotAuthorisedError               2      401   no token, or none that is good
    |   `-- ForbiddenError               2      403   a token without the scope
    |-- LimitedError                     3      429   too much at once: later, as it says
    |-- TransientError                   3      503   infrastructure: worth another try
    |   `-- DamagedError                 3      503   content that is not what it should be
    `-- InternalError                    3      500   a mistake of ours

Failures of builds and runs are values (``BuildFailure``, ``RunFailure``), not exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PerfbisectError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 3
    http_status = 500
    #: Last part of the problem's ``type`` URI.
    slug = "internal"

    def __init__(self, message: str, *, field: str = "", value: object = None) -> None:
        super().__init__(message)
        self.message = message
        #: Name of the option, key or parameter at fault; empty where there is none.
        self.field = field
        self.value = value


class BadInputError(PerfbisectError):
    """The request can't be right: the message names the field, the value and what would be."""

    exit_code = 2
    http_status = 422
    slug = "bad-input"


class NotFoundError(BadInputError):
    """The thing named does not exist."""

    http_status = 404
    slug = "not-found"


class ConflictError(BadInputError):
    """The request clashes with what is there."""

    http_status = 409
    slug = "conflict"


class NotAuthorisedError(PerfbisectError):
    """No token, or one that is wrong, revoked or expired."""

    exit_code = 2
    http_status = 401
    slug = "not-authorised"


class ForbiddenError(NotAuthorisedError):
    """Known, but not allowed: the token lacks the scope, or the form its token."""

    http_status = 403
    slug = "forbidden"


class LimitedError(PerfbisectError):
    """Too many requests, or too much under way; the same request is welcome later."""

    http_status = 429
    slug = "limited"

    def __init__(
        self, message: str, *, retry_after: int, field: str = "", value: object = None
    ) -> None:
        super().__init__(message, field=field, value=value)
        #: Seconds after which another try is worth it.
        self.retry_after = retry_after


class TransientError(PerfbisectError):
    """Infrastructure failed; the same request may succeed later."""

    http_status = 503
    slug = "unavailable"


class DamagedError(TransientError):
    """Stored content that is torn or was changed: it has to be made or fetched again."""


class InternalError(PerfbisectError):
    """A mistake of ours."""


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(value, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def why_unreadable(error: OSError | ValueError) -> str:
    """Return in words why a file can't be read, without the system's error number."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def shown(value: object) -> str:
    """Return a value as its writer wrote it: text in quotes, a backslash as one."""
    return f"'{value}'" if isinstance(value, str) and value.isprintable() else repr(value)
