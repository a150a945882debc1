"""Submitting experiments, their answers, cancelling."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import ConfigDict, Field

from perfbisect.core.states import BisectionState, ExperimentKind, Outcome
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.experiments import submit_experiment
from perfbisect.problems import documented
from perfbisect.request_models import ExperimentRequest, ExperimentSubmission
from perfbisect.routers import dossiers, models
from perfbisect.routers.access import Asking, act_once, check_quota, record
from perfbisect.routers.admission import check_request, check_text, submitted_once
from perfbisect.routers.bisections import IdempotencyKey
from perfbisect.routers.conditional import NOT_MODIFIED, IfNoneMatch, conditional_json
from perfbisect.routers.deps import (
    DEFAULT_LIMIT,
    PREFIX,
    After,
    Limit,
    Opened,
    Wanted,
    words,
)
from perfbisect.routers.documents import REPORT_RESPONSES, ReportFormat, report_response
from perfbisect.routers.finite import JSONResponse
from perfbisect.routers.subjects import completed
from perfbisect.services import Services, request_experiment_cancel
from perfbisect.store import experiment_queries, job_queries, queries
from perfbisect.store.access import Caller, own_key

router = APIRouter(prefix="/experiments", tags=["experiments"])

ExperimentId = Annotated[str, Path(max_length=64, description="Id of an experiment.")]


class Arm(models.Model):
    """One revision × environment, as measured against its reference."""

    model_config = ConfigDict(extra="allow")

    position: int
    name: str
    against: int | None = Field(description="Position of its reference; null: it is one.")
    revision: str
    env: dict[str, str] = Field(default_factory=dict)
    runs: int = 0
    difference: str | None = None
    change: float | None = None
    ci95: models.Interval | None = None
    problem: dict[str, Any] | None = None


class Experiment(models.Model):
    """An experiment and what it found; the same object while it runs and when it is finished."""

    model_config = ConfigDict(extra="allow")

    id: str
    kind: ExperimentKind
    bisection: str | None = Field(description="The bisection whose culprits it proves.")
    state: BisectionState
    outcome: Outcome | None
    arms: list[Arm]
    builds: int
    runs: int
    points: int
    sentence: str
    unit: str


_SUBMISSION = {
    "reverts on a release branch": {
        "summary": "Do these three reverts bring the value back?",
        "value": {
            "repository": "tensorflow",
            "recipe": "tf2-cuda10",
            "benchmark": "resnet50-train",
            "arms": [{"base": "r2.0", "revert": ["7107f90", "6208021", "ef9f0e8"]}],
        },
    },
    "the smallest set of reverts": {
        "summary": "Which regressions of a bisection must be reverted on its bad end?",
        "value": {"bisection": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "minimise_reverts": True},
    },
}


@router.post(
    "",
    operation_id="submitExperiment",
    status_code=HTTPStatus.ACCEPTED,
    response_model=Experiment,
    responses={
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **documented(400, 409, 413, 422, 503),
    },
)
def submit(
    services: Opened,
    caller: Asking,
    body: Annotated[ExperimentSubmission, Body(openapi_examples=_SUBMISSION)],
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Submit an experiment; it runs in the background."""
    check_text(body.model_dump(mode="json"))
    request = _completed(services, body)
    check_request(services, request)
    key = own_key(caller, idempotency_key)
    check_quota(services, caller, key)
    experiment_id = submitted_once(
        lambda: (
            submit_experiment(
                services,
                request,
                requested_by=caller.name,
                origin="api",
                idempotency_key=key,
                base_dir=services.settings.project_dir,
            ).id
        ),
        key,
    )
    record(services, caller, "experiment.submit", experiment_id, origin="api")
    headers = {"Location": f"{PREFIX}/experiments/{experiment_id}"}
    return JSONResponse(_answer(services, experiment_id), HTTPStatus.ACCEPTED, headers)


def _completed(services: Services, body: ExperimentSubmission) -> ExperimentRequest:
    try:
        return completed(services, body)
    except NotFoundError as error:
        # The bisection that the body names does not exist; experiments do.
        raise BadInputError(error.message, field="bisection", value=body.bisection) from error


@router.get(
    "", operation_id="listExperiments", response_model=models.Page[Experiment],
    responses=documented(422),
)  # fmt: skip
def list_experiments(
    services: Opened,
    wanted: Wanted,
    bisection: Annotated[str | None, words("Whose culprits they prove.")] = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> JSONResponse:
    """Return experiments, newest first."""
    wanted = replace(wanted, bisection=bisection)
    with services.database.read() as session:
        rows, more = job_queries.list_experiments(
            session, wanted, before=after or None, limit=limit
        )
        items = [experiment_queries.answer_of(session, row) for row in rows]
    return JSONResponse({"items": items, "next": items[-1]["id"] if more else None})


@router.get(
    "/{experiment_id}",
    operation_id="getExperiment",
    response_model=Experiment,
    responses={**NOT_MODIFIED, **documented(404, 422)},
)
def get_experiment(
    services: Opened, experiment_id: ExperimentId, if_none_match: IfNoneMatch = None
) -> Response:
    """Return an experiment's answer as far as it is known."""
    return conditional_json(_answer(services, experiment_id), if_none_match)


@router.post(
    "/{experiment_id}/cancel",
    operation_id="cancelExperiment",
    status_code=HTTPStatus.ACCEPTED,
    response_model=Experiment,
    responses=documented(404, 409, 422),
)
def cancel_experiment(
    services: Opened,
    caller: Asking,
    experiment_id: ExperimentId,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Ask for the end of an experiment; what it measured is kept."""
    end_experiment(services, caller, experiment_id, idempotency_key)
    return JSONResponse(_answer(services, experiment_id), HTTPStatus.ACCEPTED)


def end_experiment(
    services: Services, caller: Caller, experiment_id: str, key: str | None = None
) -> None:
    """Ask for the end of an experiment, and write down who did; raises as ``end_bisection``."""
    queries.known_id(experiment_id, "experiment", "experiment_id")
    with act_once(services, caller, key, f"cancel {experiment_id}") as first:
        if first:
            request_experiment_cancel(services, experiment_id)
            record(services, caller, "experiment.cancel", experiment_id)


@router.get(
    "/{experiment_id}/report",
    operation_id="getExperimentReport",
    response_model=Experiment,
    responses=REPORT_RESPONSES,
)
def get_report(
    services: Opened,
    experiment_id: ExperimentId,
    format: ReportFormat = "json",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return what was found as a document to keep or to send; as CSV, the arms."""
    with services.database.read() as session:
        dossier = dossiers.experiment_dossier(session, experiment_id)
    return report_response(dossier, format, f"experiment-{experiment_id}", if_none_match)


def _answer(services: Opened, experiment_id: str) -> dict[str, Any]:
    queries.known_id(experiment_id, "experiment", "experiment_id")
    with services.database.read() as session:
        row = experiment_queries.get_experiment(session, experiment_id)
        return experiment_queries.answer_of(session, row)
