"""A bisection: its verdict, its evidence, live; its commits; its cancel button."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

import anyio
from anyio import to_thread
from fastapi import APIRouter, Form, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sse_starlette import ServerSentEvent

from perfbisect.routers.access import Asking
from perfbisect.routers.bisections import BisectionId, end_bisection
from perfbisect.routers.deps import NumberAfter, Opened
from perfbisect.routers.events import LastEventId, follow, resume_from, streamed
from perfbisect.security import CSRF_FIELD, new_csrf_token
from perfbisect.services import Services
from perfbisect.store import queries
from perfbisect.web.commit_text import commit_text, reproduce
from perfbisect.web.form_page import CsrfCookie, require_csrf, set_csrf_cookie
from perfbisect.web.templating import render
from perfbisect.web.views import bisection_view, commit_view

router = APIRouter(prefix="/bisections/{bisection_id}")

#: Seconds between two redraws of a page, however much happens.
REDRAW = 1.0


@router.get("", response_class=HTMLResponse)
def show_bisection(
    request: Request, services: Opened, bisection_id: BisectionId, csrf: CsrfCookie = None
) -> HTMLResponse:
    """Show a bisection."""
    with services.database.read() as session:
        view = bisection_view(session, bisection_id)
    token = csrf or new_csrf_token()
    context = {"view": view, "csrf_field": CSRF_FIELD, "csrf_token": token}
    response = render(request, "bisection.html", context)
    if view.cancellable:
        set_csrf_cookie(response, request, token)
    return response


@router.get("/changes")
async def follow_changes(
    services: Opened,
    bisection_id: BisectionId,
    after: NumberAfter = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Say when the page is out of date: ``changed``, and once ``finished``."""
    await to_thread.run_sync(_require, services, bisection_id)
    start = resume_from(last_event_id, after)
    stopping = anyio.Event()
    return streamed(_changes(services, bisection_id, start, stopping), stopping)


def _require(services: Services, bisection_id: str) -> None:
    with services.database.read() as session:
        queries.get_bisection(session, bisection_id)


async def _changes(
    services: Services, bisection_id: str, start: int, stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    """Yield one ``changed`` for whatever happened within a moment."""
    last = start
    async for events in follow(services, bisection_id, start, stopping, pause=REDRAW):
        last = events[-1].id
        yield ServerSentEvent(data=str(last), event="changed", id=str(last))
    if not stopping.is_set():
        yield ServerSentEvent(data=str(last), event="finished", id=str(last))


@router.post("/cancel")
def cancel(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    csrf: CsrfCookie = None,
    csrf_token: Annotated[str, Form(alias=CSRF_FIELD, max_length=200)] = "",
) -> RedirectResponse:
    """Ask for the end of a bisection, and show it again."""
    require_csrf(csrf, csrf_token)
    end_bisection(services, caller, bisection_id)
    return RedirectResponse(f"/bisections/{bisection_id}", status_code=HTTPStatus.SEE_OTHER)


@router.get("/commits/{position}", response_class=HTMLResponse)
def show_commit(
    request: Request,
    services: Opened,
    bisection_id: BisectionId,
    position: Annotated[int, Path(ge=0)],
) -> HTMLResponse:
    """Show a commit of the axis: its builds, runs and points."""
    with services.database.read() as session:
        view = commit_view(session, bisection_id, position)
    context = {
        "view": view,
        "text": commit_text(services, view.listing, view.candidate.sha),
        "command": reproduce(view.listing, view.candidate),
    }
    return render(request, "commit.html", context)
