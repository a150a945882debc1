"""Logs of builds and runs: text by offset, or as it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
from anyio import to_thread
from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter

from perfbisect.build_watch import progress_of
from perfbisect.core.states import WorkState
from perfbisect.logs import MAX_PART, LogPart, read_log, read_tail
from perfbisect.problems import documented
from perfbisect.routers import models
from perfbisect.routers.deps import Opened
from perfbisect.services import Services
from perfbisect.store import queries
from perfbisect.stored_logs import find_log

router = APIRouter(tags=["logs"])

WorkId = Annotated[str, PathParameter(max_length=64)]
Offset = Annotated[int, Query(ge=0, le=2**40, description="Bytes from the start of the log.")]
Tail = Annotated[int | None, Query(ge=1, le=MAX_PART, description="Rather the last so many bytes.")]
Wait = Annotated[
    float, Query(ge=0, le=30, description="Seconds to wait for more where there is none yet.")
]

#: Seconds between two looks at a growing file.
_POLL = 0.25

_LOG: dict[int | str, dict[str, object]] = {
    200: {
        "content": {"text/plain": {"schema": {"type": "string"}}},
        "headers": {
            "Perfbisect-Next-Offset": {
                "description": "`offset` of the next request.",
                "schema": {"type": "integer"},
            },
            "Perfbisect-Log-Complete": {
                "description": "true: nothing follows.",
                "schema": {"type": "string", "enum": ["true", "false"]},
            },
        },
    }
}


def build_log_state(services: Services, build_id: str) -> tuple[Path, bool]:
    """Return where a build's log is, and whether the build has ended."""
    with services.database.read() as session:
        row = queries.get_build(session, build_id)
    return find_log(services, row), is_over(row.state)


def run_log_state(services: Services, run_id: str) -> tuple[Path, bool]:
    """Return where a run's log is, and whether the run has ended."""
    with services.database.read() as session:
        row = queries.get_run(session, run_id)
    return find_log(services, row), is_over(row.state)


def is_over(state: WorkState) -> bool:
    """Return whether nothing more will be written."""
    return state not in (WorkState.QUEUED, WorkState.RUNNING)


@router.get(
    "/builds/{build_id}",
    operation_id="getBuild",
    response_model=models.BuildView,
    responses=documented(404, 422),
)
def get_build(services: Opened, build_id: WorkId) -> models.BuildView:
    """Return one build."""
    with services.database.read() as session:
        row = queries.get_build(session, build_id)
        view = models.BuildView.model_validate(row)
    view.progress = progress_of(services, row)
    return view


@router.get(
    "/runs/{run_id}",
    operation_id="getRun",
    response_model=models.RunView,
    responses=documented(404, 422),
)
def get_run(services: Opened, run_id: WorkId) -> models.RunView:
    """Return one run."""
    with services.database.read() as session:
        return models.RunView.model_validate(queries.get_run(session, run_id))


@router.get(
    "/builds/{build_id}/log",
    operation_id="readBuildLog",
    response_class=Response,
    responses={**_LOG, **documented(404, 422)},
)
async def read_build_log(
    services: Opened, build_id: WorkId, offset: Offset = 0, tail: Tail = None, wait: Wait = 0
) -> Response:
    """Return a build's log as plain text; ask again from the next offset to follow it."""
    return await _answer(services, build_id, offset, tail, wait, build=True)


@router.get(
    "/runs/{run_id}/log",
    operation_id="readRunLog",
    response_class=Response,
    responses={**_LOG, **documented(404, 422)},
)
async def read_run_log(
    services: Opened, run_id: WorkId, offset: Offset = 0, tail: Tail = None, wait: Wait = 0
) -> Response:
    """Return a run's log as plain text; ask again from the next offset to follow it."""
    return await _answer(services, run_id, offset, tail, wait, build=False)


async def _answer(
    services: Services, work_id: str, offset: int, tail: int | None, wait: float, *, build: bool
) -> Response:
    part = await next_part(services, work_id, offset, tail, wait, build=build)
    return Response(part.text, media_type="text/plain", headers=part_headers(part))


async def next_part(
    services: Services,
    work_id: str,
    offset: int,
    tail: int | None,
    wait: float,
    *,
    build: bool,
    colours: bool = False,
) -> LogPart:
    """Return a piece of a log; where there is none yet, the first one that comes in time.

    Raises:
        NotFoundError: no such build or run.
    """

    def look() -> LogPart:
        state_of = build_log_state if build else run_log_state
        path, over = state_of(services, work_id)
        if tail is not None:
            return read_tail(path, tail, over=over, colours=colours)
        return read_log(path, offset=offset, over=over, colours=colours)

    part = await to_thread.run_sync(look)
    with anyio.move_on_after(wait):
        while not part.text and not part.complete:
            await anyio.sleep(_POLL)
            part = await to_thread.run_sync(look)
    return part


def part_headers(part: LogPart) -> dict[str, str]:
    """Return how to go on."""
    return {
        "Perfbisect-Next-Offset": str(part.next_offset),
        "Perfbisect-Log-Complete": str(part.complete).lower(),
        "Cache-Control": "no-cache",
    }
