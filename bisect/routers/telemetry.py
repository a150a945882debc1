"""Requests counted and timed by route, for Prometheus."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perfbisect.routers.deps import PREFIX


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
                route = _route_of(scope)
                self._seconds.labels(scope["method"], route).observe(time.perf_counter() - started)
                self._requests.labels(scope["method"], route, message["status"]).inc()
            await send(message)

        await self.app(scope, receive, timed)
