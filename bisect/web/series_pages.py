"""Pages of nightly series: all of them, and one with its chart and its changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect import series
from perfbisect.nightly.definitions import find_series
from perfbisect.nightly.points import point_json, points_of
from perfbisect.nightly.showing import (
    all_series,
    change_json,
    chart_json,
    nights_json,
    series_json,
)
from perfbisect.routers.deps import Opened
from perfbisect.routers.nightly import SeriesName
from perfbisect.store.alert_tables import AlertRow
from perfbisect.web.series_plot import series_plot
from perfbisect.web.templating import render

router = APIRouter()

#: Nights in the page's table.
ROWS = 100


@router.get("/series", response_class=HTMLResponse)
def list_series(request: Request, services: Opened) -> HTMLResponse:
    """Show all series by name."""
    with services.database.read() as session:
        items = all_series(session)
    return render(request, "series_list.html", {"items": items})


@router.get("/series/{series}", response_class=HTMLResponse)
def show_series(request: Request, services: Opened, name: SeriesName) -> HTMLResponse:
    """Show a series: chart, changes with their alerts, nights."""
    with services.database.read() as session:
        row = find_series(session, name)
        told = series_json(session, row)
        points = points_of(session, row.id)
        own = nights_json(session, row)
    changes = [change_json(each) for each in series.changes_of(services, name)]
    with services.database.read() as session:
        alerts = _alerts(session, [change["id"] for change in changes])
    chart = chart_json(points, changes, told)
    context = {
        "s": told,
        "changes": changes,
        "alerts": alerts,
        "plot": series_plot(chart),
        "missing": chart["missing"],
        "points": [point_json(each) for each in points[::-1][:ROWS]],
        "hidden": max(len(points) - ROWS, 0),
        "own": own,
    }
    return render(request, "series.html", context)


def _alerts(session: Session, change_ids: Sequence[str]) -> dict[str, Any]:
    """Return change -> its alert, where there is one."""
    query = select(AlertRow).where(
        AlertRow.source == "series", AlertRow.fingerprint.in_(change_ids)
    )
    return {row.fingerprint: row for row in session.scalars(query)}
