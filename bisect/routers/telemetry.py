"""Requests counted and timed by route, for Prometheus."""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perfbisect.routers.deps import PREFIX

_log = logging.getLogger("perfbisect.access")
#: Asked for every few seconds by machines.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


def _route_of(scope: Scope) -> str:
    """Return the route, not the path: paths hold ids, and each would become a series of its own."""
    route: str = getattr(scope.get("route"), "path", "none")
    # Routes of an included router know only their own part.
    if scope["path"].startswith(PREFIX) and not route.startswith(PREFIX):
        return PREFIX + route
    return route


class Telemetry:
    """ASGI middleware: counts requests and times them until their headers are sent."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self.app = app
        self._requests = Counter(
            "perfbisect_http_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "perfbisect_http_request_seconds",
            "Seconds until the headers of an answer were sent.",
            ["method", "route"],
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - started
                route = _route_of(scope)
                self._seconds.labels(scope["method"], route).observe(seconds)
                self._requests.labels(scope["method"], route, message["status"]).inc()
                _tell(scope, route, message["status"], seconds)
            await send(message)

        await self.app(scope, receive, timed)


def _tell(scope: Scope, route: str, status: int, seconds: float) -> None:
    """Log a request: without its query, which may hold what is searched for."""
    if not _log.isEnabledFor(logging.INFO) or scope["path"] in _QUIET:
        return
    state = scope.get("state") or {}
    caller = state.get("caller")
    _log.info(
        "%s %s %s",
        scope["method"],
        scope["path"],
        status,
        extra={
            "request_id": state.get("request_id"),
            "method": scope["method"],
            "path": scope["path"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 6),
            "caller": caller.name if caller else None,
            "address": (scope.get("client") or ("",))[0],
        },
    )
