"""The conductor on a real repository and database, with scripted builds and runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.helpers.conducting import (
    SmallRepository,
    make_conductor,
    make_repository,
    open_services,
    request_for,
)

from perfbisect.core.states import FailureKind, WorkState
from perfbisect.ports import BuildRequest, Failure
from perfbisect.services import Services, request_cancel
from perfbisect.store.tables import BisectionRow, BuildRow, DecisionRow, PointRow, RunRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    return make_repository(tmp_path / "repository", 40)


def start(
    services: Services, repository: SmallRepository, tmp_path: Path, **options: object
) -> str:
    submitted = submit(
        services,
        request_for(repository, **options),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    return submitted.id


def load(services: Services, bisection_id: str) -> BisectionRow:
    with services.database.read() as session:
        return session.get_one(BisectionRow, bisection_id)


def stepped(
    repository: SmallRepository, *steps: tuple[int, float], start: float = 9000.0
) -> ScriptedRunner:
    def value(sha: str) -> float:
        level = start
        for position, factor in steps:
            if repository.position(sha) >= position:
                level *= factor
        return level

    return ScriptedRunner(value, noise=0.01, seed=7)


def test_the_culprit_is_found_verified_and_stored(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """One step: the culprit is named, each tree is built once, every choice has its reason."""
    bisection_id = start(services, repository, tmp_path)
    builder = ScriptedBuilder()
    conductor = make_conductor(services, builder, stepped(repository, (23, 0.5)), tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    row = load(services, bisection_id)
    assert row.outcome == "culprits"
    assert row.verdict is not None
    (culprit,) = row.verdict["culprits"]
    assert culprit["commits"] == [repository.shas[23]]
    assert culprit["verified"] is True
    assert culprit["kind"] == "regression"
    assert culprit["change"] == pytest.approx(-0.5, abs=0.02)
    trees = [request.tree for request in builder.requests]
    assert len(trees) == len(set(trees))
    with services.database.read() as session:
        reasons = session.scalars(
            select(DecisionRow.reason).where(DecisionRow.bisection_id == bisection_id)
        ).all()
        points = session.scalar(select(func.count()).select_from(PointRow))
    assert all(reasons)
    assert row.verdict["points"] == points
    assert row.verdict["builds"] == len(trees)


def test_layered_steps_are_all_found(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A regression, a recovery and another regression are three culprits with their kinds."""
    bisection_id = start(services, repository, tmp_path)
    runner = stepped(repository, (9, 0.4), (21, 2.2), (33, 0.7))
    conductor = make_conductor(services, ScriptedBuilder(), runner, tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    verdict = load(services, bisection_id).verdict
    assert verdict is not None
    found = [(repository.position(c["commits"][0]), c["kind"]) for c in verdict["culprits"]]
    assert found == [(9, "regression"), (21, "recovery"), (33, "regression")]
    assert verdict["explained"]["steps"] == pytest.approx(verdict["explained"]["total"], abs=0.05)


def test_unbuildable_neighbours_make_a_set(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Where the commits around a step do not build, the answer is the set that holds it."""
    broken = {repository.shas[position] for position in (18, 19)}

    def fails(request: BuildRequest) -> Failure | None:
        if request.commit in broken:
            return Failure(FailureKind.PERMANENT, "error: no such header", ("x.cc:1: error",))
        return None

    bisection_id = start(services, repository, tmp_path)
    conductor = make_conductor(
        services, ScriptedBuilder(fails), stepped(repository, (19, 0.6)), tmp_path
    )
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    verdict = load(services, bisection_id).verdict
    assert verdict is not None
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == [repository.shas[position] for position in (18, 19, 20)]


def test_equal_ends_are_not_reproduced_without_further_builds(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """No change between the ends: two builds, few runs, an interval, no culprit."""
    bisection_id = start(services, repository, tmp_path)
    builder = ScriptedBuilder()
    conductor = make_conductor(services, builder, stepped(repository), tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    row = load(services, bisection_id)
    assert row.outcome == "not_reproduced"
    assert len(builder.requests) == 2
    assert row.verdict is not None
    assert row.verdict["culprits"] == []
    assert row.verdict["runs"] <= 14


def test_a_mistaken_benchmark_stops_the_bisection(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A failure of ours ends it at once, with the message and the telling lines."""
    mistake = Failure(FailureKind.OURS, "pattern never matched", ("last line",))
    runner = ScriptedRunner(lambda _: mistake)
    bisection_id = start(services, repository, tmp_path)
    conductor = make_conductor(services, ScriptedBuilder(), runner, tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    row = load(services, bisection_id)
    assert row.outcome == "failed"
    assert row.error is not None
    assert row.error["code"] == "bad-input"
    assert row.error["field"] == "benchmark"
    assert "pattern never matched" in row.error["message"]
    assert row.error["lines"] == ["last line"]
    assert len(runner.requests) == 1


def test_an_end_that_does_not_build_is_said(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """When the bad end does not build, the bisection fails with the build's own words."""
    bad = repository.shas[-1]

    def fails(request: BuildRequest) -> Failure | None:
        if request.commit == bad:
            return Failure(FailureKind.PERMANENT, "a.cc:3: error: expected ';'", ("a.cc:3",))
        return None

    bisection_id = start(services, repository, tmp_path)
    conductor = make_conductor(
        services, ScriptedBuilder(fails), stepped(repository, (19, 0.6)), tmp_path
    )
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    row = load(services, bisection_id)
    assert row.outcome == "failed"
    assert row.error is not None
    assert row.error["code"] == "end_unbuildable"
    assert "expected ';'" in row.error["message"]


def test_transient_failures_are_tried_again(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A build that fails for want of network is repeated and does not count as unbuildable."""
    failed: list[str] = []

    def fails(request: BuildRequest) -> Failure | None:
        if request.commit == repository.shas[0] and not failed:
            failed.append(request.commit)
            return Failure(FailureKind.TRANSIENT, "network unreachable")
        return None

    bisection_id = start(services, repository, tmp_path)
    conductor = make_conductor(
        services, ScriptedBuilder(fails), stepped(repository, (19, 0.6)), tmp_path
    )
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    row = load(services, bisection_id)
    assert row.outcome == "culprits"
    with services.database.read() as session:
        attempts = session.scalars(
            select(BuildRow.attempt)
            .where(BuildRow.commit_sha == repository.shas[0])
            .order_by(BuildRow.id)
        ).all()
    assert list(attempts) == [1, 2]


def test_cancelling_ends_what_runs(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A cancelled bisection ends while its build is under way, which is cancelled with it."""
    bisection_id = start(services, repository, tmp_path)
    conductor = make_conductor(
        services, ScriptedBuilder(seconds=60), stepped(repository, (19, 0.6)), tmp_path
    )
    asked: list[bool] = []

    def cancel_once_building() -> None:
        with services.database.read() as session:
            building = session.scalar(
                select(BuildRow.id).where(BuildRow.state == WorkState.RUNNING)
            )
        if building and not asked:
            asked.append(True)
            request_cancel(services, bisection_id)

    conductor.conduct_until_finished(bisection_id, cancel_once_building)
    conductor.stop()
    assert load(services, bisection_id).outcome == "cancelled"
    with services.database.read() as session:
        states = session.scalars(select(BuildRow.state)).all()
    assert set(states) == {WorkState.CANCELLED}


def test_a_second_conductor_goes_on_where_the_first_stopped(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Stopping and starting again repeats no build and loses no point."""
    bisection_id = start(services, repository, tmp_path)
    runner = stepped(repository, (23, 0.5))
    builder = ScriptedBuilder()
    first = make_conductor(services, builder, runner, tmp_path)

    def stop_after_some() -> None:
        if len(runner.requests) >= 7:
            first.request_stop()

    first.conduct_until_finished(bisection_id, stop_after_some)
    first.stop()
    assert load(services, bisection_id).state == "running"
    with services.database.read() as session:
        before = session.scalar(select(func.count()).select_from(PointRow))
    second = make_conductor(services, builder, runner, tmp_path)
    second.conduct_until_finished(bisection_id)
    second.stop()
    row = load(services, bisection_id)
    assert row.outcome == "culprits"
    assert row.verdict is not None
    assert row.verdict["culprits"][0]["commits"] == [repository.shas[23]]
    trees = [request.tree for request in builder.requests]
    assert len(trees) == len(set(trees))
    with services.database.read() as session:
        points = session.scalar(select(func.count()).select_from(PointRow))
        runs = session.scalars(select(RunRow.state)).all()
    assert before is not None
    assert points is not None
    assert points > before >= 6
    assert all(state in (WorkState.SUCCEEDED, WorkState.CANCELLED) for state in runs)


def test_the_same_request_again_resumes_or_reuses(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """An unfinished request is found again; a finished one's wheels and points are used."""
    bisection_id = start(services, repository, tmp_path)
    again = submit(
        services,
        request_for(repository),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
        resume=True,
    )
    assert again.id == bisection_id
    assert again.resumed
    builder, runner = ScriptedBuilder(), stepped(repository, (23, 0.5))
    conductor = make_conductor(services, builder, runner, tmp_path)
    conductor.conduct_until_finished(bisection_id)
    runs = len(runner.requests)
    builds = len(builder.requests)
    later = start(services, repository, tmp_path)
    assert later != bisection_id
    conductor.conduct_until_finished(later)
    conductor.stop()
    row = load(services, later)
    assert row.verdict is not None
    assert row.verdict["culprits"][0]["commits"] == [repository.shas[23]]
    assert len(builder.requests) == builds
    assert len(runner.requests) - runs < runs
