"""Live: events of bisections and experiments as a stream, resumed by ``Last-Event-ID``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

import anyio
from anyio import to_thread
from fastapi import APIRouter, Header, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from perfbisect.errors import NotAuthorisedError
from perfbisect.problems import documented
from perfbisect.routers.access import Asking
from perfbisect.routers.bisections import BisectionId
from perfbisect.routers.deps import NumberAfter, Opened
from perfbisect.routers.experiments import ExperimentId
from perfbisect.services import Services
from perfbisect.store import access, experiment_queries, job_queries, queries
from perfbisect.store.access import Caller
from perfbisect.store.jobs import JobRef, bisection, experiment
from perfbisect.store.tables import EventRow, ExperimentRow

router = APIRouter(tags=["evidence"])

#: Seconds between two looks for new events: other processes may write them, so we have to look.
POLL = 0.4
#: Seconds between two redraws of a page, however much happens.
REDRAW = 1.0
#: Seconds that a stream has to end when the service stops.
GRACE = 2.0

LastEventId = Annotated[
    str | None, Header(max_length=40, description="Id of the last event that was seen.")
]


#: One event of the stream.
_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string", "description": "For Last-Event-ID."},
        "event": {"type": "string", "examples": ["decision", "run_finished", "finished"]},
        "data": {"type": "string", "description": "A JSON object with `at` and more."},
    },
}


def resume_from(last_event_id: str | None, after: int) -> int:
    """Return the id after which events are wanted; a header that is no number counts as none."""
    if last_event_id and last_event_id.isascii() and last_event_id.isdecimal():
        return min(int(last_event_id), 2**53)
    return after


def read_events(
    services: Services, job: JobRef, after: int, caller: Caller | None = None
) -> tuple[list[EventRow], bool]:
    """Return the next events, and whether these are the last ever.

    Raises:
        NotAuthorisedError: the caller's token was revoked, or expired, since.
    """
    with services.database.read() as session:
        if caller is not None:
            access.check_still_good(session, caller)
        # Asked before the events are read: one that comes in between is seen next time.
        finished = job_queries.is_finished(session, job)
        events = job_queries.events_after(session, job, after)
    return events, finished and not events


async def follow(
    services: Services,
    job: JobRef,
    after: int,
    stopping: anyio.Event,
    *,
    caller: Caller | None = None,
    pause: float = 0.0,
) -> AsyncIterator[list[EventRow]]:
    """Yield new events in batches until the job is finished or the stream has to end.

    Args:
        stopping: set when the service stops; and by this, once the caller's token is good no more.
        caller: who follows; None: somebody who needs no token.
        pause: seconds to let pass after a batch, so that the next one gathers what happened.
    """
    while not stopping.is_set():
        try:
            events, over = await to_thread.run_sync(read_events, services, job, after, caller)
        except NotAuthorisedError:
            stopping.set()
            return
        if over:
            return
        if events:
            after = events[-1].id
            yield events
        with anyio.move_on_after(pause if events else POLL):
            await stopping.wait()


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": _EVENT}}},
    204: {"description": "Finished, and every event was seen."},
    **documented(404, 422),
}


@router.get(
    "/bisections/{bisection_id}/events",
    operation_id="followEvents",
    response_class=EventSourceResponse,
    responses=_STREAM,
)
async def follow_events(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    after: NumberAfter = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream events as they happen; the stream ends when the bisection does."""
    job = bisection(queries.known_id(bisection_id, "bisection", "bisection_id"))
    return await stream_of(services, caller, job, resume_from(last_event_id, after))


@router.get(
    "/experiments/{experiment_id}/events",
    operation_id="followExperimentEvents",
    response_class=EventSourceResponse,
    responses=_STREAM,
)
async def follow_experiment_events(
    services: Opened,
    caller: Asking,
    experiment_id: ExperimentId,
    after: NumberAfter = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream events as they happen; the stream ends when the experiment does."""
    job = experiment(queries.known_id(experiment_id, "experiment", "experiment_id"))
    return await stream_of(services, caller, job, resume_from(last_event_id, after))


async def stream_of(services: Services, caller: Caller, job: JobRef, start: int) -> Response:
    """Return the events of a job after an id as a stream, while the caller's token is good.

    Raises:
        NotFoundError: no such bisection or experiment.
    """
    if await to_thread.run_sync(_nothing_left, services, job, start):
        # An EventSource connects again after every end; only 204 tells it to stop.
        return Response(status_code=HTTPStatus.NO_CONTENT)
    stopping = anyio.Event()
    return streamed(_sse(services, caller, job, start, stopping), stopping)


def streamed(events: AsyncIterator[Any], stopping: anyio.Event) -> EventSourceResponse:
    """Return a stream that ends by itself when the service stops."""
    return EventSourceResponse(events, shutdown_event=stopping, shutdown_grace_period=GRACE)


async def changes_of(services: Services, caller: Caller, job: JobRef, start: int) -> Response:
    """Return a stream that says when a page is out of date: ``changed``, and once ``finished``.

    Raises:
        NotFoundError: no such bisection or experiment.
    """
    await to_thread.run_sync(require_job, services, job)
    stopping = anyio.Event()
    return streamed(_changes(services, caller, job, start, stopping), stopping)


async def _changes(
    services: Services, caller: Caller, job: JobRef, start: int, stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    """Yield one ``changed`` for whatever happened within a moment."""
    last = start
    async for events in follow(services, job, start, stopping, caller=caller, pause=REDRAW):
        last = events[-1].id
        yield ServerSentEvent(data=str(last), event="changed", id=str(last))
    if not stopping.is_set():
        yield ServerSentEvent(data=str(last), event="finished", id=str(last))


def require_job(services: Services, job: JobRef) -> None:
    """Insist that a job exists.

    Raises:
        NotFoundError: it does not.
    """
    with services.database.read() as session:
        if job.table is ExperimentRow:
            experiment_queries.get_experiment(session, job.id)
        else:
            queries.get_bisection(session, job.id)


def _nothing_left(services: Services, job: JobRef, start: int) -> bool:
    require_job(services, job)
    return read_events(services, job, start)[1]


async def _sse(
    services: Services, caller: Caller, job: JobRef, start: int, stopping: anyio.Event
) -> AsyncIterator[Any]:
    async for events in follow(services, job, start, stopping, caller=caller):
        for event in events:
            data = {**event.data, "at": event.at.isoformat()}
            yield ServerSentEvent(
                data=json.dumps(data, ensure_ascii=False), event=event.kind, id=str(event.id)
            )
