"""Many simulated bisections through a real server that is struck by faults, and killed.

``soak`` submits, waits, kills and measures; ``benchmarks/soak.py`` prints what it returns.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from tests.helpers.conducting import SmallRepository, make_repository
from tests.helpers.faults import INJECTED
from tests.helpers.soak_server import SoakConfig
from tests.helpers.waiting import stopped, until

ROOT = Path(__file__).resolve().parents[2]
API = "/api/v1"
#: Commits of the repository, besides the first one.
COMMITS = 6
#: Bisections that share a recipe, and so their wheels.
PER_RECIPE = 4
#: Seconds after which an unfinished bisection is taken for stuck.
STUCK = 600.0


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Plan:
    """How much is done, and what happens to it."""

    bisections: int
    #: Of operations that are struck, of submissions whose client goes away, of bisections that are
    #: cancelled.
    share: float = 0.02
    seed: int = 20_261_201
    #: Bisections that go on at once.
    at_once: int = 4
    #: Bisections at the beginning during which the server is killed, and how many between two
    #: kills; then one process serves to the end.
    killed_over: int = 0
    killed_every: int = 10
    #: Bisections between two samples.
    sampled_every: int = 50
    #: Relative standard deviation of a run.
    noise: float = 0.004
    #: Seconds between two looks of the client.
    pause: float = 0.5
    #: Seconds after which nothing more is submitted.
    at_most: float = math.inf


@dataclass(frozen=True)
class Asked:
    """One bisection, and what is to be found."""

    number: int
    #: Position -> factor.
    steps: dict[int, float]
    cancelled: bool

    @property
    def body(self) -> dict[str, Any]:
        words = " ".join(f"{at}={factor}" for at, factor in self.steps.items())
        return {
            "recipe": {
                "name": "simulated",
                "kind": "command",
                "docker": False,
                "command": f"true {self.number // PER_RECIPE}",
            },
            "benchmark": {
                "name": f"simulated-{self.number}",
                "command": f"simulated {words} {1000 + self.number}=1",
                "unit": "images/s",
                "metric": {"reader": "regex", "pattern": "images/sec: ([0-9.]+)"},
            },
            "prove": False,
            # Many times what any of these takes: one that needs more is a mistake.
            "max_runs": 300,
        }


@dataclass(frozen=True)
class Sample:
    """What the server held after so many bisections."""

    finished: int
    seconds: float
    #: Bytes.
    rss: int
    uss: int
    handles: int
    threads: int
    #: Scratch directories of builds and runs, half-stored artifacts, files in ``TMPDIR``.
    leftovers: int
    #: Of the server; a new one after a kill.
    pid: int


@dataclass
class Figures:
    """What came of a soak."""

    plan: Plan
    finished: int = 0
    #: Outcome -> bisections.
    outcomes: Counter[str] = field(default_factory=Counter)
    #: What is wrong: no reason, a wrong answer, stuck.
    wrong: list[str] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    kills: int = 0
    seconds: float = 0.0
    #: Answers of the server to submissions and polls: status -> count.
    answers: Counter[str] = field(default_factory=Counter)
    leftovers: list[str] = field(default_factory=list)


class Soak:
    """One server after another on one data directory, and a client that never gives up."""

    def __init__(
        self, directory: Path, plan: Plan, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._repository: SmallRepository = make_repository(directory / "repository", COMMITS)
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._data = directory / "data"
        self._config = SoakConfig(
            data_dir=str(self._data),
            port=free_port(),
            repository=str(self._repository.path),
            shas=self._repository.shas,
            share=plan.share,
            seed=plan.seed,
            noise=plan.noise,
        )
        self._figures = Figures(plan)
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self._config.port}", timeout=60)
        self._last_told: dict[str, Any] = {}
        self._begun = time.monotonic()

    def run(self) -> Figures:
        """Do it all; the server is gone afterwards."""
        try:
            self._start()
            self._work()
            self._sample(self._figures.finished)
            self._keep_counts()
        finally:
            self._client.close()
            if self._process is not None:
                stopped(self._process)
        self._figures.leftovers = [str(path) for path in self._leftovers()]
        self._figures.seconds = time.monotonic() - self._begun
        return self._figures

    # ------------------------------------------------------------------ the server

    def _start(self) -> None:
        file = self._directory / "soak.json"
        self._data.mkdir(exist_ok=True)
        self._config.write(file)
        environment = {
            **os.environ,
            "TMPDIR": str(self._temporary),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.soak_server", str(file)],
                cwd=self._directory,
                env=environment,
                stdout=log,
                stderr=log,
            )
        until(self._ready, "the server is ready", pause=0.1)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "server.log").read_text()[-4000:]
        try:
            return self._client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def _kill(self) -> None:
        assert self._process is not None
        self._keep_counts()
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._figures.kills += 1
        self._start()

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get("/soak").json()
        return found

    def _keep_counts(self) -> None:
        told = self._told()
        self._figures.operations.update(told["operations"])
        self._figures.struck.update(told["struck"])

    # ------------------------------------------------------------------ the client

    def _work(self) -> None:
        plan = self._plan
        waiting: dict[str, tuple[Asked, float]] = {}
        asked = sampled = killed_at = 0
        while waiting or asked < plan.bisections:
            if time.monotonic() - self._begun > plan.at_most:
                plan = replace(plan, bisections=asked)
            while len(waiting) < plan.at_once and asked < plan.bisections:
                request = self._next(asked)
                waiting[self._submit(request)] = (request, time.monotonic())
                asked += 1
            for bisection_id, (request, since) in list(waiting.items()):
                if self._is_over(bisection_id, request, since):
                    del waiting[bisection_id]
            finished = asked - len(waiting)
            if finished <= plan.killed_over and finished - killed_at >= plan.killed_every:
                self._kill()
                killed_at = finished
            if finished - sampled >= plan.sampled_every:
                self._sample(finished)
                sampled = finished
            time.sleep(plan.pause)
        self._figures.finished = asked

    def _next(self, number: int) -> Asked:
        """Return the next one: a step, two steps, or none; a few are cancelled."""
        places = self._random.sample(range(2, COMMITS + 1), 2)
        draw = self._random.random()
        count = 0 if draw < 0.1 else 2 if draw < 0.15 else 1
        steps = dict(sorted((at, self._random.choice((0.5, 0.6, 0.7))) for at in places[:count]))
        return Asked(number, steps, self._random.random() < self._plan.share)

    def _submit(self, request: Asked) -> str:
        body = {
            "repository": str(self._repository.path),
            "good": self._repository.shas[0],
            "bad": self._repository.shas[-1],
            **request.body,
        }
        headers = {"Idempotency-Key": f"soak-{request.number}"}
        if self._random.random() < self._plan.share:
            # A client that goes away before the answer; it asks again below.
            with contextlib.suppress(httpx.TransportError):
                self._client.post(f"{API}/bisections", json=body, headers=headers, timeout=0.01)
            self._figures.struck["submit: client went away"] += 1
        self._figures.operations["submit"] += 1
        answer = self._insist("POST", f"{API}/bisections", json=body, headers=headers)
        bisection_id: str = answer.json()["id"]
        if request.cancelled:
            self._figures.struck["bisection: cancelled"] += 1
            self._insist("POST", f"{API}/bisections/{bisection_id}/cancel")
        return bisection_id

    def _insist(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask until there is an answer: 503 says that the database could not be written."""
        for _ in range(100):
            try:
                answer = self._client.request(method, path, **options)
            except httpx.TransportError as error:
                self._figures.answers[type(error).__name__] += 1
                time.sleep(0.2)
                continue
            self._figures.answers[str(answer.status_code)] += 1
            if answer.status_code == 409 and path.endswith("/cancel"):
                # It ended before it was asked to.
                return answer
            if answer.status_code != 503:
                assert answer.is_success, answer.text
                return answer
            time.sleep(0.1)
        raise AssertionError(f"{method} {path}: no answer in a hundred tries")

    def _is_over(self, bisection_id: str, request: Asked, since: float) -> bool:
        verdict = self._insist("GET", f"{API}/bisections/{bisection_id}").json()
        if verdict["state"] != "finished":
            if time.monotonic() - since < STUCK:
                return False
            self._figures.wrong.append(f"{bisection_id} is stuck: {verdict['state']}")
            self._figures.outcomes["stuck"] += 1
            return True
        self._figures.outcomes[verdict["outcome"]] += 1
        problem = judged(request, verdict, self._repository)
        if problem:
            self._figures.wrong.append(f"{bisection_id} ({request.steps}): {problem}")
        return True

    # ------------------------------------------------------------------ what is held

    def _leftovers(self) -> Iterator[Path]:
        """Yield what builds, runs and stores should have removed."""
        for directory in (self._data / "work", self._data / "artifacts" / "partial"):
            if directory.is_dir():
                yield from directory.iterdir()
        yield from (path for path in self._temporary.iterdir())
        yield from self._data.glob("mirrors/*/worktrees/*")
        yield from self._data.glob("cache/benchmarks/*.*")

    def _sample(self, finished: int) -> None:
        told = self._told()
        sample = Sample(
            finished=finished,
            seconds=time.monotonic() - self._begun,
            rss=told["rss"],
            uss=told["uss"],
            handles=told["handles"],
            threads=told["threads"],
            leftovers=len(list(self._leftovers())),
            pid=told["pid"],
        )
        self._figures.samples.append(sample)
        self._tell(
            f"{finished:5} finished  {sample.seconds:7.0f} s  "
            f"rss {sample.rss / 1e6:6.1f} MB  uss {sample.uss / 1e6:6.1f} MB  "
            f"{sample.handles} handles  {sample.threads} threads  {sample.leftovers} left over  "
            f"pid {sample.pid}  {dict(self._figures.outcomes)}"
        )


def judged(request: Asked, verdict: dict[str, Any], repository: SmallRepository) -> str:
    """Return what is wrong with an end; empty: nothing."""
    outcome = verdict["outcome"]
    reason = str(verdict.get("reason") or "")
    if not reason:
        return f"{outcome} without a reason"
    if outcome == "cancelled":
        return "" if request.cancelled else "cancelled, and nobody asked for it"
    if outcome in ("failed", "inconclusive"):
        told = f"{reason} {verdict.get('error')}"
        return "" if INJECTED in told else f"{outcome} for no fault of ours: {told}"
    wanted = [repository.shas[at] for at in request.steps]
    if outcome == "not_reproduced":
        return "" if not wanted else "its steps were not seen"
    found = [culprit["commits"] for culprit in verdict["culprits"]]
    if len(found) != len(wanted):
        return f"{len(wanted)} steps, {len(found)} found"
    missed = [sha for sha, commits in zip(wanted, found, strict=True) if sha not in commits]
    return f"missed {missed}" if missed else ""
