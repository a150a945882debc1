"""Logging in by token, and for admins: tokens, and who did what."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from perfbisect.core.access import Scope
from perfbisect.errors import LimitedError, NotAuthorisedError
from perfbisect.routers.access import Asking, check_secret, needs, public, record
from perfbisect.routers.deps import Opened
from perfbisect.routers.tokens import token_view
from perfbisect.security import CSRF_FIELD, new_csrf_token
from perfbisect.services import Services
from perfbisect.sessions import SESSION_COOKIE, Sessions
from perfbisect.store import access
from perfbisect.store.access import Caller
from perfbisect.store.access_tables import AuditRow, TokenRow
from perfbisect.web.form_page import CsrfCookie, CsrfField, require_csrf, set_csrf_cookie
from perfbisect.web.list_pages import Text, next_link
from perfbisect.web.templating import render

router = APIRouter()

ROWS = 100

#: Where to go after the login.
Next = Annotated[str, Query(alias="next", max_length=2000)]
NextField = Annotated[str, Form(alias="next", max_length=2000)]


def to_login(request: Request) -> Response:
    """Send somebody who must log in to the page where they can, and from there back."""
    asked = request.url.path if request.method == "GET" else "/"
    if request.method == "GET" and request.url.query:
        asked += "?" + request.url.query
    return RedirectResponse(f"/login?{urlencode({'next': asked})}", HTTPStatus.SEE_OTHER)


def _safe(target: str) -> str:
    """Return an address on this service: a link to the login must not lead anywhere else."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return "/"
    if parts.scheme or parts.netloc or not target.startswith("/") or "\\" in target:
        return "/"
    # Browsers take two slashes for another host's address.
    return target if not target.startswith("//") else "/"


@router.get("/login", response_class=HTMLResponse)
@public
def show_login(request: Request, target: Next = "/", csrf: CsrfCookie = None) -> HTMLResponse:
    """Show where to put the token."""
    return _login(request, _safe(target), csrf)


def _login(
    request: Request, target: str, csrf: str | None, problem: str = "", status: int = 200
) -> HTMLResponse:
    token = csrf or new_csrf_token()
    context = {
        "target": target,
        "problem": problem,
        "csrf_field": CSRF_FIELD,
        "csrf_token": token,
    }
    response = render(request, "login.html", context, status=status)
    set_csrf_cookie(response, request, token)
    return response


@router.post("/login")
@public
def log_in(
    request: Request,
    services: Opened,
    stranger: Asking,
    token: Annotated[str, Form(max_length=200)] = "",
    target: NextField = "/",
    csrf: CsrfCookie = None,
    csrf_token: CsrfField = "",
) -> Response:
    """Give whoever has a good token the cookie of a session."""
    require_csrf(csrf, csrf_token)
    try:
        row = check_secret(request, services, token.strip())
    except (NotAuthorisedError, LimitedError) as error:
        if isinstance(error, NotAuthorisedError):
            record(services, stranger, "login.failed", "")
        return _login(request, _safe(target), csrf, error.message, error.http_status)
    sessions: Sessions = request.app.state.sessions
    response = RedirectResponse(_safe(target), HTTPStatus.SEE_OTHER)
    response.set_cookie(
        SESSION_COOKIE,
        sessions.cookie_of(row.id),
        max_age=sessions.seconds,
        httponly=True,
        # Links from elsewhere lead to the page, not to the login; forms have a token of their own.
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    record(services, _owner(row, stranger), "login", row.id)
    return response


def _owner(row: TokenRow, stranger: Caller) -> Caller:
    return Caller(
        row.name,
        frozenset(),
        token_id=row.id,
        address=stranger.address,
        request_id=stranger.request_id,
    )


@router.post("/logout")
@public
def log_out() -> RedirectResponse:
    """Forget the session; other sites can't ask for that (``security.Guard``)."""
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(SESSION_COOKIE)
    return response


@router.get("/tokens", response_class=HTMLResponse)
@needs(Scope.ADMIN)
def show_tokens(request: Request, services: Opened, csrf: CsrfCookie = None) -> HTMLResponse:
    """Show all tokens."""
    with services.database.read() as session:
        items = [token_view(row) for row in access.list_tokens(session)]
    token = csrf or new_csrf_token()
    context = {"items": items, "csrf_field": CSRF_FIELD, "csrf_token": token}
    response = render(request, "tokens.html", context)
    set_csrf_cookie(response, request, token)
    return response


@router.post("/tokens/{token_id}/revoke")
@needs(Scope.ADMIN)
def revoke(
    services: Opened,
    caller: Asking,
    token_id: str,
    csrf: CsrfCookie = None,
    csrf_token: CsrfField = "",
) -> RedirectResponse:
    """Revoke a token, and show them again."""
    require_csrf(csrf, csrf_token)
    access.revoke_token(services.database, token_id, caller)
    return RedirectResponse("/tokens", HTTPStatus.SEE_OTHER)


@router.get("/audit", response_class=HTMLResponse)
@needs(Scope.ADMIN)
def show_audit(
    request: Request,
    services: Opened,
    actor: Text = "",
    action: Text = "",
    after: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
) -> HTMLResponse:
    """Show who did what, newest first."""
    items, more = _entries(services, access.AuditFilter(actor, action), after)
    filters = {"actor": actor, "action": action}
    last = str(items[-1].id) if more else None
    context = {"items": items, "filters": filters, "next": next_link("/audit", filters, last)}
    return render(request, "audit.html", context)


def _entries(
    services: Services, wanted: access.AuditFilter, before: int | None
) -> tuple[list[AuditRow], bool]:
    with services.database.read() as session:
        return access.list_audit(session, wanted, before=before, limit=ROWS)
