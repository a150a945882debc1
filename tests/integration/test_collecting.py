"""Collecting what is no longer needed, and builds that wait for a full disk: on a real database."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from tests.helpers.command_line import call
from tests.helpers.conducting import make_conductor, make_repository, open_services, request_for

from perfbisect.collecting import Collector, DiskSpace
from perfbisect.core.retention import Kind, Limit
from perfbisect.core.states import BisectionState
from perfbisect.ports import BuildRequest, BuildSuccess, CancelToken, Failure
from perfbisect.services import Services
from perfbisect.store.tables import BisectionRow, EventRow, PointRow, WheelRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

DAY = 86_400.0
NOTHING = dict.fromkeys(Kind, Limit(size=0))
#: Of images, all that this machine has would go: they are other people's here.
NO_IMAGES = NOTHING | {Kind.IMAGE: Limit()}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def searched(services: Services, tmp_path: Path, **options: object) -> str:
    """Return a bisection that was conducted to its end, with wheels, logs and points."""
    repository = make_repository(tmp_path / "repository", 6)
    bisection_id = submit(
        services,
        request_for(repository),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    ).id
    runner = ScriptedRunner(
        lambda sha: 9000.0 if repository.position(sha) < 4 else 5000.0, noise=0.01
    )
    conductor = make_conductor(services, ScriptedBuilder(), runner, tmp_path, **options)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    return bisection_id


def reopen(services: Services, bisection_id: str) -> None:
    with services.database.write() as session:
        session.get_one(BisectionRow, bisection_id).state = BisectionState.RUNNING


def artifacts(services: Services) -> list[Path]:
    return [path for path in services.settings.artifacts_dir.rglob("*") if path.is_file()]


def test_an_open_bisection_loses_nothing(services: Services, tmp_path: Path) -> None:
    """With no room for anything, all wheels, trees and logs of unfinished work stay."""
    bisection_id = searched(services, tmp_path)
    reopen(services, bisection_id)
    mirror = next(services.settings.mirrors_dir.glob("*.git"))
    tree = services.settings.cache_dir / "docker" / "trees" / f"{mirror.stem}-auto-0"
    tree.mkdir(parents=True)
    (tree / "file").write_text("x")
    before = artifacts(services)
    logs = sorted(services.settings.logs_dir.glob("*.log"))
    collected = Collector(services, NO_IMAGES).collect()
    assert collected.removals == ()
    assert artifacts(services) == before
    assert sorted(services.settings.logs_dir.glob("*.log")) == logs
    assert tree.exists()


def test_finished_work_goes_and_its_points_stay(services: Services, tmp_path: Path) -> None:
    """Wheels and logs of a finished bisection go; verdict and points do not; it says so before."""
    bisection_id = searched(services, tmp_path)
    with services.database.read() as session:
        points = session.query(PointRow).count()
    planned = Collector(services, NO_IMAGES).collect(dry_run=True)
    kept = artifacts(services)
    assert {Kind.WHEEL, Kind.LOG} <= {each.item.kind for each in planned.removals}
    assert planned.size > 0
    gone = Collector(services, NO_IMAGES).collect()
    assert {each.item.handle for each in gone.removals} == {
        each.item.handle for each in planned.removals
    }
    assert len(artifacts(services)) < len(kept)
    assert list(services.settings.logs_dir.glob("*.log")) == []
    with services.database.read() as session:
        assert session.query(PointRow).count() == points
        assert session.get_one(BisectionRow, bisection_id).verdict is not None
        wheels = session.query(WheelRow).all()
    assert all(wheel.recipe_digest.startswith("gone:") for wheel in wheels)
    assert Collector(services, NO_IMAGES).collect().removals == ()


def test_a_collected_wheel_is_built_again(services: Services, tmp_path: Path) -> None:
    """Another bisection of the same range after a collection builds what it needs, and answers."""
    first = searched(services, tmp_path)
    Collector(services, NO_IMAGES).collect()
    with services.database.write() as session:
        row = session.get_one(BisectionRow, first)
        row.state, row.outcome, row.verdict = BisectionState.QUEUED, None, None
    builder = ScriptedBuilder()
    runner = ScriptedRunner(lambda sha: 9000.0, noise=0.01)
    conductor = make_conductor(services, builder, runner, tmp_path)
    conductor.conduct_until_finished(first)
    conductor.stop()
    with services.database.read() as session:
        assert session.get_one(BisectionRow, first).outcome is not None


def test_trees_go_by_age_and_a_used_one_stays(services: Services) -> None:
    """A kept tree that no build used for a month goes; one that a build holds does not."""
    trees = services.settings.cache_dir / "local" / "trees"
    month_ago = time.time() - 40 * DAY
    for name in ("a-auto-0", "b-auto-0", "c-auto-0"):
        (trees / name / "src").mkdir(parents=True)
        (trees / name / "src" / "read-only").write_text("x")
        (trees / name / "src" / "read-only").chmod(0o444)
        if name != "c-auto-0":
            os.utime(trees / name, (month_ago, month_ago))
    with FileLock(trees / "b-auto-0.lock"):
        collected = Collector(services, {Kind.TREE: Limit(days=30)}).collect()
    assert [each.item.name for each in collected.removals] == ["a-auto-0"]
    assert collected.problems == ("tree b-auto-0: a build is using it",)
    assert sorted(path.name for path in trees.iterdir() if path.is_dir()) == [
        "b-auto-0",
        "c-auto-0",
    ]


def test_caches_go_by_file_and_not_while_a_build_runs(services: Services) -> None:
    """The longest unused files of Bazel's cache go until the rest fits."""
    disk = services.settings.cache_dir / "docker" / "shared" / "bazel" / "disk-0123" / "cas"
    disk.mkdir(parents=True)
    for age, name in enumerate(("newest", "middle", "oldest")):
        (disk / name).write_bytes(b"x" * 1000)
        at = time.time() - age * DAY
        os.utime(disk / name, (at, at))
    collected = Collector(services, {Kind.BUILD_CACHE: Limit(size=1500)}).collect()
    assert [each.item.name for each in collected.removals] == ["oldest", "middle"]
    assert [path.name for path in disk.iterdir()] == ["newest"]


def test_the_command_says_what_would_go(services: Services, tmp_path: Path) -> None:
    """``gc --dry-run`` lists and removes nothing; ``gc --json`` removes and tells."""
    scratch = services.settings.work_dir / "01JZ0Q6W9N3V5C4S7T8R2X1Y0A"
    scratch.mkdir(parents=True)
    (scratch / "left").write_text("x")
    old = time.time() - 3 * DAY
    os.utime(scratch / "left", (old, old))
    os.utime(scratch, (old, old))
    data = ["--data-dir", str(services.settings.data_dir)]
    dry = call(["gc", "--dry-run", *data])
    assert "01JZ0Q6W9N3V5C4S7T8R2X1Y0A" in dry.out
    assert "would go: 1 scratch" in dry.out
    assert scratch.exists()
    done = call(["gc", "--json", *data]).json
    assert [(each["kind"], each["name"]) for each in done["removed"]] == [
        ("scratch", "01JZ0Q6W9N3V5C4S7T8R2X1Y0A")
    ]
    assert not scratch.exists()


def test_builds_wait_while_the_disk_is_full(services: Services, tmp_path: Path) -> None:
    """Nothing is built without room; once there is, the search goes on and finds its answer."""
    free = iter([100, 100, 100, *[10_000] * 100_000])
    ticks = itertools.count(0, 10)
    room = DiskSpace([tmp_path], 1000, free=lambda _: next(free), clock=lambda: float(next(ticks)))
    bisection_id = searched(services, tmp_path, no_room=room.problem)
    with services.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
        events = session.query(EventRow).filter_by(bisection_id=bisection_id).all()
    kinds = [event.kind for event in sorted(events, key=lambda each: each.id)]
    paused, resumed = kinds.index("builds_paused"), kinds.index("builds_resumed")
    assert paused < resumed < kinds.index("build_started")
    reason = next(event.data["reason"] for event in events if event.kind == "builds_paused")
    assert "the disk is nearly full: 100 B are free" in reason
    assert "PERFBISECT_MIN_FREE_SPACE" in reason
    assert row.outcome == "culprits"


def test_a_full_disk_makes_room_by_itself_once(tmp_path: Path) -> None:
    """What is no longer needed is collected as soon as it gets tight, and not again and again."""
    free, made = [100], []

    def make_room() -> None:
        made.append(1)
        free[0] = 5000 if len(made) > 1 else 100

    clock = [0.0]
    room = DiskSpace([tmp_path], 1000, make_room, free=lambda _: free[0], clock=lambda: clock[0])
    assert "nearly full" in room.problem()
    clock[0] = 60.0
    assert "nearly full" in room.problem()
    assert made == [1]
    clock[0] = 1000.0
    assert room.problem() == ""
    assert made == [1, 1]


class TellingBuilder(ScriptedBuilder):
    """Tells how far it is, and goes on once that was heard."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        request.log_path.write_text("Loading: 3 packages\n[500 / 2,000] Compiling kernel.cc\n")
        while not self._heard(request.id) and not cancel.wait(0.05):
            pass
        return super().build(request, cancel)

    def _heard(self, build_id: str) -> bool:
        with self._services.database.read() as session:
            told = session.query(EventRow).filter_by(kind="build_progress")
            return any(event.data["build_id"] == build_id for event in told)


def test_a_build_tells_how_far_it_is(services: Services, tmp_path: Path) -> None:
    """What the log of a running build counts becomes an event, once for each change."""
    repository = make_repository(tmp_path / "repository", 1)
    bisection_id = submit(
        services,
        request_for(repository),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    ).id
    runner = ScriptedRunner(lambda sha: 9000.0, noise=0.01)
    conductor = make_conductor(services, TellingBuilder(services), runner, tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    with services.database.read() as session:
        told = session.query(EventRow).filter_by(kind="build_progress").all()
    assert len({event.data["build_id"] for event in told}) == len(told) == 2
    assert [(each.data["done"], each.data["total"], each.data["share"]) for each in told] == [
        (500, 2000, 0.25)
    ] * 2
