"""Logs as pages: with the colours of terminals, searchable, followed while they grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from perfbisect.build_watch import progress_of
from perfbisect.logs import LogPart, log_size, read_log, read_tail, search_log
from perfbisect.routers.deps import Opened
from perfbisect.routers.logs import Offset, Wait, WorkId, is_over, next_part, part_headers
from perfbisect.services import Services
from perfbisect.store import queries
from perfbisect.store.run_artifacts import artifacts_of
from perfbisect.store.tables import BuildRow, RunRow
from perfbisect.stored_logs import find_log
from perfbisect.web.ansi import to_html
from perfbisect.web.list_pages import Text
from perfbisect.web.templating import render

router = APIRouter(prefix="/logs")

#: Bytes of a log that a page shows at first: its end is what people look for.
SHOWN = 200_000

From = Annotated[int | None, Query(alias="from", ge=0, le=2**40)]


@router.get("/builds/{build_id}", response_class=HTMLResponse)
def build_log(
    request: Request, services: Opened, build_id: WorkId, q: Text = "", start: From = None
) -> HTMLResponse:
    """Show a build and its log: the end, or from somewhere on."""
    with services.database.read() as session:
        row = queries.get_build(session, build_id)
    return _page(request, services, row, {"kind": "build", "position": None, "files": []}, q, start)


@router.get("/runs/{run_id}", response_class=HTMLResponse)
def run_log(
    request: Request, services: Opened, run_id: WorkId, q: Text = "", start: From = None
) -> HTMLResponse:
    """Show a run and its log: the end, or from somewhere on."""
    with services.database.read() as session:
        row = queries.get_run(session, run_id)
        files = artifacts_of(session, run_id)
    kind = {"kind": "run", "position": row.position, "files": files}
    return _page(request, services, row, kind, q, start)


def _page(
    request: Request,
    services: Services,
    row: BuildRow | RunRow,
    kind: Mapping[str, Any],
    q: str,
    start: int | None,
) -> HTMLResponse:
    path = find_log(services, row)
    part = _part(path, start, over=is_over(row.state))
    matches, all_found = search_log(path, q) if q.strip() else ([], True)
    address = f"/logs/{kind['kind']}s/{row.id}"
    context = {
        **kind,
        "work": row,
        "progress": progress_of(services, row) if isinstance(row, BuildRow) else None,
        "part": part,
        "html": to_html(part.text),
        "size": log_size(path),
        "shown": SHOWN,
        "start": start,
        "q": q,
        "matches": matches,
        "all_found": all_found,
        "address": address,
        "raw": f"/api/v1/{kind['kind']}s/{row.id}/log",
    }
    return render(request, "log.html", context)


def _part(path: Path, start: int | None, *, over: bool) -> LogPart:
    if start is None:
        return read_tail(path, SHOWN, over=over, colours=True)
    return read_log(path, offset=start, limit=SHOWN, over=over, colours=True)


@router.get("/builds/{build_id}/part", response_class=HTMLResponse)
async def build_log_part(
    services: Opened, build_id: WorkId, offset: Offset = 0, wait: Wait = 0
) -> HTMLResponse:
    """Return what comes after an offset of a build's log, for a page that follows it."""
    return _html(await next_part(services, build_id, offset, None, wait, build=True, colours=True))


@router.get("/runs/{run_id}/part", response_class=HTMLResponse)
async def run_log_part(
    services: Opened, run_id: WorkId, offset: Offset = 0, wait: Wait = 0
) -> HTMLResponse:
    """Return what comes after an offset of a run's log, for a page that follows it."""
    return _html(await next_part(services, run_id, offset, None, wait, build=False, colours=True))


def _html(part: LogPart) -> HTMLResponse:
    return HTMLResponse(str(to_html(part.text)), headers=part_headers(part))
