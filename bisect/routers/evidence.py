"""What a bisection rests on: points, decisions, builds, runs, and the columns of its chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from perfbisect import report
from perfbisect.build_watch import progress_of
from perfbisect.core.states import BisectionState
from perfbisect.problems import documented
from perfbisect.routers import models, present
from perfbisect.routers.bisections import BisectionId
from perfbisect.routers.charts import Window, chart_of, read_evidence
from perfbisect.routers.conditional import NOT_MODIFIED, IfNoneMatch, conditional, json_text
from perfbisect.routers.deps import DEFAULT_LIMIT, After, Limit, NumberAfter, Opened
from perfbisect.routers.finite import JSONResponse
from perfbisect.routers.kept import Kept, Texts
from perfbisect.store import queries
from perfbisect.store.exports import export_axis_points
from perfbisect.store.page_queries import identity_of, version_of

router = APIRouter(prefix="/bisections/{bisection_id}", tags=["evidence"])

EXPORT_RESPONSE: dict[int | str, dict[str, object]] = {
    200: {
        "content": {
            kind: {"schema": {"type": "string"}} for kind in ("text/csv", "application/x-ndjson")
        }
    }
}
First = Annotated[
    int | None, Query(alias="from", ge=0, lt=2**31, description="Points from here on only.")
]
Last = Annotated[
    int | None, Query(alias="to", ge=0, lt=2**31, description="Points up to here only.")
]
Newest = Annotated[int | None, Query(ge=1, le=10_000, description="Only so many, the newest ones.")]
Format = Annotated[
    Literal["json", "csv", "ndjson"],
    Query(description="`csv` and `ndjson` (an object in each line) have all rows at once."),
]


@router.get(
    "/points",
    operation_id="listAxisPoints",
    response_model=models.Page[models.AxisPoint],
    responses={**EXPORT_RESPONSE, **documented(404, 422)},
)
def list_axis_points(
    services: Opened,
    bisection_id: BisectionId,
    format: Format = "json",
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Return every point that speaks for the axis, whoever measured it, oldest first.

    As CSV and NDJSON, in order of the axis.
    """
    if format != "json":
        axis, batches = export_axis_points(services.database, bisection_id)
        exported = ([present.axis_point_of(each, axis) for each in batch] for batch in batches)
        return export_response(exported, format, f"bisection-{bisection_id}-points")
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


def export_response(
    batches: Iterable[Sequence[models.Model]], wanted: Format, name: str
) -> StreamingResponse:
    """Return points as a download that is written as they are read."""
    lines = _csv(batches) if wanted == "csv" else _ndjson(batches)
    kind = "text/csv" if wanted == "csv" else "application/x-ndjson"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{wanted}"'}
    return StreamingResponse(lines, media_type=kind, headers=headers)


def _csv(batches: Iterable[Sequence[models.Model]]) -> Iterator[str]:
    yield report.points_csv([])
    for batch in batches:
        points = [point.model_dump(mode="json") for point in batch]
        yield report.points_csv(points).partition("\n")[2]


def _ndjson(batches: Iterable[Sequence[models.Model]]) -> Iterator[str]:
    for batch in batches:
        yield "".join(point.model_dump_json() + "\n" for point in batch)


@router.get(
    "/chart",
    operation_id="getChart",
    response_model=models.Chart,
    responses={**NOT_MODIFIED, **documented(404, 422)},
)
def get_chart(
    services: Opened,
    texts: Texts,
    bisection_id: BisectionId,
    first: First = None,
    last: Last = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return points, levels and the posterior column by column.

    Where there are too many points they are left out, unless a part of the axis is asked for.
    """
    window = None
    if first is not None or last is not None:
        window = Window(first or 0, 2**31 if last is None else last)
    key = ("chart", bisection_id, window)
    with services.database.read() as session:
        kept = texts.find(session, key)
        if kept is None:
            identity = identity_of(session, bisection_id)
            version = version_of(session, identity)
            evidence = read_evidence(session, queries.get_bisection(session, bisection_id))
            kept = Kept(identity, version, json_text(chart_of(session, evidence, window)))
            # While it runs, it changes faster than it is asked for.
            if evidence.row.state is BisectionState.FINISHED:
                texts.put(key, kept)
    return conditional(kept.text.encode(), if_none_match, media_type="application/json")


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
        builds = queries.axis_builds(session, row, newest=newest)
    views = [present.build_of(build, axis) for build in builds]
    for view, build in zip(views, builds, strict=True):
        view.progress = progress_of(services, build)
    return views


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
