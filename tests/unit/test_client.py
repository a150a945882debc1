from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from perfbisect.client import Client
from perfbisect.errors import (
    BadInputError,
    ConflictError,
    InternalError,
    NotAuthorisedError,
    NotFoundError,
    PerfbisectError,
    TransientError,
)

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, token: str = "") -> Client:
    return Client(
        "http://server:8080/",
        token,
        transport=httpx.MockTransport(answer),
        sleep=lambda seconds: None,
    )


def stream(*events: tuple[int, str, dict[str, object]]) -> httpx.Response:
    lines = [f"id: {i}\nevent: {kind}\ndata: {json.dumps(data)}\n\n" for i, kind, data in events]
    return httpx.Response(
        200, text="".join(lines), headers={"content-type": "text/event-stream; charset=utf-8"}
    )


def test_submitting_sends_request_key_and_token() -> None:
    """A submission carries its body, its idempotency key and the bearer token."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json={"id": "01A", "state": "queued"})

    with client(answer, "secret") as it:
        assert it.submit({"good": "a"}, "key-1")["id"] == "01A"
    assert str(seen[0].url) == "http://server:8080/api/v1/bisections"
    assert json.loads(seen[0].content) == {"good": "a"}
    assert seen[0].headers["idempotency-key"] == "key-1"
    assert seen[0].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, NotAuthorisedError, 2),
        (404, NotFoundError, 2),
        (409, ConflictError, 2),
        (422, BadInputError, 2),
        (500, InternalError, 3),
        (503, TransientError, 3),
    ],
)
def test_problems_become_errors(status: int, kind: type[PerfbisectError], code: int) -> None:
    """A problem+json answer becomes the error it tells of, with its message and field."""
    problem = {"detail": "good: no such revision", "field": "good"}
    with client(lambda request: httpx.Response(status, json=problem)) as it:
        with pytest.raises(kind, match="no such revision") as caught:
            it.get("01A")
        assert caught.value.field == "good"
        assert caught.value.exit_code == code


@pytest.mark.parametrize("body", ["<html>proxy</html>", "[1, 2]", ""])
def test_answers_of_something_else(body: str) -> None:
    """A server that is not perfbisect gets a clear message instead of a stack trace."""
    with (
        client(lambda request: httpx.Response(200, text=body)) as it,
        pytest.raises(BadInputError, match="does not answer like a perfbisect server"),
    ):
        it.get("01A")


def test_a_server_that_is_not_there() -> None:
    """A refused connection says which server and what to look at."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    with client(refuse) as it, pytest.raises(TransientError, match="perfbisect serve"):
        it.get("01A")


@pytest.mark.parametrize("url", ["server:8080", "ftp://x", "", "http://", "http://[::1"])
def test_wrong_server_urls(url: str) -> None:
    """What is no URL of a server is refused before anything is sent."""
    with pytest.raises(BadInputError, match="--server"):
        Client(url)


@pytest.mark.parametrize("given", ["../admin", "a/b", "", "a?b", "ä"])
def test_ids_can_not_leave_their_place_in_a_path(given: str) -> None:
    """An id that is no id never reaches the server."""

    def never(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request.url)

    with client(never) as it, pytest.raises(NotFoundError):
        it.get(given)


def test_following_ends_with_the_bisection() -> None:
    """Events are yielded in order until the bisection is finished."""
    answer = stream((1, "started", {}), (2, "finished", {"outcome": "culprits"}))
    with client(lambda request: answer) as it:
        assert [(event.id, event.kind) for event in it.follow("01A")] == [
            (1, "started"),
            (2, "finished"),
        ]


def test_pings_are_no_events() -> None:
    """The comments that keep a quiet stream open are passed over, between and after events."""
    answer = stream((1, "started", {}), (2, "finished", {}))
    text = answer.text.replace("id: 2", ": ping - 07:50\n\n: ping - 07:51\n\nid: 2")
    quiet = httpx.Response(200, text=": ping\n\n" + text, headers=answer.headers)
    with client(lambda request: quiet) as it:
        assert [(event.id, event.kind) for event in it.follow("01A")] == [
            (1, "started"),
            (2, "finished"),
        ]


def test_following_survives_a_broken_stream() -> None:
    """After a lost connection the stream goes on behind the last event seen, none twice."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            return httpx.Response(200, json={"id": "01A", "outcome": None})
        asked.append(request.headers["last-event-id"])
        if len(asked) == 1:
            return stream((1, "started", {}), (2, "belief", {}))
        if len(asked) == 2:
            raise httpx.ReadError("reset by peer", request=request)
        if len(asked) == 3:
            return httpx.Response(503, json={"detail": "restarting"})
        return stream((3, "finished", {}))

    with client(answer) as it:
        assert [event.id for event in it.follow("01A")] == [1, 2, 3]
    assert asked == ["0", "2", "2", "2"]


def test_following_what_is_finished() -> None:
    """A finished bisection without further events ends at once."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return httpx.Response(204)
        return httpx.Response(200, json={"id": "01A", "outcome": "cancelled"})

    with client(answer) as it:
        assert list(it.follow("01A")) == []


def test_following_what_is_not_there() -> None:
    """An unknown bisection is an error, not something to wait for."""
    problem = httpx.Response(404, json={"detail": "no bisection '01A'"})
    with client(lambda request: problem) as it, pytest.raises(NotFoundError):
        list(it.follow("01A"))


def test_all_pages_of_points() -> None:
    """Points are fetched page by page until there is no next one."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.params.get("after") == "P2":
            return httpx.Response(200, json={"items": [{"id": "P3"}], "next": None})
        return httpx.Response(200, json={"items": [{"id": "P1"}, {"id": "P2"}], "next": "P2"})

    with client(answer) as it:
        assert [point["id"] for point in it.points("01A")] == ["P1", "P2", "P3"]
