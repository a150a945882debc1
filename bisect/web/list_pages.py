"""Lists: bisections, points, wheels, hosts; and how to read a result."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.orm import Session

from perfbisect.alerting.self_checks import pool_noise
from perfbisect.core.states import BisectionState, Outcome
from perfbisect.routers import present
from perfbisect.routers.access import public
from perfbisect.routers.deps import After, Opened, lower
from perfbisect.store import catalogue, job_queries
from perfbisect.store.job_queries import JobFilter
from perfbisect.web.scatter import scatter_of
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


#: Filters of bisections and experiments in the order of the form.
_FILTERS = (
    "q", "state", "outcome", "repository", "benchmark", "culprit", "commit", "host",
    "requested_by", "since", "until",
)  # fmt: skip


def chosen_filters(request: Request) -> dict[str, str]:
    """Return the filters of the address as they were typed."""
    given = request.query_params
    return {name: given.get(name, "")[:200].replace("\x00", "").strip() for name in _FILTERS}


def filter_of(filters: dict[str, str]) -> JobFilter:
    """Return what is wanted; what can't be read does not filter."""
    state, outcome = _chosen(filters["state"], BisectionState), _chosen(filters["outcome"], Outcome)
    return JobFilter(
        state=BisectionState(state) if state else None,
        outcome=Outcome(outcome) if outcome else None,
        repository=filters["repository"],
        culprit=lower(filters["culprit"]),
        commit=lower(filters["commit"]),
        benchmark=filters["benchmark"],
        host=filters["host"],
        requested_by=filters["requested_by"],
        since=_day(filters["since"]),
        until=_day(filters["until"], after=timedelta(days=1)),
        q=filters["q"],
    )


def _day(text: str, after: timedelta = timedelta()) -> datetime | None:
    """Return the start of a day in UTC, or some time after it."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC) + after
    except (ValueError, OverflowError):
        return None


def filter_choices(session: Session) -> dict[str, list[str]]:
    """Return what can be chosen in the form of the filters."""
    return {
        "states": list(BisectionState),
        "outcomes": list(Outcome),
        "repositories": [row.name for row in catalogue.list_repositories(session)],
        "benchmarks": catalogue.benchmark_names(session),
        "hosts": catalogue.host_names(session),
    }


@router.get("/", response_class=HTMLResponse)
def list_bisections(request: Request, services: Opened, after: After = None) -> HTMLResponse:
    """Show bisections, newest first."""
    filters = chosen_filters(request)
    with services.database.read() as session:
        listings, more = job_queries.list_bisections(
            session, filter_of(filters), before=after or None, limit=ROWS
        )
        choices = filter_choices(session)
    items = [present.summary_of(listing) for listing in listings]
    context = {
        "items": items,
        "filters": filters,
        "filtered": any(filters.values()) or bool(after),
        **choices,
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
    since: Text = "",
    until: Text = "",
    after: After = None,
) -> HTMLResponse:
    """Show every point ever measured, newest first."""
    wanted = catalogue.PointFilter(
        benchmark=benchmark,
        host=host,
        commit=lower(commit),
        since=_day(since),
        until=_day(until, after=timedelta(days=1)),
    )
    with services.database.read() as session:
        rows, more = catalogue.list_points(session, wanted, before=after or None, limit=POINT_ROWS)
        benchmarks = catalogue.benchmark_names(session)
        hosts = catalogue.host_names(session)
    items = [present.point_of(row) for row in rows]
    filters = {
        "benchmark": benchmark, "host": host, "commit": commit, "since": since, "until": until,
    }  # fmt: skip
    chosen = {
        "benchmark": benchmark,
        "host": host,
        "commit": commit,
        "since": wanted.since.isoformat() if wanted.since else "",
        "until": wanted.until.isoformat() if wanted.until else "",
    }
    kept = urlencode({key: value for key, value in chosen.items() if value})
    context = {
        "items": items,
        "filters": filters,
        "benchmarks": benchmarks,
        "hosts": hosts,
        "export": f"/api/v1/points?{kept}{'&' if kept else ''}format=",
        "plot": scatter_of(items),
        "next": next_link("/points", filters, items[-1].id if more else None),
    }
    return render(request, "points.html", context)


@router.get("/wheels", response_class=HTMLResponse)
def list_wheels(
    request: Request,
    services: Opened,
    commit: Text = "",
    recipe: Text = "",
    after: After = None,
) -> HTMLResponse:
    """Show wheels, newest first."""
    with services.database.read() as session:
        rows, more = catalogue.list_wheels(
            session,
            commit=lower(commit),
            recipe=recipe,
            before=after or None,
            limit=POINT_ROWS,
        )
        recipes = catalogue.recipe_names(session)
    items = [present.wheel_of(row) for row in rows]
    filters = {"commit": commit, "recipe": recipe}
    context = {
        "items": items,
        "filters": filters,
        "recipes": recipes,
        "next": next_link("/wheels", filters, items[-1].id if more else None),
    }
    return render(request, "wheels.html", context)


@router.get("/hosts", response_class=HTMLResponse)
def list_hosts(request: Request, services: Opened) -> HTMLResponse:
    """Show the machines that run benchmarks."""
    with services.database.read() as session:
        items = present.hosts_of(session)
        builds = catalogue.running_builds(session)
        pools = pool_noise(session)
    context = {"items": items, "builds": builds, "pools": pools}
    return render(request, "hosts.html", context)


@router.get("/about", response_class=HTMLResponse)
def about(request: Request) -> HTMLResponse:
    """Show how to read a result."""
    return render(request, "about.html", {})


@router.get("/favicon.ico")
@public
def favicon() -> RedirectResponse:
    """Send browsers that ask by themselves to the icon."""
    return RedirectResponse(asset("icon.svg"))
