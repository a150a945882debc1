"""A bisection: its verdict, its evidence, live; its commits; its cancel button."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from perfbisect.core.access import Scope
from perfbisect.routers.access import Asking
from perfbisect.routers.bisections import BisectionId, end_bisection
from perfbisect.routers.conditional import IfNoneMatch, conditional
from perfbisect.routers.deps import NumberAfter, Opened
from perfbisect.routers.events import LastEventId, changes_of, resume_from
from perfbisect.routers.kept import Texts
from perfbisect.security import CSRF_FIELD, new_csrf_token
from perfbisect.store import queries
from perfbisect.store.jobs import bisection
from perfbisect.web.bisection_article import article_of
from perfbisect.web.commit_text import commit_text, reproduce
from perfbisect.web.commit_view import commit_view
from perfbisect.web.form_page import CsrfCookie, require_csrf, set_csrf_cookie
from perfbisect.web.templating import common, render, rendered

router = APIRouter(prefix="/bisections/{bisection_id}")


@router.get("", response_class=HTMLResponse)
def show_bisection(
    request: Request,
    services: Opened,
    texts: Texts,
    caller: Asking,
    bisection_id: BisectionId,
    csrf: CsrfCookie = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show a bisection."""
    article = article_of(services, texts, bisection_id, may_submit=caller.may(Scope.SUBMIT))
    token = csrf or new_csrf_token()
    context = {
        "title": article.title,
        "live_after": article.live_after,
        "article": article.for_reader(token),
    }
    page = rendered("bisection.html", {**common(request), **context})
    response = conditional(
        page.encode(),
        if_none_match,
        media_type="text/html; charset=utf-8",
        # What it holds is this reader's: no cache in between may give it to another.
        cache_control="private, no-cache",
    )
    set_csrf_cookie(response, request, token)
    return response


@router.get("/changes")
async def follow_changes(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    after: NumberAfter = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Say when the page is out of date: ``changed``, and once ``finished``."""
    job = bisection(queries.known_id(bisection_id, "bisection", "bisection_id"))
    return await changes_of(services, caller, job, resume_from(last_event_id, after))


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
