"""Errors as pages."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request
from fastapi.responses import HTMLResponse

from perfbisect.web.templating import render

_MACHINES = ("/api/", "/healthz", "/readyz", "/metrics", "/static/")


def is_page(request: Request) -> bool:
    """Return whether a person asked: not the API, and HTML is welcome."""
    if request.url.path.startswith(_MACHINES):
        return False
    accepted = request.headers.get("accept", "*/*")
    return "text/html" in accepted or "*/*" in accepted


def error_page(request: Request, status: int, detail: str) -> HTMLResponse:
    """Return a page that says what went wrong and where to go on."""
    context = {"status": status, "title": HTTPStatus(status).phrase, "detail": detail}
    return render(request, "error.html", context, status=status)
