"""Submitting bisections, their verdicts, cancelling, reports."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfbisect.errors import BadInputError
from perfbisect.problems import documented
from perfbisect.request_models import BisectionRequest
from perfbisect.routers import dossiers, models, present
from perfbisect.routers.access import Asking, act_once, record
from perfbisect.routers.admission import admit
from perfbisect.routers.conditional import NOT_MODIFIED, IfNoneMatch, conditional_json
from perfbisect.routers.deps import DEFAULT_LIMIT, PREFIX, After, Limit, Opened, Wanted
from perfbisect.routers.documents import REPORT_RESPONSES, ReportFormat, report_response
from perfbisect.routers.finite import JSONResponse
from perfbisect.services import Services, request_cancel
from perfbisect.store import job_queries, queries
from perfbisect.store.access import Caller

router = APIRouter(prefix="/bisections", tags=["bisections"])

BisectionId = Annotated[str, Path(max_length=64, description="Id of a bisection.")]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
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
    services: Opened, wanted: Wanted, after: After = None, limit: Limit = DEFAULT_LIMIT
) -> models.Page[models.Summary]:
    """Return bisections, newest first."""
    with services.database.read() as session:
        listings, more = job_queries.list_bisections(
            session, wanted, before=after or None, limit=limit
        )
    items = [present.summary_of(listing) for listing in listings]
    return models.Page(items=items, next=items[-1].id if more else None)


@router.get(
    "/{bisection_id}",
    operation_id="getBisection",
    response_model=models.Verdict,
    responses={**NOT_MODIFIED, **documented(404, 422)},
)
def get_bisection(
    services: Opened,
    bisection_id: BisectionId,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the verdict as far as it is known."""
    with services.database.read() as session:
        verdict = present.verdict_of(queries.get_bisection(session, bisection_id))
    return conditional_json(verdict, if_none_match)


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


class Rerun(BaseModel):
    """What is to be different the next time."""

    model_config = ConfigDict(extra="forbid")

    changes: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields of the request with other values; null: as if it had not been given.",
        examples=[{"min_effect": "1%", "max_runs": 200}],
    )


@router.post(
    "/{bisection_id}/rerun",
    operation_id="rerunBisection",
    status_code=HTTPStatus.ACCEPTED,
    response_model=models.Verdict,
    responses={
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **documented(400, 404, 409, 413, 422, 503),
    },
)
def rerun_bisection(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    body: Rerun,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Submit the same request once more, with changes; wheels and points that are there count."""
    with services.database.read() as session:
        asked = queries.get_bisection(session, bisection_id).row.request
    request = changed_request(asked, body.changes)
    new = admit(services, request, caller=caller, origin="api", idempotency_key=idempotency_key)
    return _accepted(services, new)


def changed_request(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> BisectionRequest:
    """Return a request with changes.

    Raises:
        BadInputError: with them it can't be right.
    """
    fields = {name: value for name, value in {**asked, **changes}.items() if value is not None}
    try:
        return BisectionRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInputError(f"{field}: {first['msg']}", field=f"changes.{field}") from error


def end_bisection(
    services: Services, caller: Caller, bisection_id: str, key: str | None = None
) -> None:
    """Ask for the end of a bisection, and write down who did.

    Raises:
        NotFoundError: no such bisection.
        ConflictError: it is finished; or the key was used for something else.
    """
    queries.known_id(bisection_id, "bisection", "bisection_id")
    with act_once(services, caller, key, f"cancel {bisection_id}") as first:
        if first:
            request_cancel(services, bisection_id)
            record(services, caller, "bisection.cancel", bisection_id)


@router.get(
    "/{bisection_id}/report",
    operation_id="getReport",
    response_model=models.Verdict,
    responses=REPORT_RESPONSES,
)
def get_report(
    services: Opened,
    bisection_id: BisectionId,
    format: ReportFormat = "json",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return what was found as a document to keep or to send.

    As JSON, the verdict with all that the other formats tell in words; as CSV, the measured
    revisions.
    """
    with services.database.read() as session:
        dossier = dossiers.bisection_dossier(session, bisection_id)
    return report_response(dossier, format, f"bisection-{bisection_id}", if_none_match)
