"""The engine of a real Ray cluster: several nodes, each a process of its own on this machine."""

from __future__ import annotations

import queue
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select
from tests.helpers.clusters import HEAD, STORE, Cluster, cluster, kill_tree
from tests.helpers.command_line import CONFIG, Project, make_project
from tests.helpers.ray_parts import BUILD_SECONDS, PARTS, RUN_SECONDS, WHEEL_BYTES
from tests.helpers.waiting import until

from perfbisect.conductor import Conductor
from perfbisect.config import benchmark_from_dict, recipe_from_dict
from perfbisect.core.states import FailureKind, WorkState
from perfbisect.history import open_mirror
from perfbisect.ports import (
    BuildDone,
    BuildRequest,
    BuildSuccess,
    Failure,
    Orphan,
    RunDone,
    RunRequest,
    RunSuccess,
)
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.tables import BisectionRow, BuildRow, DecisionRow, PointRow, RunRow
from perfbisect.submission import submit

pytest.importorskip("ray", reason="the extra 'ray' is not installed")

from perfbisect.engines.ray import RayEngine

CULPRIT = 6
VALUES = [900.0] * CULPRIT + [600.0] * 5
POOL = "small"
#: Seconds that a host may be away.
GRACE = 4.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """A head that builds, and two hosts that run."""
    with cluster(**{BUILD_SECONDS: "0.1", RUN_SECONDS: "0.3"}) as found:
        found.start_node("run-a", pool=POOL)
        found.start_node("run-b", pool=POOL)
        yield found


@pytest.fixture
def engine(nodes: Cluster) -> Iterator[RayEngine]:
    """An engine that sees all three."""
    made = connected(nodes)
    yield made
    made.close()


def connected(nodes: Cluster) -> RayEngine:
    made = RayEngine(nodes.address, grace=GRACE, parts=PARTS)
    until(
        lambda: set(made.room().hosts) == {"run-a", "run-b"} and made.build_slots() == 2,
        "all nodes in the engine's view",
        seconds=240,
        meanwhile=nodes.revive,
    )
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project", VALUES)


class Order:
    """Requests for one repository, with directories of their own."""

    def __init__(self, directory: Path, project: Project) -> None:
        self.directory = directory
        mirrors = directory / "mirrors"
        self.history = open_mirror(str(project.repository), mirrors, allow_local=True)
        (self.mirror,) = mirrors.glob("*.git")
        self.shas = project.shas
        self.news: queue.SimpleQueue[BuildDone | RunDone] = queue.SimpleQueue()
        self.prefix = directory.name

    def build(self, name: str, position: int, size: int = 0) -> BuildRequest:
        sha = self.shas[position]
        work_dir = self.directory / "work" / name
        work_dir.mkdir(parents=True)
        return BuildRequest(
            id=f"{self.prefix}-{name}",
            mirror=self.mirror,
            commit=sha,
            tree=self.history.commit(sha).tree,
            recipe=recipe_from_dict(
                {
                    "name": "copy",
                    "kind": "command",
                    "docker": False,
                    "command": "true",
                    "env": {WHEEL_BYTES: str(size)},
                }
            ),
            work_dir=work_dir,
            log_path=self.directory / f"{name}.log",
            cache_dir=self.directory / "cache",
        )

    def run(self, name: str, wheel: BuildSuccess, host: str) -> RunRequest:
        return RunRequest(
            id=f"{self.prefix}-{name}",
            wheel=wheel.path,
            wheel_sha256=wheel.sha256,
            benchmark=benchmark_from_dict(
                {
                    "name": "read",
                    "command": "true",
                    "unit": "images/s",
                    "metric": {"reader": "regex", "pattern": "([0-9]+)"},
                }
            ),
            benchmark_dir=self.directory,
            host=host,
            work_dir=self.directory / "work" / name,
            log_path=self.directory / f"{name}.log",
            cache_dir=self.directory / "cache",
        )

    def next(self) -> BuildDone | RunDone:
        return self.news.get(timeout=120)

    def built(self, engine: RayEngine, name: str, position: int, size: int = 0) -> BuildSuccess:
        engine.submit_build(self.build(name, position, size), self.news.put)
        result = self.next().result
        assert isinstance(result, BuildSuccess), result
        return result


def test_a_wheel_travels_from_its_builder_to_its_hosts(
    engine: RayEngine, project: Project, tmp_path: Path
) -> None:
    """A host without any repository builds a commit; two others measure its wheel; logs follow."""
    order = Order(tmp_path, project)
    wheel = order.built(engine, "build", CULPRIT)
    assert wheel.environment["host"] == HEAD
    assert wheel.path.stat().st_size == wheel.size
    assert f"building {project.shas[CULPRIT]}" in (tmp_path / "build.log").read_text()
    for host in ("run-a", "run-b"):
        engine.submit_run(order.run(host, wheel, host), order.news.put)
    results = {each.id: each.result for each in (order.next(), order.next())}
    for host in ("run-a", "run-b"):
        result = results[f"{order.prefix}-{host}"]
        assert isinstance(result, RunSuccess)
        assert result.value == pytest.approx(600.0, rel=0.1)
        assert "value:" in (tmp_path / f"{host}.log").read_text()


def test_a_host_runs_one_thing_at_a_time(
    engine: RayEngine, project: Project, tmp_path: Path
) -> None:
    """While a run is under way its host is not free, and the other one is."""
    order = Order(tmp_path, project)
    wheel = order.built(engine, "build", 0)
    engine.submit_run(order.run("first", wheel, "run-a"), order.news.put)
    assert engine.room().free_hosts == ("run-b",)
    assert isinstance(order.next().result, RunSuccess)
    assert set(engine.room().free_hosts) == {"run-a", "run-b"}


def test_cancelled_work_is_gone(engine: RayEngine, project: Project, tmp_path: Path) -> None:
    """A cancelled run ends without a result, and its host is free again."""
    order = Order(tmp_path, project)
    wheel = order.built(engine, "build", 0)
    request = order.run("run", wheel, "run-a")
    engine.submit_run(request, order.news.put)
    engine.cancel(request.id)
    assert order.next() == RunDone(request.id, None)
    assert "run-a" in engine.room().free_hosts


def test_a_worker_joins_and_leaves(nodes: Cluster, engine: RayEngine, tmp_path: Path) -> None:
    """The command makes this machine a host of its pool; SIGTERM ends it, and nothing is left."""
    command = [sys.executable, "-m", "perfbisect", "worker", f"--ray-address={nodes.address}"]
    command += ["--pool=late", "--host=late", f"--object-store={STORE}"]
    variables = {**nodes.environment, "PERFBISECT_DATA_DIR": str(tmp_path / "data")}
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
    try:
        until(lambda: "late" in engine.room().hosts, "the worker's node", seconds=240)
        assert engine.room().hosts["late"].pool == "late"
        family = psutil.Process(worker.pid).children(recursive=True)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(120) == 0, (tmp_path / "worker.log").read_text()
        until(lambda: "late" not in engine.room().hosts, "that the node is gone")
        assert psutil.wait_procs(family, timeout=20)[1] == []
    finally:
        kill_tree(worker)


def test_the_next_process_picks_up_what_finished_meanwhile(
    nodes: Cluster, project: Project, tmp_path: Path
) -> None:
    """An engine that is left with a run under way: another one gets its result, and its log."""
    order = Order(tmp_path, project)
    first = connected(nodes)
    wheel = order.built(first, "build", 0)
    first.recorded(f"{order.prefix}-build")
    request = order.run("run", wheel, "run-b")
    first.submit_run(request, order.news.put)
    until(lambda: (tmp_path / "run.log").exists(), "the run's first line")
    first.detach()
    second = connected(nodes)
    orphan = Orphan(request.id, "run-b", tmp_path / "elsewhere", tmp_path / "run.log")
    second.reattach(orphan, order.news.put)
    news = order.next()
    assert news.id == request.id
    assert isinstance(news.result, RunSuccess)
    assert (tmp_path / "run.log").read_text().count("running") == 1
    second.recorded(request.id)
    # A build may be anywhere: it is found, or it is lost, but nobody waits for ever.
    unknown = Orphan(f"{order.prefix}-none", "", tmp_path / "elsewhere", tmp_path / "none.log")
    second.reattach(unknown, order.news.put)
    lost = order.next().result
    assert isinstance(lost, Failure)
    assert lost.kind is FailureKind.TRANSIENT
    second.close()


def test_more_than_the_object_store_holds(
    engine: RayEngine, project: Project, tmp_path: Path
) -> None:
    """A wheel larger than any node's object store is built, fetched, sent on and measured."""
    order = Order(tmp_path, project)
    wheel = order.built(engine, "large", 0, size=STORE + 20_000_000)
    assert wheel.size > STORE
    engine.submit_run(order.run("run", wheel, "run-a"), order.news.put)
    result = order.next().result
    assert isinstance(result, RunSuccess), result
    shutil.rmtree(tmp_path / "work")


# ---------------------------------------------------------------------- with a conductor


@pytest.fixture
def services(project: Project) -> Iterator[Services]:
    text = CONFIG.format(build="true", run_seconds=0)
    (project.directory / "perfbisect.toml").write_text(text)
    opened = Services.open(Settings(data_dir=project.data_dir))
    yield opened
    opened.close()


def submitted(services: Services, project: Project) -> str:
    request = BisectionRequest(
        repository=str(project.repository),
        good=project.shas[0],
        bad=project.shas[-1],
        recipe="copy",
        benchmark="read",
        prove=False,
    )
    return submit(
        services,
        request,
        requested_by="tester",
        origin="command line",
        base_dir=project.directory,
        allow_local=True,
    ).id


def conductor_of(services: Services, nodes: Cluster) -> Conductor:
    return Conductor(services, connected(nodes), host_grace=GRACE, detach=True)


def assert_answered(services: Services, bisection_id: str, project: Project) -> None:
    """The right culprit, each point once, and no tree built twice."""
    with services.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
        assert row.outcome == "culprits", row.verdict
        assert row.verdict is not None
        runs = session.scalars(select(PointRow.run_id)).all()
        trees = session.scalars(
            select(BuildRow.tree).where(BuildRow.state == WorkState.SUCCEEDED)
        ).all()
    assert [c["commits"] for c in row.verdict["culprits"]] == [[project.shas[CULPRIT]]]
    assert len(runs) == len(set(runs))
    assert len(trees) == len(set(trees))


def points(services: Services) -> int:
    with services.database.read() as session:
        return len(session.scalars(select(PointRow.id)).all())


def test_a_bisection_stays_on_its_host_and_survives_its_server(
    nodes: Cluster, services: Services, project: Project
) -> None:
    """It is measured on one host, pinned; a server that stops in the middle loses nothing."""
    bisection_id = submitted(services, project)
    first = conductor_of(services, nodes)
    first.start()
    until(lambda: points(services) >= 3, "three points")
    first.stop()
    with services.database.read() as session:
        # What was under way goes on, for the next server.
        states = session.scalars(select(RunRow.state)).all()
    assert WorkState.CANCELLED not in states
    second = conductor_of(services, nodes)
    second.conduct_until_finished(bisection_id)
    second.stop()
    assert_answered(services, bisection_id, project)
    with services.database.read() as session:
        hosts = set(session.scalars(select(PointRow.host)))
        pin = session.get_one(BisectionRow, bisection_id).pinned_host
        run_states = session.scalars(select(RunRow.state)).all()
    assert hosts == {pin}
    assert set(run_states) == {WorkState.SUCCEEDED}


def test_a_lost_host_makes_a_bisection_move_and_measure_both_ends_again(
    nodes: Cluster, services: Services, project: Project
) -> None:
    """Its node is killed during a run: that run is transient, and another host begins afresh."""
    bisection_id = submitted(services, project)
    conductor = conductor_of(services, nodes)
    killed: list[str] = []

    def kill_once() -> None:
        with services.database.read() as session:
            pin = session.get_one(BisectionRow, bisection_id).pinned_host
            running = session.scalar(select(RunRow.id).where(RunRow.state == WorkState.RUNNING))
        if not killed and pin and running and points(services) >= 5:
            killed.append(pin)
            nodes.kill_node(pin)

    conductor.conduct_until_finished(bisection_id, kill_once)
    conductor.stop()
    (lost,) = killed
    nodes.start_node(lost, pool=POOL)
    assert_answered(services, bisection_id, project)
    with services.database.read() as session:
        found = session.scalars(select(PointRow).order_by(PointRow.id)).all()
        notes = session.scalars(select(DecisionRow.reason).where(DecisionRow.kind == "note")).all()
        failed = session.scalars(
            select(RunRow.failure_kind).where(RunRow.state == WorkState.FAILED)
        ).all()
    assert set(failed) == {FailureKind.TRANSIENT}
    (other,) = {"run-a", "run-b"} - {lost}
    fresh = [point for point in found if point.host == other]
    assert {point.commit_sha for point in fresh[:2]} == {project.shas[0], project.shas[-1]}
    (note,) = notes
    assert lost in note
    assert other in note


def test_a_head_that_is_restarted(nodes: Cluster, services: Services, project: Project) -> None:
    """The whole cluster goes away in the middle of a search and comes back: the answer is right."""
    bisection_id = submitted(services, project)
    conductor = conductor_of(services, nodes)
    done: list[str] = []

    def restart_once() -> None:
        if done or points(services) < 3:
            return
        done.append("restarted")
        names = list(nodes.nodes)
        nodes.kill_head()
        for name in names:
            nodes.kill_node(name)
        nodes.start_head()
        nodes.start_node("run-a", pool=POOL)
        nodes.start_node("run-b", pool=POOL)

    conductor.conduct_until_finished(bisection_id, restart_once)
    conductor.stop()
    assert done
    assert_answered(services, bisection_id, project)
