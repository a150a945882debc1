"""What a bisection rests on: points, decisions, builds, runs, and the columns of its chart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse

from perfbisect import report
from perfbisect.problems import documented
from perfbisect.routers import models, present
from perfbisect.routers.bisections import BisectionId
from perfbisect.routers.charts import Window, chart_of, read_evidence
from perfbisect.routers.deps import DEFAULT_LIMIT, After, Limit, NumberAfter, Opened
from perfbisect.store import queries
from perfbisect.store.catalogue import EXPORT_BATCH

router = APIRouter(prefix="/bisections/{bisection_id}", tags=["evidence"])

CSV_RESPONSE: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}
First = Annotated[
    int | None, Query(alias="from", ge=0, lt=2**31, description="Points from here on only.")
]
Last = Annotated[
    int | None, Query(alias="to", ge=0, lt=2**31, description="Points up to here only.")
]
Newest = Annotated[int | None, Query(ge=1, le=10_000, description="Only so many, the newest ones.")]
Format = Annotated[Literal["json", "csv"], Query(description="CSV has all rows at once.")]


@router.get(
    "/points",
    operation_id="listAxisPoints",
    response_model=models.Page[models.AxisPoint],
    responses={**CSV_RESPONSE, **documented(404, 422)},
)
def list_axis_points(
    services: Opened,
    bisection_id: BisectionId,
    format: Format = "json",
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Return every point that speaks for the axis, whoever measured it, oldest first."""
    if format == "csv":
        with services.database.read() as session:
            queries.get_bisection(session, bisection_id)
        name = f"bisection-{bisection_id}-points.csv"
        return csv_response(_csv_rows(services, bisection_id), name)
    with services.database.read() as session:
        row = queries.get_bisection(session, bisection_id).row
        axis = queries.axis_of(session, bisection_id)
        found = queries.axis_points(session, row, after=after or None, limit=limit + 1)
    points, more = queries.cut(found, limit)
    page = models.Page(
        items=[present.axis_point_of(point, axis) for point in points],
        next=points[-1].id if more else None,
    )
    return JSONResponse(page.model_dump(mode="json"))


def _csv_rows(services: Opened, bisection_id: str) -> Iterator[str]:
    """Yield the lines of a CSV in batches: memory does not grow with the number of points."""
    with services.database.read() as session:
        row = queries.get_bisection(session, bisection_id).row
        axis = queries.axis_of(session, bisection_id)
    yield report.points_csv([])
    after: str | None = None
    while True:
        with services.database.read() as session:
            rows = queries.axis_points(session, row, after=after, limit=EXPORT_BATCH)
        if not rows:
            return
        after = rows[-1].id
        points = [present.axis_point_of(each, axis).model_dump(mode="json") for each in rows]
        yield without_header(report.points_csv(points))


def without_header(text: str) -> str:
    """Return CSV without its first line."""
    return text.partition("\n")[2]


def csv_response(lines: Iterator[str], filename: str) -> StreamingResponse:
    """Return a download."""
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
    return StreamingResponse(lines, media_type="text/csv", headers=headers)


@router.get(
    "/chart", operation_id="getChart", response_model=models.Chart, responses=documented(404, 422)
)
def get_chart(
    services: Opened, bisection_id: BisectionId, first: First = None, last: Last = None
) -> JSONResponse:
    """Return points, levels and the posterior column by column.

    Where there are too many points they are left out, unless a part of the axis is asked for.
    """
    window = None
    if first is not None or last is not None:
        window = Window(first or 0, 2**31 if last is None else last)
    with services.database.read() as session:
        evidence = read_evidence(session, queries.get_bisection(session, bisection_id))
        return JSONResponse(chart_of(session, evidence, window))


@router.get(
    "/decisions",
    operation_id="listDecisions",
    response_model=models.Page[models.Decision],
    responses=documented(404, 422),
)
def list_decisions(
    services: Opened,
    bisection_id: BisectionId,
    after: NumberAfter = 0,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[models.Decision]:
    """Return what the planner chose, in order, each with its reason."""
    with services.database.read() as session:
        queries.get_bisection(session, bisection_id)
        rows, more = queries.decisions_of(session, bisection_id, after=after, limit=limit)
    items = [models.Decision.model_validate(row) for row in rows]
    return models.Page(items=items, next=str(items[-1].id) if more else None)


@router.get(
    "/builds",
    operation_id="listBuilds",
    response_model=list[models.BuildView],
    responses=documented(404, 422),
)
def list_builds(
    services: Opened, bisection_id: BisectionId, newest: Newest = None
) -> list[models.BuildView]:
    """Return the builds of the axis, oldest first, those of other bisections included."""
    with services.database.read() as session:
        row = queries.get_bisection(session, bisection_id).row
        axis = queries.axis_of(session, bisection_id)
        return [
            present.build_of(build, axis)
            for build in queries.axis_builds(session, row, newest=newest)
        ]


@router.get(
    "/runs",
    operation_id="listRuns",
    response_model=list[models.RunView],
    responses=documented(404, 422),
)
def list_runs(
    services: Opened, bisection_id: BisectionId, newest: Newest = None
) -> list[models.RunView]:
    """Return the runs of a bisection, oldest first."""
    with services.database.read() as session:
        queries.get_bisection(session, bisection_id)
        rows = queries.runs_of(session, bisection_id, newest=newest)
    return [models.RunView.model_validate(row) for row in rows]
