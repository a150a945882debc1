"""A client of the REST API, for ``submit``, ``status``, ``watch``, ``cancel`` and ``report``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
from httpx_sse import SSEError, connect_sse

from perfbisect.errors import (
    BadInputError,
    ConflictError,
    InternalError,
    NotAuthorisedError,
    NotFoundError,
    PerfbisectError,
    TransientError,
)

#: Seconds without a byte after which an event stream counts as broken; servers ping every 15.
STREAM_SILENCE = 60.0
#: Seconds that a submission may take: the server waits for a mirror that is being made.
SUBMIT_TIMEOUT = 60.0
#: Seconds between two tries to submit.
RETRY = 5.0
#: Seconds to wait before a broken stream is opened again, doubling up to the last.
RECONNECT_FIRST, RECONNECT_LAST = 0.5, 15.0

_ERRORS: Mapping[int, type[PerfbisectError]] = {
    401: NotAuthorisedError,
    403: NotAuthorisedError,
    404: NotFoundError,
    409: ConflictError,
}


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a bisection as the server tells it."""

    id: int
    kind: str
    data: Mapping[str, Any]


class Client:
    """Talks to one server. A context manager."""

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            server: ``http://host:port``.
            token: sent as a bearer token; empty: none.
            transport: in place of the network.
            sleep: waits between two tries to follow a broken stream.

        Raises:
            BadInputError: the server is not an ``http`` or ``https`` URL.
        """
        self.server = server.rstrip("/")
        try:
            url = httpx.URL(self.server)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise BadInputError(
                f"--server: {server!r} is not a URL like 'http://127.0.0.1:8080'",
                field="server",
                value=server,
            )
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=f"{self.server}/api/v1",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=30.0,
            transport=transport,
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        request: Mapping[str, Any],
        key: str,
        *,
        patience: float = 0.0,
        waiting: Callable[[str], None] = lambda message: None,
    ) -> dict[str, Any]:
        """Submit a bisection; the same key with the same request gives the same bisection.

        Args:
            patience: seconds to go on asking while the server still mirrors the repository.
            waiting: is told why, each time.
        """
        headers = {"Idempotency-Key": key}
        while True:
            try:
                return self._json(
                    "POST", "/bisections", json=request, headers=headers, timeout=SUBMIT_TIMEOUT
                )
            except TransientError as error:
                if error.field != "repository" or patience <= 0:
                    raise
                waiting(error.message)
            self._sleep(RETRY)
            patience -= RETRY

    def get(self, bisection_id: str) -> dict[str, Any]:
        """Return the verdict as far as it is known."""
        return self._json("GET", f"/bisections/{_segment(bisection_id)}")

    def list(self, limit: int = 20) -> dict[str, Any]:
        """Return the newest bisections: ``{"items": […], "next": …}``."""
        return self._json("GET", "/bisections", params={"limit": limit})

    def cancel(self, bisection_id: str) -> dict[str, Any]:
        """Ask for the end; return the verdict as it is now."""
        return self._json("POST", f"/bisections/{_segment(bisection_id)}/cancel")

    def alert(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Tell of an alert; return what became of it."""
        return self._json("POST", "/alerts/generic", json=body)

    def series(self) -> Sequence[dict[str, Any]]:
        """Return all nightly series by name."""
        return self._list("/nightly")

    def add_points(self, series: str, body: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Add nights to a series; return what became of them.

        Args:
            body: ``{"points": [...]}``, and ``"series"`` with what a new one is.
            key: the same key with the same points gives the same answer.
        """
        path = f"/nightly/{quote(series, safe='')}/points"
        headers = {"Idempotency-Key": key}
        return self._json("POST", path, json=body, headers=headers, timeout=SUBMIT_TIMEOUT)

    def changes(self, series: str) -> Sequence[dict[str, Any]]:
        """Return what changed in a series, the newest first."""
        return self._list(f"/nightly/{quote(series, safe='')}/changes")

    def report(self, job_id: str, wanted: str = "md") -> str:
        """Return the report of a bisection or an experiment.

        Args:
            wanted: ``md``, ``html``, ``json`` or ``csv``.

        Raises:
            NotFoundError: there is neither a bisection nor an experiment with this id.
        """
        params = {"format": wanted}
        try:
            path = f"/bisections/{_segment(job_id)}/report"
            return self._send("GET", path, params=params).text
        except NotFoundError as error:
            try:
                path = f"/experiments/{_segment(job_id)}/report"
                return self._send("GET", path, params=params).text
            except NotFoundError:
                raise error from None

    def points_csv(self, bisection_id: str) -> str:
        """Return every point that speaks for the axis as CSV."""
        path = f"/bisections/{_segment(bisection_id)}/points"
        return self._send("GET", path, params={"format": "csv"}).text

    def points(self, bisection_id: str) -> Iterator[dict[str, Any]]:
        """Yield every point that speaks for the axis, oldest first."""
        after: str | None = None
        while True:
            params = {"limit": "500", **({"after": after} if after else {})}
            path = f"/bisections/{_segment(bisection_id)}/points"
            page = self._json("GET", path, params=params)
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    def follow(self, bisection_id: str, after: int = 0) -> Iterator[Event]:
        """Yield events as they happen until the bisection is finished; survives broken streams."""
        delay = RECONNECT_FIRST
        while True:
            try:
                for event in self._stream(bisection_id, after):
                    delay = RECONNECT_FIRST
                    after = event.id
                    yield event
                    if event.kind == "finished":
                        return
                if self.get(bisection_id).get("outcome") is not None:
                    return
            except (httpx.TransportError, SSEError, TransientError):
                self._sleep(delay)
                delay = min(2 * delay, RECONNECT_LAST)

    def _stream(self, bisection_id: str, after: int) -> Iterator[Event]:
        path = f"/bisections/{_segment(bisection_id)}/events"
        timeout = httpx.Timeout(30.0, read=STREAM_SILENCE)
        with connect_sse(
            self._http, "GET", path, headers={"Last-Event-ID": str(after)}, timeout=timeout
        ) as source:
            if source.response.status_code == httpx.codes.NO_CONTENT:
                return
            if source.response.is_error:
                source.response.read()
                raise error_of(source.response)
            for item in source.iter_sse():
                # A comment (the server's ping) comes out as an event without data, and with the
                # id of the event before it.
                if item.data and item.id.isdecimal():
                    yield Event(int(item.id), item.event, item.json())

    def _list(self, path: str) -> Sequence[dict[str, Any]]:
        try:
            value = self._send("GET", path).json()
        except ValueError:
            value = None
        if not isinstance(value, list):
            raise self._strange()
        return value

    def _strange(self) -> BadInputError:
        return BadInputError(
            f"--server: {self.server} does not answer like a perfbisect server",
            field="server",
            value=self.server,
        )

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = self._send(method, path, **options)
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self._strange()
        return value

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise TransientError(
                f"{self.server} can't be reached ({error}); is 'perfbisect serve' running there?",
                field="server",
                value=self.server,
            ) from error
        if response.is_success:
            return response
        raise error_of(response)


def error_of(response: httpx.Response) -> PerfbisectError:
    """Return the error that a problem+json response tells of."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    message = str(problem.get("detail") or f"HTTP {response.status_code} from {response.url}")
    status = response.status_code
    fallback: type[PerfbisectError] = BadInputError if status < 500 else InternalError
    kind = TransientError if status in (429, 502, 503, 504) else _ERRORS.get(status, fallback)
    return kind(message, field=str(problem.get("field") or ""))


def _segment(text: str) -> str:
    """Return an id for a path; anything else than letters and digits can't be one."""
    if not text.isascii() or not text.isalnum():
        raise NotFoundError(f"no bisection {text!r}", field="id", value=text)
    return text
