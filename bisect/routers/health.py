"""Whether the service is well, and its figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from perfbisect.problems import documented
from perfbisect.routers import models
from perfbisect.routers.access import public
from perfbisect.routers.deps import Opened
from perfbisect.services import Services
from perfbisect.store.catalogue import count_all

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="isAlive", response_model=models.Health)
@public
def is_alive() -> models.Health:
    """Answer: the process serves requests."""
    return models.Health(status="ok")


@router.get(
    "/readyz",
    operation_id="isReady",
    response_model=models.Health,
    responses={503: {"model": models.Health, "description": "Not ready; says what is missing."}},
)
@public
def is_ready(request: Request, services: Opened) -> JSONResponse:
    """Answer whether the database can be read and the conductor runs."""
    checks = {"database": _database(services)}
    conductor = request.app.state.conductor
    if conductor is not None:
        checks["conductor"] = "ok" if conductor.alive else "has stopped"
    well = all(value == "ok" for value in checks.values())
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    content = {"status": "ok" if well else "not ready", "checks": checks}
    return JSONResponse(content, status_code=status)


def _database(services: Services) -> str:
    try:
        with services.database.read() as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        return f"can't be read: {type(error).__name__}"
    return "ok"


@router.get(
    "/metrics",
    operation_id="readMetrics",
    response_class=PlainTextResponse,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **documented(401, 403, 429),
    },
)
def read_metrics(request: Request) -> Response:
    """Return figures in Prometheus' text format."""
    registry: CollectorRegistry = request.app.state.metrics
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class StoreCollector(Collector):
    """Counts rows when it is asked, so that every process that serves says the same."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """Yield figures from the database."""
        with self._services.database.read() as session:
            counts = count_all(session)
        for name, by_state in (
            ("bisections", counts.bisections),
            ("experiments", counts.experiments),
            ("builds", counts.builds),
            ("runs", counts.runs),
        ):
            yield _by_label(f"perfbisect_{name}", f"{name.title()} by state.", "state", by_state)
        yield _by_label(
            "perfbisect_failures", "Failed builds and runs by kind.", "kind", counts.failures
        )
        for name, (count, seconds) in counts.durations.items():
            yield SummaryMetricFamily(
                f"perfbisect_{name}_seconds",
                f"Seconds of {name}s that succeeded.",
                count_value=count,
                sum_value=seconds,
            )
        yield GaugeMetricFamily("perfbisect_points", "Points ever measured.", value=counts.points)
        yield GaugeMetricFamily(
            "perfbisect_wheel_bytes", "Bytes of all wheels.", value=counts.wheel_bytes
        )


def _by_label(name: str, help_text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
