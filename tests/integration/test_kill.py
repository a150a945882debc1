"""kill -9, Ctrl-C and a polite kill: nothing that is stored is lost, repeated or left behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
import psutil
import pytest
from sqlalchemy import select
from tests.helpers.command_line import Ended, Project, call, make_project, start

from perfbisect.processes import MARKER
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.tables import BisectionRow, BuildRow, PointRow, RunRow

CULPRIT = 8

T = TypeVar("T")
Launch = Callable[[Sequence[str]], subprocess.Popen[str]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Twelve commits with a drop of a third, whose builds and runs take a moment."""
    project = make_project(tmp_path, [900.0] * CULPRIT + [600.0] * 5)
    project.write_config(build_seconds=0.7, run_seconds=0.4)
    return project


@pytest.fixture
def services(project: Project) -> Iterator[Services]:
    """The project's database, watched from outside."""
    opened = Services.open(Settings(data_dir=project.data_dir))
    yield opened
    opened.close()


@pytest.fixture
def started(project: Project) -> Iterator[list[subprocess.Popen[str]]]:
    """Every process that a test started, so that a failing test leaves none behind."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def launch(project: Project, started: list[subprocess.Popen[str]]) -> Launch:
    """Start the command line as a process of its own, in the project's directory."""

    def launched(arguments: Sequence[str]) -> subprocess.Popen[str]:
        started.append(start(arguments, project.directory))
        return started[-1]

    return launched


def wait_for(what: Callable[[], T], process: subprocess.Popen[str]) -> T:
    """Wait until something is so and return it; the process must not end before."""
    while not (found := what()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return found


def marked() -> set[str]:
    """The ids of builds and runs of which processes are alive on this machine."""
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(process.environ().get(MARKER, ""))
        except (psutil.Error, OSError):
            continue
    return found - {""}


def in_the_middle(services: Services, kind: type[BuildRow] | type[RunRow]) -> str:
    """The id of a build or run that is under way, when three points are stored; else ''."""
    with services.database.read() as session:
        if len(session.scalars(select(PointRow.id)).all()) < 3:
            return ""
        found = session.scalars(select(kind.id).where(kind.state == "running")).first()
    return found if found and found in marked() else ""


def stored(services: Services) -> dict[str, set[str]]:
    """The ids of everything that is finished."""
    with services.database.read() as session:
        return {
            "builds": set(
                session.scalars(select(BuildRow.id).where(BuildRow.state == "succeeded"))
            ),
            "runs": set(session.scalars(select(RunRow.id).where(RunRow.state == "succeeded"))),
            "points": set(session.scalars(select(PointRow.id))),
        }


def finish(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=300)
    return Ended(process.returncode, out, err)


def assert_answered_once(services: Services, project: Project, before: dict[str, set[str]]) -> None:
    """The right answer, on top of what was stored, and no tree was built twice."""
    with services.database.read() as session:
        rows = session.scalars(select(BisectionRow)).all()
        assert [row.state for row in rows] == ["finished"]
        verdict = rows[0].verdict
        trees = session.scalars(select(BuildRow.tree).where(BuildRow.state == "succeeded")).all()
        runs = session.scalars(select(PointRow.run_id)).all()
    assert verdict is not None
    assert [c["commits"] for c in verdict["culprits"]] == [[project.shas[CULPRIT]]]
    assert len(trees) == len(set(trees))
    assert len(runs) == len(set(runs))
    after = stored(services)
    assert all(before[kind] <= after[kind] for kind in before)


@pytest.mark.parametrize("kind", [BuildRow, RunRow], ids=["build", "run"])
def test_kill_9(
    project: Project, services: Services, launch: Launch, kind: type[BuildRow] | type[RunRow]
) -> None:
    """Killed in the middle of a build or a run, the same command goes on and repeats nothing."""
    arguments = [*project.arguments, "--json"]
    process = launch(arguments)
    under_way = wait_for(lambda: in_the_middle(services, kind), process)
    process.kill()
    process.communicate()
    before = stored(services)

    again = finish(launch(arguments))
    assert again.code == 0, again.err
    assert "Resuming bisection" in again.err
    assert_answered_once(services, project, before)
    with services.database.read() as session:
        work = session.get(BuildRow, under_way) or session.get(RunRow, under_way)
        assert work is not None
        assert work.state == "lost"
    assert under_way not in marked()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_end(
    project: Project, services: Services, launch: Launch, number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM end all work, print the state as JSON, and leave it to be resumed."""
    arguments = [*project.arguments, "--json"]
    process = launch(arguments)
    wait_for(lambda: in_the_middle(services, BuildRow), process)
    process.send_signal(number)
    ended = finish(process)
    assert ended.code == 1, ended.err
    assert ended.json["outcome"] is None
    assert "Interrupted" in ended.err
    with services.database.read() as session:
        ours = set(session.scalars(select(BuildRow.id))) | set(session.scalars(select(RunRow.id)))
        assert not ours & marked()
        assert session.scalars(select(BisectionRow.lease_owner)).all() == [None]
        states = session.scalars(select(BuildRow.state)).all()
        assert "running" not in states
        assert "cancelled" in states
    before = stored(services)
    again = finish(launch(arguments))
    assert again.code == 0, again.err
    assert_answered_once(services, project, before)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        assert isinstance(port, int)
        return port


def serve(launch: Launch, project: Project, port: int) -> subprocess.Popen[str]:
    """Start the service and wait until it answers."""
    arguments = ["serve", f"--port={port}", f"--data-dir={project.data_dir}"]
    process = launch(arguments)

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
        except httpx.TransportError:
            return False

    wait_for(answers, process)
    return process


def test_kill_9_of_the_service(project: Project, services: Services, launch: Launch) -> None:
    """What a killed command or service left unfinished, the next service finishes by itself."""
    process = launch([*project.arguments, "--json"])
    wait_for(lambda: in_the_middle(services, RunRow), process)
    process.kill()
    process.communicate()

    port = free_port()
    first = serve(launch, project, port)
    count = len(stored(services)["points"])
    wait_for(lambda: len(stored(services)["points"]) > count + 1, first)
    first.kill()
    first.communicate()
    before = stored(services)

    second = serve(launch, project, port)
    try:
        with services.database.read() as session:
            bisection_id = session.scalars(select(BisectionRow.id)).one()
        server = f"--server=http://127.0.0.1:{port}"
        watched = finish(start(["watch", bisection_id, server, "--json"], project.directory))
        assert watched.code == 0, watched.err
        assert watched.json["outcome"] == "culprits"
        assert_answered_once(services, project, before)
    finally:
        second.terminate()
        ended = finish(second)
    assert ended.code == 0, ended.err


def test_commands_against_a_server(project: Project, launch: Launch) -> None:
    """Submit, status, cancel and report speak with a real server, in JSON and for people."""
    first = finish(launch([*project.arguments, "--json"]))
    assert first.code == 0, first.err
    port = free_port()
    process = serve(launch, project, port)
    server = f"--server=http://127.0.0.1:{port}"

    def ask(*arguments: str) -> Ended:
        return call([*arguments, server], project.directory)

    try:
        known = ["--repo=repository", "--recipe=copy", "--benchmark=read"]
        ends = [f"--good={project.shas[0]}", f"--bad={project.shas[-1]}"]
        submitted = ask("submit", *known, *ends, "--key=one", "--wait", "--json")
        assert submitted.code == 0, submitted.err
        culprits = [c["commits"] for c in submitted.json["culprits"]]
        assert culprits == [[project.shas[CULPRIT]]]
        same = ask("submit", *known, *ends, "--key=one", "--json")
        assert same.json["id"] == submitted.json["id"]

        newest = ask("status", "--json").json["items"]
        assert newest[0]["id"] == submitted.json["id"]
        assert project.shas[CULPRIT][:10] in ask("status", submitted.json["id"]).out
        markdown = ask("report", submitted.json["id"]).out
        assert markdown.startswith("# Bisection")
        assert "## Decisions" in markdown
        finished = ask("cancel", submitted.json["id"])
        assert finished.code == 2
        assert "finished" in finished.err
        wrong = ask("submit", *known, "--good=--output=x", f"--bad={project.shas[-1]}")
        assert wrong.code == 2
        assert "--output=x" in wrong.err
    finally:
        process.terminate()
        ended = finish(process)
    assert ended.code == 0, ended.err
