"""Compression of what is large and holds no secrets."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Receive, Scope, Send

#: Pages carry a form's token beside text from the address; compressed together, their length would
#: tell the token to whoever can read lengths.
_COMPRESSED = ("/api/", "/static/", "/metrics")


class Compression(GZipMiddleware):
    """Compresses answers of the API and static files; streams of events stay as they are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and scope["path"].startswith(_COMPRESSED):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)
