"""Submitting bisections, their verdicts, cancelling, reports."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Response
from fastapi.responses import JSONResponse

from perfbisect.core.states import BisectionState, Outcome
from perfbisect.problems import documented
from perfbisect.request_models import BisectionRequest
from perfbisect.routers import dossiers, models, present
from perfbisect.routers.access import Asking, act_once, record
from perfbisect.routers.admission import admit
from perfbisect.routers.deps import DEFAULT_LIMIT, PREFIX, After, Limit, Opened, Words
from perfbisect.routers.documents import REPORT_RESPONSES, ReportFormat, report_response
from perfbisect.services import Services, request_cancel
from perfbisect.store import queries
from perfbisect.store.access import Caller

router = APIRouter(prefix="/bisections", tags=["bisections"])

BisectionId = Annotated[str, Path(max_length=64, description="Id of a bisection.")]

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key with the same request gives the same answer, and acts once.",
    ),
]

_SUBMISSION = {
    "a drop between two commits": {
        "summary": "Every commit that changed ResNet-50's throughput",
        "value": {
            "repository": "https://github.com/tensorflow/tensorflow",
            "good": "3e0ad8a004",
            "bad": "3205135",
            "recipe": "tf2-cuda10",
            "benchmark": "resnet50-train",
            "threshold": "70%",
        },
    }
}


@router.post(
    "",
    operation_id="submitBisection",
    status_code=HTTPStatus.ACCEPTED,
    response_model=models.Verdict,
    responses={
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **documented(400, 409, 413, 422, 503),
    },
)
def submit_bisection(
    services: Opened,
    caller: Asking,
    body: Annotated[BisectionRequest, Body(openapi_examples=_SUBMISSION)],
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Submit a bisection; it runs in the background."""
    bisection_id = admit(
        services, body, caller=caller, origin="api", idempotency_key=idempotency_key
    )
    return _accepted(services, bisection_id)


def _accepted(services: Services, bisection_id: str) -> JSONResponse:
    with services.database.read() as session:
        verdict = present.verdict_of(queries.get_bisection(session, bisection_id))
    location = f"{PREFIX}/bisections/{bisection_id}"
    return JSONResponse(verdict, status_code=HTTPStatus.ACCEPTED, headers={"Location": location})


@router.get(
    "", operation_id="listBisections", response_model=models.Page[models.Summary],
    responses=documented(422),
)  # fmt: skip
def list_bisections(
    services: Opened,
    state: BisectionState | None = None,
    outcome: Outcome | None = None,
    repository: Words = None,
    q: Words = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[models.Summary]:
    """Return bisections, newest first."""
    wanted = queries.BisectionFilter(state=state, outcome=outcome, repository=repository, q=q)
    with services.database.read() as session:
        listings, more = queries.list_bisections(session, wanted, before=after or None, limit=limit)
    items = [present.summary_of(listing) for listing in listings]
    return models.Page(items=items, next=items[-1].id if more else None)


@router.get(
    "/{bisection_id}",
    operation_id="getBisection",
    response_model=models.Verdict,
    responses={304: {"description": "Unchanged."}, **documented(404, 422)},
)
def get_bisection(
    services: Opened,
    bisection_id: BisectionId,
    if_none_match: Annotated[str | None, Header(max_length=1000)] = None,
) -> Response:
    """Return the verdict as far as it is known."""
    with services.database.read() as session:
        verdict = present.verdict_of(queries.get_bisection(session, bisection_id))
    content = json.dumps(verdict, ensure_ascii=False, separators=(",", ":")).encode()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if if_none_match is not None and etag in _etags(if_none_match):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


def _etags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


@router.post(
    "/{bisection_id}/cancel",
    operation_id="cancelBisection",
    status_code=HTTPStatus.ACCEPTED,
    response_model=models.Verdict,
    responses=documented(404, 409, 422),
)
def cancel_bisection(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Ask for the end of a bisection; what it measured is kept."""
    end_bisection(services, caller, bisection_id, idempotency_key)
    with services.database.read() as session:
        verdict = present.verdict_of(queries.get_bisection(session, bisection_id))
    return JSONResponse(verdict, status_code=HTTPStatus.ACCEPTED)


def end_bisection(
    services: Services, caller: Caller, bisection_id: str, key: str | None = None
) -> None:
    """Ask for the end of a bisection, and write down who did.

    Raises:
        NotFoundError: no such bisection.
        ConflictError: it is finished; or the key was used for something else.
    """
    queries.known_id(bisection_id, "bisection", "bisection_id")
    if act_once(services, caller, key, f"cancel {bisection_id}"):
        request_cancel(services, bisection_id)
        record(services, caller, "bisection.cancel", bisection_id)


@router.get(
    "/{bisection_id}/report",
    operation_id="getReport",
    response_model=models.Verdict,
    responses=REPORT_RESPONSES,
)
def get_report(
    services: Opened, bisection_id: BisectionId, format: ReportFormat = "json"
) -> Response:
    """Return what was found as a document to keep or to send.

    As JSON, the verdict with all that the other formats tell in words; as CSV, the measured
    revisions.
    """
    with services.database.read() as session:
        dossier = dossiers.bisection_dossier(session, bisection_id)
    return report_response(dossier, format, f"bisection-{bisection_id}")
