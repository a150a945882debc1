"""What a bisection will cost, before it is submitted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.estimates import estimate_request
from perfbisect.problems import documented
from perfbisect.request_models import BisectionRequest
from perfbisect.routers import models
from perfbisect.routers.access import Asking, act_once
from perfbisect.routers.admission import check_request
from perfbisect.routers.bisections import IdempotencyKey
from perfbisect.routers.deps import Opened
from perfbisect.routers.finite import JSONResponse
from perfbisect.services import Services

router = APIRouter(prefix="/estimates", tags=["estimates"])


class EstimateRequest(models.Model):
    """A bisection that may be submitted, and what is assumed of it."""

    model_config = ConfigDict(extra="forbid")

    bisection: BisectionRequest
    steps: Annotated[
        tuple[Annotated[str, Field(max_length=20)], ...] | None,
        Field(
            max_length=10,
            description="Changes that are assumed to be in the range; nothing: one of 10%, worse, "
            "or better where a fix is looked for.",
        ),
    ] = None
    noise: str | None = Field(
        default=None, max_length=20, description="Of one run; nothing: as measured before, or 2%."
    )
    trials: int = Field(default=40, ge=1, le=200)


class Spread(models.Model):
    """Over the simulated searches."""

    mean: float
    median: float
    p95: float


class EstimateAnswer(models.Model):
    """What it will cost."""

    sentence: str = Field(examples=["About 9 builds, 35 runs, 11h for -10% among 441 commits"])
    builds: Spread
    runs: Spread
    seconds: Spread = Field(description="Wall time.")
    machine_seconds: Spread
    exact: float = Field(description="Share of searches that named exactly the right steps.")
    trials: int
    outcomes: dict[str, int]
    assumptions: dict[str, Any]
    sources: dict[str, str]


@router.post(
    "",
    operation_id="estimateBisection",
    response_model=EstimateAnswer,
    responses=documented(400, 409, 413, 422, 503),
)
def estimate(
    services: Opened,
    caller: Asking,
    body: EstimateRequest,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Simulate a bisection: the real planner, with what is known of recipe, benchmark and range.

    It stores nothing: with the same key it is simulated again, as things are then.
    """
    asked = ascii(f"estimate {body.model_dump_json()}")
    with act_once(services, caller, idempotency_key, asked):
        return JSONResponse(_estimated(services, body))


def _estimated(services: Services, body: EstimateRequest) -> dict[str, Any]:
    check_request(services, body.bisection)
    try:
        found = estimate_request(
            services,
            body.bisection,
            steps=body.steps,
            noise=body.noise,
            trials=body.trials,
            base_dir=services.settings.project_dir,
        )
    except NotFoundError as error:
        # What the body names does not exist; the resource that was posted to does.
        raise BadInputError(error.message, field=error.field, value=error.value) from error
    return found.to_dict()
