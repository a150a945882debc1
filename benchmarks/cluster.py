"""What one server conducts, and what several nodes give: the figures of docs/scaling.md.

    python benchmarks/cluster.py simulated --bisections 200 --hosts 100 --seconds 120
    python benchmarks/cluster.py ray --nodes 4 --runs 40

``simulated``: real repository, database, planner and conductor; hosts that sleep. ``ray``: a real
cluster on this machine, one-second runs on one node and on several, in one process.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import itertools
import logging
import queue
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from tests.helpers.clusters import cluster
from tests.helpers.command_line import make_project
from tests.helpers.conducting import PROJECT, make_repository, request_for
from tests.helpers.ray_parts import PARTS, RUN_SECONDS
from tests.helpers.waiting import until

from perfbisect.conductor import Conductor
from perfbisect.config import benchmark_from_dict, recipe_from_dict
from perfbisect.engines.ray import RayEngine
from perfbisect.history import open_mirror
from perfbisect.ports import (
    BuildDone,
    BuildRequest,
    BuildSuccess,
    HostInfo,
    Orphan,
    Room,
    RunDone,
    RunRequest,
    RunSuccess,
)
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.tables import BisectionRow, BuildRow, PointRow
from perfbisect.submission import submit


class SimulatedCluster:
    """Hosts that sleep and answer. Implements ``ports.ClusterEngine``."""

    exclusive = False

    def __init__(self, hosts: int, slots: int, seconds: float, position: dict[str, int]) -> None:
        self._hosts = {f"host-{n:03}": HostInfo(f"host-{n:03}", "pool") for n in range(hosts)}
        self._slots, self._seconds, self._position = slots, seconds, position
        self._guard = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._busy: set[str] = set()
        self._builds = 0
        self._closed = False
        self._random = random.Random(1)
        #: Seconds that hosts were busy, all together.
        self.worked = 0.0
        self._thread = threading.Thread(target=self._pass_time, daemon=True)
        self._thread.start()

    def hosts(self) -> Sequence[HostInfo]:
        return tuple(self._hosts.values())

    def build_slots(self) -> int:
        return self._slots

    def room(self) -> Room:
        with self._guard:
            free = tuple(name for name in self._hosts if name not in self._busy)
            return Room(self._hosts, free, self._slots - self._builds)

    def submit_build(self, request: BuildRequest, done: Callable[[BuildDone], None]) -> None:
        content = f"{request.commit}\n{request.tree}\n".encode()
        wheel = request.work_dir / f"simulated-{request.tree[:12]}.whl"
        wheel.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        result = BuildSuccess(wheel, digest, len(content), self._seconds)
        self._builds += 1

        def end() -> None:
            self._builds -= 1
            done(BuildDone(request.id, result))

        self._after(self._seconds, end)

    def submit_run(self, request: RunRequest, done: Callable[[RunDone], None]) -> None:
        sha = request.wheel.read_text().splitlines()[0]
        level = 9000.0 if self._position[sha] < len(self._position) // 2 else 7000.0
        value = level * self._random.lognormvariate(0.0, 0.01)
        with self._guard:
            self._busy.add(request.host)

        def end() -> None:
            self.worked += self._seconds
            self._busy.discard(request.host)
            done(RunDone(request.id, RunSuccess(value, (value,), self._seconds)))

        self._after(self._seconds, end)

    def reattach(self, orphan: Orphan, done: Callable[[Any], None]) -> None:
        raise NotImplementedError

    def recorded(self, work_id: str) -> None: ...

    def let_go(self, work_id: str) -> None: ...

    def cancel(self, work_id: str) -> None: ...

    def detach(self) -> None:
        self.close()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._guard.notify()
        self._thread.join()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        with self._guard:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), what))
            self._guard.notify()

    def _pass_time(self) -> None:
        while True:
            with self._guard:
                if self._closed:
                    return
                wait = self._due[0][0] - time.monotonic() if self._due else 1.0
                if wait > 0:
                    self._guard.wait(wait)
                    continue
                what = heapq.heappop(self._due)[2]
            what()


def simulated(bisections: int, hosts: int, seconds: float, commits: int) -> None:
    """Conduct many bisections at once, and tell what became of them."""
    with tempfile.TemporaryDirectory(prefix="perfbisect-") as name:
        directory = Path(name)
        (directory / "perfbisect.toml").write_text(PROJECT)
        repository = make_repository(directory / "repository", commits)
        services = Services.open(Settings(data_dir=directory / "data"))
        rng = random.Random(2)
        for number in range(bisections):
            # Ends of their own, so that they share few builds and points.
            low, high = rng.randrange(commits // 4), commits - rng.randrange(commits // 4)
            request = request_for(
                repository,
                good=repository.shas[low],
                bad=repository.shas[high],
                env={"NUMBER": str(number)},
            )
            submit(
                services,
                request,
                requested_by="benchmark",
                origin="command line",
                base_dir=directory,
                allow_local=True,
            )
        position = {sha: index for index, sha in enumerate(repository.shas)}
        engine = SimulatedCluster(hosts, hosts // 4 or 1, 1.0, position)
        conductor = Conductor(services, engine)
        cpu, began = time.process_time(), time.monotonic()
        conductor.start()
        while time.monotonic() - began < seconds and _unfinished(services):
            time.sleep(0.5)
        took, spent = time.monotonic() - began, time.process_time() - cpu
        conductor.stop()
        _tell(services, engine, hosts, took, spent)
        services.close()


def _unfinished(services: Services) -> int:
    with services.database.read() as session:
        found = select(func.count()).select_from(BisectionRow)
        return session.scalar(found.where(BisectionRow.state != "finished")) or 0


def _tell(
    services: Services, engine: SimulatedCluster, hosts: int, took: float, spent: float
) -> None:
    with services.database.read() as session:
        builds = session.scalar(select(func.count()).select_from(BuildRow)) or 0
        points = session.scalar(select(func.count()).select_from(PointRow)) or 0
        outcomes = session.execute(
            select(BisectionRow.outcome, func.count()).group_by(BisectionRow.outcome)
        ).all()
    actions = max(builds + points, 1)
    print(f"{took:.0f} s: {points} points, {builds} builds; {points / took:.1f} points/s")
    print(f"hosts busy {100 * engine.worked / took / hosts:.0f}% of the time")
    print(f"{1000 * spent / actions:.0f} ms of processor per action, all threads")
    print("outcomes:", ", ".join(f"{name or 'unfinished'} {count}" for name, count in outcomes))


def on_ray(nodes: int, runs: int) -> None:
    """Measure the throughput of one-second runs on one node and on several."""
    with tempfile.TemporaryDirectory(prefix="perfbisect-") as name:
        directory = Path(name)
        project = make_project(directory / "project", [900.0, 600.0])
        history = open_mirror(str(project.repository), directory / "mirrors", allow_local=True)
        (mirror,) = (directory / "mirrors").glob("*.git")
        with cluster(**{RUN_SECONDS: "1"}) as made:
            for number in range(nodes):
                made.start_node(f"node-{number}", pool="pool")
            engine = RayEngine(made.address, parts=PARTS)
            until(
                lambda: len(engine.room().hosts) == nodes and engine.build_slots() > 0,
                "all nodes",
                seconds=300,
                meanwhile=made.revive,
            )
            news: queue.SimpleQueue[BuildDone | RunDone] = queue.SimpleQueue()
            work_dir = directory / "work"
            work_dir.mkdir()
            sha = project.shas[0]
            recipe = recipe_from_dict(
                {"name": "copy", "kind": "command", "docker": False, "command": "true"}
            )
            tree = history.commit(sha).tree
            order = BuildRequest(
                "build", mirror, sha, tree, recipe, work_dir, directory / "build.log", directory
            )
            engine.submit_build(order, news.put)
            wheel = news.get().result
            assert isinstance(wheel, BuildSuccess)
            hosts = sorted(engine.room().hosts)
            # Agents start, and the wheel travels, before the clock runs.
            _throughput(engine, wheel, hosts, len(hosts), directory, "warm")
            one = _throughput(engine, wheel, hosts[:1], runs // nodes, directory, "one")
            all_of_them = _throughput(engine, wheel, hosts, runs, directory, "all")
            share = all_of_them / one / nodes
            print(f"one node: {one:.3f} runs/s, {1000 * (1 / one - 1):.0f} ms beside each run")
            print(f"{nodes} nodes: {all_of_them:.3f} runs/s = {100 * share:.1f}% of {nodes} x one")
            engine.close()


def _throughput(
    engine: RayEngine,
    wheel: BuildSuccess,
    hosts: Sequence[str],
    runs: int,
    directory: Path,
    name: str,
) -> float:
    """Run on every host, one after the other; return runs per second."""
    benchmark = benchmark_from_dict(
        {
            "name": "read",
            "command": "true",
            "unit": "images/s",
            "metric": {"reader": "regex", "pattern": "([0-9]+)"},
        }
    )
    news: queue.SimpleQueue[RunDone] = queue.SimpleQueue()
    numbers = iter(range(runs))
    host_of: dict[str, str] = {}

    def begin(host: str) -> None:
        number = next(numbers, None)
        if number is None:
            return
        work_id = f"{name}-{number}"
        host_of[work_id] = host
        place, log = directory / work_id, directory / f"{work_id}.log"
        order = RunRequest(
            work_id, wheel.path, wheel.sha256, benchmark, directory, host, place, log, directory
        )
        engine.submit_run(order, news.put)

    began = time.monotonic()
    for host in hosts:
        begin(host)
    for _ in range(runs):
        done = news.get()
        assert isinstance(done.result, RunSuccess), done.result
        engine.recorded(done.id)
        begin(host_of[done.id])
    return runs / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("simulated")
    one.add_argument("--bisections", type=int, default=200)
    one.add_argument("--hosts", type=int, default=100)
    one.add_argument("--seconds", type=float, default=120.0)
    one.add_argument("--commits", type=int, default=400)
    other = commands.add_parser("ray")
    other.add_argument("--nodes", type=int, default=4)
    other.add_argument("--runs", type=int, default=40)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    if chosen.what == "simulated":
        simulated(chosen.bisections, chosen.hosts, chosen.seconds, chosen.commits)
    else:
        on_ray(chosen.nodes, chosen.runs)


if __name__ == "__main__":
    main()
