"""Nightly series: points in, and what was found in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request, Response
from packaging.utils import canonicalize_name
from pydantic import ConfigDict, Field
from sqlalchemy import select

from perfbisect import series
from perfbisect.alerting.configuration import load_alert_config
from perfbisect.core.series_states import ChangeState
from perfbisect.core.states import Better, ChangeKind
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.nightly.definitions import definition_from_dict, find_series
from perfbisect.nightly.formats import PointFormat, points_csv, read_points
from perfbisect.nightly.points import point_json, points_of
from perfbisect.nightly.showing import all_series, change_json, chart_json, series_json
from perfbisect.problems import documented
from perfbisect.routers import models
from perfbisect.routers.access import Asking, record
from perfbisect.routers.admission import check_text
from perfbisect.routers.bisections import IdempotencyKey
from perfbisect.routers.deps import DEFAULT_LIMIT, After, Limit, Opened
from perfbisect.routers.finite import JSONResponse
from perfbisect.services import Services
from perfbisect.store.access import own_key
from perfbisect.store.catalogue import find_repository
from perfbisect.store.series_tables import SeriesPointRow

router = APIRouter(prefix="/nightly", tags=["nightly series"])

SeriesName = Annotated[str, Path(alias="series", max_length=100, description="Name of a series.")]


class SeriesView(models.Model):
    """A series: what it measures, what makes a change of it, and where it stands."""

    model_config = ConfigDict(extra="allow")

    name: str
    benchmark: str
    unit: str
    better: Better
    min_effect: float
    false_alarms: float = Field(description="False suspicions accepted in a year.")
    nights: int
    last_night: date | None
    last_value: float | None
    changes: dict[str, int] = Field(description="Number of changes in each state.")


class NightView(models.Model):
    """A point of a series."""

    model_config = ConfigDict(extra="allow")

    id: str
    night: date
    value: float
    version: str
    commits: dict[str, str]
    host: str
    runs: int
    source: str


class ChangeView(models.Model):
    """A change of a series."""

    model_config = ConfigDict(extra="allow")

    id: str
    series: str
    state: ChangeState
    kind: ChangeKind
    change: float
    ci95: models.Interval
    probability: float
    remaining: float | None = Field(description="Recovery in part: what is left, e.g. -0.06.")
    reason: str


class RecordedView(models.Model):
    """What became of a delivery."""

    series: str
    added: int
    known: int = Field(description="Points that were there already.")
    first: date | None
    last: date | None


_EXAMPLES = {
    "one night": {
        "summary": "One night of one host",
        "value": {
            "night": "2019-09-14",
            "values": [7590.1, 7612.4, 7588.0],
            "version": "2.1.0.dev20190914",
            "commits": {"tensorflow": "53bdcf5"},
            "host": "gpu-1",
        },
    },
    "many, with the definition": {
        "summary": "Several nights; the first delivery says what the series is",
        "value": {
            "series": {"unit": "images/s", "better": "higher", "min_effect": "2%"},
            "points": [
                {"night": "2019-09-14", "value": 7590.1},
                {"night": "2019-09-15", "value": 3901.7},
            ],
        },
    },
}


@router.post(
    "/{series}/points",
    operation_id="addNightlyPoints",
    response_model=RecordedView,
    responses=documented(400, 409, 413, 422, 503),
)
def add_points(
    request: Request,
    services: Opened,
    caller: Asking,
    name: SeriesName,
    body: Annotated[dict[str, Any] | list[Any], Body(openapi_examples=_EXAMPLES)],
    format: Annotated[
        PointFormat, Query(description="What the body is; auto: what it looks like.")
    ] = PointFormat.AUTO,
    metric: Annotated[
        str, Query(max_length=200, description="Value of a tool's document; else its main one.")
    ] = "",
    night: Annotated[
        date | None, Query(description="The day, where a tool's document tells none.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Add points of one night or of many; sending them again changes nothing.

    A point (`night`, `value` or `values`, `version`, `commits`, `host`), a list of points,
    `{"series": …, "points": […]}`, PerfZero's summary, or pytest-benchmark's JSON. All points are
    stored, or none. A series is defined by its first points, or by `perfbisect.toml`.
    """
    check_text(body)
    definition = None
    if isinstance(body, Mapping) and "series" in body:
        definition = definition_from_dict(_table(body["series"]), "series")
        check_definition(services, definition)
        body = {key: value for key, value in body.items() if key != "series"}
        if "points" not in body:
            raise BadInputError("points: 'series' needs its points beside it", field="points")
    source, points = read_points(
        body, format, metric=metric, night=night, text=lambda value: json.dumps(value)
    )
    try:
        answer = series.record_points(
            services,
            name,
            points,
            source=source,
            definition=definition,
            idempotency_key=own_key(caller, idempotency_key),
        )
    except NotFoundError as error:
        raise BadInputError(error.message, field=error.field, value=error.value) from error
    record(services, caller, "nightly.points", name, added=answer["added"])
    clock = getattr(request.app.state, "nightly", None)
    if clock is not None:
        clock.wake()
    return JSONResponse(answer)


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInputError("series: should be an object", field="series", value=value)
    return value


def check_definition(services: Services, definition: series.SeriesDefinition) -> None:
    """Refuse definitions that would make this machine run what nobody allowed.

    Raises:
        BadInputError: naming the field and what would be right.
    """
    settings = services.settings
    for field in ("benchmark", "recipe"):
        value = getattr(definition, field)
        if value and ("/" in value or ".toml" in value):
            message = f"series.{field}: {value!r} must be a name, not a file of the server"
            raise BadInputError(message, field=f"series.{field}", value=value)
    if definition.schedule:
        raise BadInputError(
            "series.schedule: only perfbisect.toml says what this machine does by itself",
            field="series.schedule",
            value=definition.schedule,
        )
    _check_policy(services, definition.policy)
    if definition.repository and definition.repository not in settings.allowed_repositories:
        with services.database.read() as session:
            if find_repository(session, definition.repository) is None:
                raise BadInputError(
                    f"series.repository: {definition.repository!r} is not known here: name one of "
                    "/api/v1/repositories, or have it added to PERFBISECT_ALLOWED_REPOSITORIES",
                    field="series.repository",
                    value=definition.repository,
                )
    allowed = {canonicalize_name(name) for name in settings.allowed_packages}
    if definition.package and canonicalize_name(definition.package) not in allowed:
        raise BadInputError(
            f"series.package: {definition.package!r} may not be run here: have it added to "
            "PERFBISECT_ALLOWED_PACKAGES",
            field="series.package",
            value=definition.package,
        )


def _check_policy(services: Services, policy: Mapping[str, Any]) -> None:
    """Refuse a policy that no alert could follow, before an alert has to be held because of it."""
    if not policy:
        return
    config = load_alert_config(services.settings.project_dir)
    try:
        told = config.policy_for(policy).tell or ()
    except BadInputError as error:
        raise BadInputError(f"series.{error.message}", field="series.policy") from error
    for name in told:
        if name not in config.notify:
            known = ", ".join(sorted(config.notify)) or "none"
            raise BadInputError(
                f"series.policy.tell: no [notify.{name}] in perfbisect.toml; known: {known}",
                field="series.policy.tell",
                value=name,
            )


@router.get("", operation_id="listNightlySeries", response_model=list[SeriesView])
def list_series(services: Opened) -> JSONResponse:
    """Return all series by name."""
    with services.database.read() as session:
        return JSONResponse(all_series(session))


@router.get(
    "/{series}",
    operation_id="getNightlySeries",
    response_model=SeriesView,
    responses=documented(404, 422),
)
def get_series(services: Opened, name: SeriesName) -> JSONResponse:
    """Return a series."""
    with services.database.read() as session:
        return JSONResponse(series_json(session, find_series(session, name)))


@router.get(
    "/{series}/points",
    operation_id="listNightlyPoints",
    response_model=models.Page[NightView],
    responses={200: {"content": {"text/csv": {}}}, **documented(404, 422)},
)
def list_points(
    services: Opened,
    name: SeriesName,
    since: Annotated[date | None, Query(description="First night.")] = None,
    until: Annotated[date | None, Query(description="Last night.")] = None,
    format: Literal["json", "csv"] = "json",
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Return points, the last stored first; as CSV, all of them in the order of nights."""
    with services.database.read() as session:
        row = find_series(session, name)
        query = select(SeriesPointRow).where(SeriesPointRow.series_id == row.id)
        if since is not None:
            query = query.where(SeriesPointRow.night >= since)
        if until is not None:
            query = query.where(SeriesPointRow.night <= until)
        if format == "csv":
            rows = session.scalars(query.order_by(SeriesPointRow.night, SeriesPointRow.id)).all()
            return Response(
                points_csv(rows),
                media_type="text/csv; charset=utf-8",
                headers={"Content-Disposition": f'attachment; filename="{row.name}.csv"'},
            )
        if after:
            query = query.where(SeriesPointRow.id < after)
        rows = session.scalars(query.order_by(SeriesPointRow.id.desc()).limit(limit + 1)).all()
    items = [dict(point_json(each)) for each in rows[:limit]]
    return JSONResponse({"items": items, "next": items[-1]["id"] if len(rows) > limit else None})


@router.get(
    "/{series}/changes",
    operation_id="listNightlyChanges",
    response_model=list[ChangeView],
    responses=documented(404, 422),
)
def list_changes(
    services: Opened, name: SeriesName, state: ChangeState | None = None
) -> JSONResponse:
    """Return what changed, the newest first: suspected, confirmed, refuted and closed."""
    found = series.changes_of(services, name, states=None if state is None else (state,))
    return JSONResponse([change_json(each) for each in found])


class ChartView(models.Model):
    """What a series' chart draws, by columns."""

    model_config = ConfigDict(extra="allow")

    unit: str
    points: dict[str, list[Any]]
    changes: list[dict[str, Any]]
    levels: list[tuple[date, date, float]] = Field(description="First night, last night, level.")
    missing: list[tuple[date, date]] = Field(description="Nights without a value.")


@router.get(
    "/{series}/chart",
    operation_id="getNightlyChart",
    response_model=ChartView,
    responses=documented(404, 422),
)
def get_chart(services: Opened, name: SeriesName) -> JSONResponse:
    """Return what the chart of a series shows."""
    with services.database.read() as session:
        row = find_series(session, name)
        told = series_json(session, row)
        points = points_of(session, row.id)
    changes = [change_json(each) for each in series.changes_of(services, name)]
    return JSONResponse(chart_json(points, changes, told))
