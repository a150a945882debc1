"""Live: events of a bisection as server-sent events, resumed by ``Last-Event-ID``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

import anyio
from anyio import to_thread
from fastapi import APIRouter, Header, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from perfbisect.problems import documented
from perfbisect.routers.bisections import BisectionId
from perfbisect.routers.deps import NumberAfter, Opened
from perfbisect.services import Services
from perfbisect.store import queries
from perfbisect.store.tables import EventRow

router = APIRouter(prefix="/bisections/{bisection_id}", tags=["evidence"])

#: Seconds between two looks for new events: other processes may write them, so we have to look.
POLL = 0.4
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


def read_events(services: Services, bisection_id: str, after: int) -> tuple[list[EventRow], bool]:
    """Return the next events, and whether these are the last ever."""
    with services.database.read() as session:
        # Asked before the events are read: one that comes in between is seen next time.
        finished = queries.is_finished(session, bisection_id)
        events = queries.events_after(session, bisection_id, after)
    return events, finished and not events


async def follow(
    services: Services,
    bisection_id: str,
    after: int,
    stopping: anyio.Event,
    *,
    pause: float = 0.0,
) -> AsyncIterator[list[EventRow]]:
    """Yield new events in batches until the bisection is finished or the service stops.

    Args:
        stopping: set when the service stops.
        pause: seconds to let pass after a batch, so that the next one gathers what happened.
    """
    while not stopping.is_set():
        events, over = await to_thread.run_sync(read_events, services, bisection_id, after)
        if over:
            return
        if events:
            after = events[-1].id
            yield events
        with anyio.move_on_after(pause if events else POLL):
            await stopping.wait()


@router.get(
    "/events",
    operation_id="followEvents",
    response_class=EventSourceResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": _EVENT}}},
        204: {"description": "Finished, and every event was seen."},
        **documented(404, 422),
    },
)
async def follow_events(
    services: Opened,
    bisection_id: BisectionId,
    after: NumberAfter = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream events as they happen; the stream ends when the bisection does."""
    start = resume_from(last_event_id, after)
    if await to_thread.run_sync(_nothing_left, services, bisection_id, start):
        # An EventSource connects again after every end; only 204 tells it to stop.
        return Response(status_code=HTTPStatus.NO_CONTENT)
    stopping = anyio.Event()
    return streamed(_sse(services, bisection_id, start, stopping), stopping)


def streamed(events: AsyncIterator[Any], stopping: anyio.Event) -> EventSourceResponse:
    """Return a stream that ends by itself when the service stops."""
    return EventSourceResponse(events, shutdown_event=stopping, shutdown_grace_period=GRACE)


def _nothing_left(services: Services, bisection_id: str, start: int) -> bool:
    with services.database.read() as session:
        queries.get_bisection(session, bisection_id)
    return read_events(services, bisection_id, start)[1]


async def _sse(
    services: Services, bisection_id: str, start: int, stopping: anyio.Event
) -> AsyncIterator[Any]:
    async for events in follow(services, bisection_id, start, stopping):
        for event in events:
            data = {**event.data, "at": event.at.isoformat()}
            yield ServerSentEvent(
                data=json.dumps(data, ensure_ascii=False), event=event.kind, id=str(event.id)
            )
