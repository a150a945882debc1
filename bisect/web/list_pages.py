"""Lists: bisections, points, wheels, hosts; and how to read a result."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from perfbisect.core.states import BisectionState, Outcome
from perfbisect.routers import present
from perfbisect.routers.access import public
from perfbisect.routers.deps import After, Opened
from perfbisect.store import catalogue, queries
from perfbisect.web.templating import asset, render

router = APIRouter()

#: Rows of a page.
ROWS = 25
POINT_ROWS = 100

Text = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]


def _chosen(value: str, known: type[BisectionState] | type[Outcome]) -> str | None:
    """Return a filter's value; an empty or unknown one does not filter."""
    return value if value in [item.value for item in known] else None


def next_link(path: str, filters: dict[str, str], last: str | None) -> str:
    """Return the address of the next page, or an empty string."""
    if last is None:
        return ""
    kept = {key: value for key, value in filters.items() if value}
    return f"{path}?{urlencode({**kept, 'after': last})}"


@router.get("/", response_class=HTMLResponse)
def list_bisections(
    request: Request,
    services: Opened,
    state: Text = "",
    outcome: Text = "",
    repository: Text = "",
    q: Text = "",
    after: After = None,
) -> HTMLResponse:
    """Show bisections, newest first."""
    known_state, known_outcome = _chosen(state, BisectionState), _chosen(outcome, Outcome)
    wanted = queries.BisectionFilter(
        state=BisectionState(known_state) if known_state else None,
        outcome=Outcome(known_outcome) if known_outcome else None,
        repository=repository,
        q=q,
    )
    with services.database.read() as session:
        listings, more = queries.list_bisections(session, wanted, before=after or None, limit=ROWS)
        repositories = [row.name for row in catalogue.list_repositories(session)]
    items = [present.summary_of(listing) for listing in listings]
    filters = {"state": state, "outcome": outcome, "repository": repository, "q": q}
    context = {
        "items": items,
        "filters": filters,
        "filtered": any(filters.values()) or bool(after),
        "states": list(BisectionState),
        "outcomes": list(Outcome),
        "repositories": repositories,
        "next": next_link("/", filters, items[-1].id if more else None),
        "alive": any(item.state is not BisectionState.FINISHED for item in items),
    }
    return render(request, "list.html", context)


@router.get("/points", response_class=HTMLResponse)
def list_points(
    request: Request,
    services: Opened,
    benchmark: Text = "",
    host: Text = "",
    commit: Text = "",
    after: After = None,
) -> HTMLResponse:
    """Show every point ever measured, newest first."""
    wanted = catalogue.PointFilter(benchmark=benchmark, host=host, commit=commit.strip().lower())
    with services.database.read() as session:
        rows, more = catalogue.list_points(session, wanted, before=after or None, limit=POINT_ROWS)
        benchmarks = sorted({row.name for row in catalogue.list_benchmarks(session)})
        hosts = [status.row.name for status in catalogue.list_hosts(session)]
    items = [present.point_of(row) for row in rows]
    filters = {"benchmark": benchmark, "host": host, "commit": commit}
    context = {
        "items": items,
        "filters": filters,
        "benchmarks": benchmarks,
        "hosts": hosts,
        "csv": "/api/v1/points?"
        + urlencode({"format": "csv", **{k: v for k, v in filters.items() if v}}),
        "next": next_link("/points", filters, items[-1].id if more else None),
    }
    return render(request, "points.html", context)


@router.get("/wheels", response_class=HTMLResponse)
def list_wheels(
    request: Request, services: Opened, commit: Text = "", after: After = None
) -> HTMLResponse:
    """Show wheels, newest first."""
    with services.database.read() as session:
        rows, more = catalogue.list_wheels(
            session,
            commit=commit.strip().lower(),
            recipe=None,
            before=after or None,
            limit=POINT_ROWS,
        )
    items = [present.wheel_of(row) for row in rows]
    filters = {"commit": commit}
    context = {
        "items": items,
        "filters": filters,
        "next": next_link("/wheels", filters, items[-1].id if more else None),
    }
    return render(request, "wheels.html", context)


@router.get("/hosts", response_class=HTMLResponse)
def list_hosts(request: Request, services: Opened) -> HTMLResponse:
    """Show the machines that run benchmarks."""
    with services.database.read() as session:
        items = [present.host_of(status) for status in catalogue.list_hosts(session)]
    return render(request, "hosts.html", {"items": items})


@router.get("/about", response_class=HTMLResponse)
def about(request: Request) -> HTMLResponse:
    """Show how to read a result."""
    return render(request, "about.html", {})


@router.get("/favicon.ico")
@public
def favicon() -> RedirectResponse:
    """Send browsers that ask by themselves to the icon."""
    return RedirectResponse(asset("icon.svg"))
