"""A repository, several benchmarks, a conductor and a desk, for tests of alerts."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.conducting import SmallRepository, make_conductor, make_repository
from tests.helpers.waiting import until

from perfbisect.alerting.desk import Desk
from perfbisect.alerts import AlertSignal
from perfbisect.conductor import Conductor
from perfbisect.ports import CancelToken, RunRequest, RunSuccess
from perfbisect.routers.alert_submission import AlertSubmitter
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.database import now
from perfbisect.testing import ScriptedBuilder

#: Base64 of 24 bytes, as standardwebhooks wants it.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

#: Nothing is waited for, and nothing is proven: that takes runs.
AT_ONCE = """
[alerts]
group_wait = "0s"
self_checks = false
[alerts.policy]
prove = false
"""

RECIPE = """
[recipe.scripted]
kind = "command"
docker = false
command = "true"
"""

_BENCHMARK = """
[benchmark.{name}]
command = "true {name}"
unit = "images/s"
metric = {{reader = "regex", pattern = 'images/sec: ([0-9.]+)'}}
"""


@dataclass
class SteppedRunner:
    """Measures a wheel by its commit and the benchmark's name: name -> (position, factor)."""

    repository: SmallRepository
    steps: Mapping[str, Mapping[int, float]]
    noise: float = 0.005
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess:
        position = self.repository.position(request.wheel.read_text().splitlines()[0])
        value = 9000.0
        for at, factor in self.steps.get(request.benchmark.name, {}).items():
            if position >= at:
                value *= factor
        with self.lock:
            value *= math.exp(self.random.normal(0.0, self.noise))
        return RunSuccess(value, (value,), 0.01)


@dataclass
class Scene:
    """Services, a conductor that works in the background, and a desk that looks when told."""

    services: Services
    repository: SmallRepository
    desk: Desk
    conductor: Conductor
    clock: Clock

    def signal(self, benchmark: str, change: float = -0.5, **told: Any) -> AlertSignal:
        """Return an alert over the whole history."""
        values: dict[str, Any] = {
            "source": "generic",
            "fingerprint": f"{benchmark}-fingerprint",
            "started_at": datetime(2026, 11, 30, 6, tzinfo=UTC),
            "benchmark": benchmark,
            "repository": str(self.repository.path),
            "recipe": "scripted",
            "good": self.repository.shas[0],
            "bad": self.repository.shas[-1],
            "before": 9000.0,
            "after": 9000.0 * (1 + change),
        }
        return AlertSignal(**(values | told))

    def alert(self, alert_id: str) -> AlertRow:
        with self.services.database.read() as session:
            return session.get_one(AlertRow, alert_id)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the desk look until it holds."""
        until(condition, what, meanwhile=self.desk.look)

    def until_state(self, alert_id: str, *states: str) -> AlertRow:
        self.until(lambda: self.alert(alert_id).state in states, f"{alert_id} in {states}")
        return self.alert(alert_id)


@dataclass
class Clock:
    """A clock that is moved by hand."""

    ahead: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return now() + self.ahead


@contextmanager
def scene(
    directory: Path,
    steps: Mapping[str, Mapping[int, float]],
    *,
    config: str = AT_ONCE,
    commits: int = 8,
    working: bool = True,
    **settings: Any,
) -> Iterator[Scene]:
    """Yield a scene in which each benchmark has its own steps.

    Args:
        working: whether the conductor works.
    """
    repository = make_repository(directory / "repository", commits)
    text = config + RECIPE + "".join(_BENCHMARK.format(name=name) for name in steps)
    (directory / "perfbisect.toml").write_text(text)
    services = Services.open(
        Settings(
            data_dir=directory / "data",
            project_dir=directory,
            allowed_repositories=[str(repository.path)],
            **settings,
        )
    )
    clock = Clock()
    desk = Desk(services, AlertSubmitter(services), clock=clock)
    runner = SteppedRunner(repository, steps)
    conductor = make_conductor(services, ScriptedBuilder(), runner, directory)
    if working:
        conductor.start()
    try:
        yield Scene(services, repository, desk, conductor, clock)
    finally:
        conductor.stop()
        services.close()


@dataclass
class Inbox:
    """What a receiver of webhooks got."""

    url: str
    #: (headers, JSON) of each request.
    got: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    #: Status of the next answers; then 204.
    answers: list[int] = field(default_factory=list)
    #: Called before each answer.
    on_request: Callable[[], object] | None = None

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]

    def kinds(self) -> list[str]:
        return [body["type"] for _, body in self.got]


@contextmanager
def receiving() -> Iterator[Inbox]:
    """Listen on a free port of this machine, as a receiver of webhooks would."""
    inbox = Inbox("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            inbox.got.append(({**headers, "raw": raw.decode()}, json.loads(raw)))
            if inbox.on_request is not None:
                inbox.on_request()
            status = inbox.answers.pop(0) if inbox.answers else 204
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    inbox.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
