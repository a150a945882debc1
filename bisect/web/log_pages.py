"""Logs as pages that follow while they grow."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from perfbisect.logs import log_size, read_tail
from perfbisect.routers.deps import Opened
from perfbisect.routers.logs import WorkId, is_over
from perfbisect.store import queries
from perfbisect.web.templating import render

router = APIRouter(prefix="/logs")

#: Bytes of a log that a page shows at first: its end is what people look for.
SHOWN = 200_000


@router.get("/builds/{build_id}", response_class=HTMLResponse)
def build_log(request: Request, services: Opened, build_id: WorkId) -> HTMLResponse:
    """Show a build and its log."""
    with services.database.read() as session:
        row = queries.get_build(session, build_id)
        over = is_over(row.state)
        part = read_tail(_path(services, build_id), SHOWN, over=over)
    context = {
        "kind": "build",
        "work": row,
        "position": None,
        "part": part,
        "size": log_size(_path(services, build_id)),
        "raw": f"/api/v1/builds/{build_id}/log",
    }
    return render(request, "log.html", context)


@router.get("/runs/{run_id}", response_class=HTMLResponse)
def run_log(request: Request, services: Opened, run_id: WorkId) -> HTMLResponse:
    """Show a run and its log."""
    with services.database.read() as session:
        row = queries.get_run(session, run_id)
        over = is_over(row.state)
        part = read_tail(_path(services, run_id), SHOWN, over=over)
    context = {
        "kind": "run",
        "work": row,
        "position": row.position,
        "part": part,
        "size": log_size(_path(services, run_id)),
        "raw": f"/api/v1/runs/{run_id}/log",
    }
    return render(request, "log.html", context)


def _path(services: Opened, work_id: str) -> Path:
    return services.settings.logs_dir / f"{work_id}.log"
