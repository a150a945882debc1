"""The form that submits a bisection, and what to type or send instead."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Cookie, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from perfbisect.config import list_known
from perfbisect.core.states import Find
from perfbisect.errors import BadInputError, ForbiddenError, TransientError
from perfbisect.estimates import Estimated, estimate_request
from perfbisect.request_models import BisectionRequest
from perfbisect.routers.access import caller_of
from perfbisect.routers.admission import admit, check_request
from perfbisect.routers.deps import Opened
from perfbisect.security import CSRF_COOKIE, CSRF_FIELD, csrf_matches, new_csrf_token
from perfbisect.services import Services
from perfbisect.store import catalogue
from perfbisect.web.form_values import (
    SWITCHES,
    body_of,
    command_line,
    curl_line,
    filled,
    needed,
)
from perfbisect.web.range_preview import preview_range
from perfbisect.web.templating import render

router = APIRouter()

CsrfCookie = Annotated[str | None, Cookie(alias=CSRF_COOKIE, max_length=200)]
CsrfField = Annotated[str, Form(alias=CSRF_FIELD, max_length=200)]


@router.get("/new", response_class=HTMLResponse)
def new_bisection(request: Request, services: Opened, csrf: CsrfCookie = None) -> HTMLResponse:
    """Show the form; values may come in the address, so that a form can be linked to."""
    given = {key: value[:2000] for key, value in request.query_params.items()}
    return _form(request, services, filled(given), csrf)


@router.get("/new/equivalent", response_class=HTMLResponse)
def equivalent(request: Request) -> HTMLResponse:
    """Show what to type or send instead, for the form as it is now."""
    values = filled({key: value[:2000] for key, value in request.query_params.items()})
    return render(request, "_equivalent.html", _equivalent(request, values))


@router.get("/new/range", response_class=HTMLResponse)
def show_range(request: Request, services: Opened) -> HTMLResponse:
    """Show what the revisions are, and how many commits lie between them."""
    values = filled({key: value[:2000] for key, value in request.query_params.items()})
    return render(request, "_range.html", {"range": preview_range(services, values)})


def _equivalent(request: Request, values: dict[str, str]) -> dict[str, str]:
    body = {**dict.fromkeys(needed(values), "…"), **body_of(values)}
    return {"command": command_line(body), "curl": curl_line(body, str(request.base_url))}


def _form(
    request: Request,
    services: Services,
    values: dict[str, str],
    csrf: str | None,
    problem: BadInputError | None = None,
    status: int = 200,
    estimate: Estimated | None = None,
) -> HTMLResponse:
    token = csrf or new_csrf_token()
    with services.database.read() as session:
        names = [row.name for row in catalogue.list_repositories(session)]
    known = list_known(services.settings.project_dir)
    context = {
        "values": values,
        "csrf_field": CSRF_FIELD,
        "csrf_token": token,
        "repositories": [*names, *services.settings.allowed_repositories],
        "packages": list(services.settings.allowed_packages),
        "recipes": [(known_.recipe.name, known_.description) for known_ in known.recipes],
        "benchmarks": [(known_.benchmark.name, known_.description) for known_ in known.benchmarks],
        "finds": list(Find),
        "problem": problem,
        "estimate": estimate,
        "range": preview_range(services, values),
        "switches": SWITCHES,
        **_equivalent(request, values),
    }
    response = render(request, "new.html", context, status=status)
    set_csrf_cookie(response, request, token)
    return response


def set_csrf_cookie(response: Response, request: Request, token: str) -> None:
    """Give the browser the token that its forms must carry."""
    response.set_cookie(
        CSRF_COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


def require_csrf(cookie: str | None, field: str) -> None:
    """Refuse a form that does not come from a page of this service.

    Raises:
        ForbiddenError: the form's token is not the cookie's.
    """
    if not csrf_matches(cookie, field):
        raise ForbiddenError(
            "the form is too old or comes from elsewhere: open it again and send it from there",
            field=CSRF_FIELD,
        )


@router.post("/new")
async def submit_form(request: Request, services: Opened, csrf: CsrfCookie = None) -> Response:
    """Submit the form; where something is wrong, show it again and say what."""
    async with request.form(max_fields=50, max_files=0) as form:
        given = {key: value for key, value in form.items() if isinstance(value, str)}
    return await to_thread.run_sync(_submitted, request, services, given, csrf)


def _submitted(
    request: Request, services: Services, given: dict[str, str], csrf: str | None
) -> Response:
    require_csrf(csrf, given.get(CSRF_FIELD, ""))
    values = filled(given)
    try:
        parsed = _parsed(values)
        if "estimate" in given:
            check_request(services, parsed)
            found = estimate_request(services, parsed, base_dir=services.settings.project_dir)
            return _form(request, services, values, csrf, estimate=found)
        bisection_id = admit(
            services,
            parsed,
            caller=caller_of(request),
            origin="form",
            idempotency_key=None,
        )
    except BadInputError as error:
        return _form(request, services, values, csrf, error, status=422)
    except TransientError as error:
        problem = BadInputError(error.message, field="repository")
        return _form(request, services, values, csrf, problem, status=503)
    return RedirectResponse(f"/bisections/{bisection_id}", status_code=303)


def _parsed(values: dict[str, str]) -> BisectionRequest:
    try:
        return BisectionRequest.model_validate(body_of(values))
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        message = "is needed" if first["type"] == "missing" else str(first["msg"])
        raise BadInputError(f"{field}: {message}", field=field) from error
