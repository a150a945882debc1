"""Between a browser and the service: hosts, origins, body sizes, headers, form tokens."""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from perfbisect.addresses import is_loopback
from perfbisect.problems import problem_response

_log = logging.getLogger(__name__)

#: Everything a page needs comes from this service; nothing inline, nothing framed.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
#: Methods that change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

#: Cookie and form field that must carry the same value.
CSRF_COOKIE = "perfbisect_csrf"
CSRF_FIELD = "csrf_token"


def allowed_hosts(bind: str, configured: Sequence[str]) -> frozenset[str] | None:
    """Return the host names the service answers to, or None for any.

    A service on loopback answers only to loopback names: otherwise any web site could reach it
    under a name of its own that resolves to 127.0.0.1.
    """
    if configured:
        return frozenset(name.lower() for name in configured)
    if is_loopback(bind):
        return frozenset({*_LOOPBACK, bind.lower()})
    return None


def new_csrf_token() -> str:
    """Return a fresh token for a form and its cookie."""
    return secrets.token_urlsafe(24)


def csrf_matches(cookie: str | None, field: str | None) -> bool:
    """Return whether a form came from a page of this service."""
    if not cookie or not field:
        return False
    return hmac.compare_digest(cookie.encode(), field.encode())


class BodyTooLarge(Exception):
    """Raised inside ``receive`` once a body outgrows the limit."""


class Guard:
    """ASGI middleware: refuses foreign hosts and origins and large bodies; adds headers and ids."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: frozenset[str] | None,
        max_body_bytes: int,
        on_error: Callable[[Request], Response],
    ) -> None:
        """Make the middleware.

        Args:
            hosts: names the service answers to, in lower case; None: any.
            max_body_bytes: largest body of a request.
            on_error: makes the answer where the application raised something unforeseen.
        """
        self.app = app
        self._on_error = on_error
        self._hosts = hosts
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        request_id = asked if _REQUEST_ID.fullmatch(asked) else str(ULID())
        scope.setdefault("state", {})["request_id"] = request_id
        send = _with_headers(send, request_id)
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            status, detail = refusal
            await problem_response(status, detail)(scope, receive, send)
            return
        await self._limited(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> tuple[HTTPStatus, str] | None:
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this service does not answer to the host name {host!r}; "
                "PERFBISECT_ALLOWED_HOSTS lists the names it answers to",
            )
        if method not in SAFE_METHODS and not _same_origin(headers, host):
            return HTTPStatus.FORBIDDEN, "requests from pages of other sites are refused"
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self._max_body_bytes} bytes"

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, counting the body as it comes: chunked bodies declare no length."""
        received = 0
        started = False
        too_large = False

        async def counted() -> Message:
            nonlocal received, too_large
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                too_large = True
                raise BodyTooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if too_large and not started:
                # Whatever the application makes of the broken body, the answer is given below.
                return
            started = True
            await send(message)

        try:
            await self.app(scope, counted, watched)
        except BodyTooLarge:
            if started:
                raise
        except Exception:
            # Answered here rather than outside, where these headers would be missing.
            _log.exception("request %s: unforeseen error", scope["state"]["request_id"])
            if started:
                raise
            await self._on_error(Request(scope))(scope, receive, send)
        if too_large and not started:
            problem = problem_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large())
            await problem(scope, receive, send)


def host_name(host: str) -> str:
    """Return a Host header's name in lower case, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _same_origin(headers: Headers, host: str) -> bool:
    """Return whether a request comes from this service's pages, or from no page at all."""
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        # Brackets that hold no address.
        return False


def _with_headers(send: Send, request_id: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers["x-request-id"] = request_id
        await send(message)

    return sending
