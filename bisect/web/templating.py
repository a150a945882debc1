"""Templates, what they may call, and static files with names that change with their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from perfbisect import report
from perfbisect.store.database import now
from perfbisect.units import format_duration, format_size

STATIC_DIR = Path(__file__).resolve().parent / "static"


@cache
def asset(name: str) -> str:
    """Return the address of a static file; a changed file has another address."""
    content = (STATIC_DIR / name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


class CachedStaticFiles(StaticFiles):
    """Static files; those asked for by their content's address are kept for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with its caching rule."""
        response = await super().get_response(path, scope)
        versioned = scope.get("query_string", b"").startswith(b"v=")
        rule = "public, max-age=31536000, immutable" if versioned else "no-cache"
        response.headers.setdefault("cache-control", rule)
        return response


def ago(moment: datetime | None) -> str:
    """Return how long ago something was, for people."""
    if moment is None:
        return "–"
    seconds = round((now() - moment).total_seconds())
    return "just now" if seconds < 5 else f"{format_duration(seconds)} ago"


def roughly(seconds: float) -> str:
    """Return an estimate of a duration, with no more digits than it deserves."""
    unit = next((unit for unit in (3600, 600, 60, 10) if seconds >= 10 * unit), 1)
    return format_duration(max(round(seconds / unit), 1) * unit)


def between(start: datetime | None, end: datetime | None) -> str:
    """Return how long something took, or has taken until now."""
    if start is None:
        return "–"
    return format_duration(((end or now()) - start).total_seconds())


def clock(moment: datetime | None) -> str:
    """Return a moment to the second in UTC."""
    return "–" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _signed(text: str) -> str:
    """Return text with a minus sign of the same width as the plus sign."""
    return text.replace("-", "\N{MINUS SIGN}")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("perfbisect.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ago=ago,
        clock=clock,
        duration=lambda seconds: "–" if seconds is None else format_duration(seconds),
        roughly=roughly,
        value=report.format_value,
        change=lambda change: _signed(report.format_change(change)),
        interval=lambda ends: _signed(report.format_interval(ends)),
        probability=report.format_probability,
        short=report.short,
        size=format_size,
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        words=lambda text: str(text).replace("_", " "),
    )
    environment.globals.update(asset=asset, between=between, plural=report.plural)
    return environment


@cache
def templates() -> Environment:
    """Return the environment; templates are compiled once."""
    return _environment()


def rendered(name: str, context: Mapping[str, Any]) -> str:
    """Return the text of a template."""
    return templates().get_template(name).render(context)


def common(request: Request) -> dict[str, Any]:
    """Return what every page needs: where it is, and who asks."""
    # Where nobody was asked for a token (an unknown address), there is no caller.
    caller = getattr(request.state, "caller", None)
    return {"path": request.url.path, "caller": caller}


def render(
    request: Request,
    name: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """Return a page."""
    text = rendered(name, {**common(request), **context})
    return HTMLResponse(
        text, status_code=status, headers={"Cache-Control": "no-cache", **(headers or {})}
    )
