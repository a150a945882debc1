"""Who may use which route: deny unless a token, a session or the settings allow it.

Every route needs ``read`` if it only looks and ``submit`` if it changes something, unless it says
otherwise by ``needs`` or ``public``. A route that is forgotten is therefore shut, not open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from perfbisect.core.access import Scope, anonymous_scopes
from perfbisect.errors import ForbiddenError, LimitedError, NotAuthorisedError
from perfbisect.routers.deps import PREFIX
from perfbisect.security import SAFE_METHODS
from perfbisect.services import Services
from perfbisect.sessions import SESSION_COOKIE, Sessions
from perfbisect.settings import Settings
from perfbisect.store import access
from perfbisect.store.access import ANONYMOUS, Caller
from perfbisect.store.access_tables import TokenRow

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_MARK = "perfbisect_scope"
#: Wrong tokens from one address.
_WRONG_TOKENS = "30/minute"

_bearer = HTTPBearer(
    scheme_name="token",
    auto_error=False,
    description="A token of `perfbisect token create`.",
)


def needs(scope: Scope) -> Callable[[Endpoint], Endpoint]:
    """Say what a route needs, where that is not ``read`` to look and ``submit`` to change."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _MARK, scope)
        return endpoint

    return mark


def public(endpoint: Endpoint) -> Endpoint:
    """Let everybody use a route: health checks, the login itself, and what checks for itself."""
    setattr(endpoint, _MARK, None)
    return endpoint


def scope_of(endpoint: object, method: str) -> Scope | None:
    """Return what a route needs; None: nothing."""
    default = Scope.READ if method in SAFE_METHODS else Scope.SUBMIT
    scope: Scope | None = getattr(endpoint, _MARK, default)
    return scope


@dataclass(frozen=True, slots=True)
class Gate:
    """What is needed to know who asks, and to count what they ask. One for each process."""

    settings: Settings
    limiter: MovingWindowRateLimiter

    @classmethod
    def of(cls, settings: Settings) -> Gate:
        """Return one that has counted nothing yet."""
        return cls(settings, MovingWindowRateLimiter(MemoryStorage()))

    def stranger(self, address: str, request_id: str) -> Caller:
        """Return somebody without a token."""
        here = self.settings.only_this_machine
        scopes = anonymous_scopes(self.settings.anonymous, only_this_machine=here)
        return Caller(ANONYMOUS, scopes, address=address, request_id=request_id, trusted=here)

    def count(self, caller: Caller, method: str) -> None:
        """Count a request.

        Raises:
            LimitedError: there were too many; says when the next one is welcome.
        """
        if caller.trusted:
            return
        self._hit(caller.rate_limit or self.settings.rate_limit, "request", caller.key)
        if method not in SAFE_METHODS:
            self._hit(self.settings.submit_rate_limit, "change", caller.key)

    def count_wrong(self, address: str) -> None:
        """Count a wrong token, before it is said to be one; raises as ``count``."""
        self._hit(_WRONG_TOKENS, "wrong token", address)

    def _hit(self, limits: str, what: str, key: str) -> None:
        for limit in parse_many(limits):
            if not self.limiter.hit(limit, what, key):
                raise self._refusal(limit, what, key)

    def _refusal(self, limit: RateLimitItem, what: str, key: str) -> LimitedError:
        reset = self.limiter.get_window_stats(limit, what, key).reset_time
        seconds = max(math.ceil(reset - time.time()), 1)
        return LimitedError(
            f"more than {limit.amount} {what}s within {limit.multiples} {limit.GRANULARITY.name}"
            f"{'s' if limit.multiples > 1 else ''}; the next one is welcome in {seconds} s",
            retry_after=seconds,
        )


async def admit_caller(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
) -> None:
    """Find out who asks, and refuse what they may not do. Runs before every route."""
    scope = scope_of(request.scope.get("endpoint"), request.method)
    if scope is None and bearer is None and SESSION_COOKIE not in request.cookies:
        request.state.caller = _stranger(request)
        return
    try:
        caller = await _identified(request, bearer)
    except (LimitedError, NotAuthorisedError):
        if scope is not None:
            raise
        caller = _stranger(request)
    request.state.caller = caller
    if scope is None:
        return
    gate: Gate = request.app.state.gate
    gate.count(caller, request.method)
    if caller.may(scope):
        return
    if caller.token_id is None:
        raise NotAuthorisedError(
            f"this needs a token with the scope '{scope}': send it as 'Authorization: Bearer …', "
            "or log in at /login",
            field="Authorization",
        )
    raise ForbiddenError(
        f"the token '{caller.name}' has not the scope '{scope}'", field="Authorization"
    )


def _stranger(request: Request) -> Caller:
    gate: Gate = request.app.state.gate
    return gate.stranger(_address(request), request.state.request_id)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _identified(request: Request, bearer: HTTPAuthorizationCredentials | None) -> Caller:
    services: Services = request.app.state.services
    if bearer is not None:
        return await to_thread.run_sync(_by_secret, request, services, bearer.credentials)
    # A browser sends the cookie along whoever made it ask; forms have a token against that, the
    # API has not.
    if request.method in SAFE_METHODS or not request.url.path.startswith(PREFIX):
        sessions: Sessions = request.app.state.sessions
        token_id = sessions.token_of(request.cookies.get(SESSION_COOKIE))
        if token_id is not None:
            row = await to_thread.run_sync(_by_id, services, token_id)
            if row is not None:
                return _caller(request, row)
    return _stranger(request)


def _by_secret(request: Request, services: Services, secret: str) -> Caller:
    return _caller(request, check_secret(request, services, secret))


def check_secret(request: Request, services: Services, secret: str) -> TokenRow:
    """Return the token of a secret.

    Raises:
        NotAuthorisedError: there is none, or it is good no more.
        LimitedError: too many wrong ones came from this address.
    """
    with services.database.read() as session:
        row = access.find_token(session, secret)
    if row is not None and access.is_good(row):
        access.note_use(services.database, row)
        return row
    gate: Gate = request.app.state.gate
    gate.count_wrong(_address(request))
    why = "is not known here" if row is None else f"is {access.state_of(row)}"
    raise NotAuthorisedError(f"the token {why}", field="Authorization")


def _by_id(services: Services, token_id: str) -> TokenRow | None:
    with services.database.read() as session:
        row = session.get(TokenRow, token_id)
    if row is None or not access.is_good(row):
        return None
    access.note_use(services.database, row)
    return row


def _caller(request: Request, row: TokenRow) -> Caller:
    return Caller(
        row.name,
        access.scopes_of(row),
        token_id=row.id,
        address=_address(request),
        request_id=request.state.request_id,
        rate_limit=row.rate_limit,
        max_unfinished=row.max_unfinished,
    )


def caller_of(request: Request) -> Caller:
    """Return who asks."""
    caller: Caller = request.state.caller
    return caller


Asking = Annotated[Caller, Depends(caller_of)]


def check_quota(services: Services, caller: Caller, idempotency_key: str | None) -> None:
    """Refuse a submission of somebody who has too much under way already.

    Args:
        idempotency_key: as it is stored; what was submitted with it before takes no room.

    Raises:
        LimitedError: says how much it is.
    """
    if caller.trusted:
        return
    most = caller.max_unfinished or services.settings.max_unfinished
    with services.database.read() as session:
        if idempotency_key is not None and access.is_known_key(session, idempotency_key):
            return
        unfinished = access.count_unfinished(session, caller.name)
    if unfinished >= most:
        raise LimitedError(
            f"'{caller.name}' has {unfinished} unfinished bisections and experiments, and may have "
            f"{most}: wait for one to finish, or cancel one",
            retry_after=60,
        )


def record(services: Services, caller: Caller, action: str, subject: str, **detail: Any) -> None:
    """Write down who did what."""
    with services.database.write() as session:
        access.record(session, caller, action, subject, detail)


@contextmanager
def act_once(services: Services, caller: Caller, key: str | None, asked: str) -> Iterator[bool]:
    """Remember an idempotency key; yield whether what was asked is still to be done.

    Where it fails, the key is forgotten: sent again, it is tried again.

    Raises:
        ConflictError: the key was used for something else.
    """
    if key is None:
        yield True
        return
    with services.database.write() as session:
        first = not access.done_before(session, caller, key, asked)
    try:
        yield first
    except BaseException:
        if first:
            with services.database.write() as session:
                access.forget_key(session, caller, key)
        raise
