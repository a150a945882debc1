"""Benchmarks with a second repository: real git, a real index, real environments, tiny wheels."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.conducting import make_conductor, open_services
from tests.helpers.package_index import FakeIndex, serving
from tests.helpers.published import Shelf, months
from tests.helpers.repositories import Workshop

from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.tables import BisectionRow, ExperimentRow, PointRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder
from perfbisect.wiring import make_host_runner

START = datetime(2023, 1, 10, 12, tzinfo=UTC)
WHEN = months(START, 6)

#: Which of the two files there is depends on the companion's commit: so does the command.
PROJECT = """
[benchmark.{name}]
command = "{{python}} bench.py models/old.txt"
files = ["bench.py"]
metric = {{reader = "regex", pattern = 'images/sec: ([0-9.]+)'}}
unit = "images/s"
timeout = "60s"

[[benchmark.{name}.companions]]
name = "models"
repository = "{repository}"
{commit}

[[benchmark.{name}.when]]
since = "{since}"
command = "{{python}} bench.py models/official/new.txt"
"""

#: The speed of the wheel times what the companion says, with half a per cent of noise.
BENCH = """
import pathlib
import random
import sys
import probe
share = float(pathlib.Path(sys.argv[1]).read_text())
print(f"images/sec: {probe.SPEED * share * random.gauss(1, 0.005):.3f}")
"""


class Garden(Workshop):
    """A companion: eight commits a month apart; the file moves with the 3rd, and the 5th halves."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.shas: list[str] = []
        for number in range(8):
            self.wait_until(START - timedelta(days=5) + timedelta(days=30 * number))
            share = "0.5" if number >= 5 else "1.0"
            moved: dict[str, str | None] = {"note.txt": f"{number}"}
            if number < 3:
                moved["old.txt"] = share
            else:
                moved["official/new.txt"] = share
            if number == 3:
                moved["old.txt"] = None
            self.shas.append(self.commit(f"models {number}", moved))


@pytest.fixture
def garden(tmp_path: Path) -> Garden:
    return Garden(tmp_path / "garden")


@pytest.fixture
def shelf(garden: Garden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """An index with six versions of ``probe``, all equally fast, and a file with benchmarks."""
    project = "".join(
        PROJECT.format(name=name, repository=garden.path, commit=commit, since=since)
        for name, commit, since in (
            ("moving", 'follow = "master"', garden.shas[3]),
            ("dated", 'follow = "master"', "2023-04-05"),
            ("pinned", f'revision = "{garden.shas[1][:9]}"', garden.shas[3]),
        )
    )
    (tmp_path / "perfbisect.toml").write_text(project)
    (tmp_path / "bench.py").write_text(BENCH)
    with serving(FakeIndex()) as index:
        monkeypatch.setenv("PERFBISECT_INDEX_URL", f"{index.url}/simple/")
        shelf = Shelf(index, tmp_path / "wheels")
        shelf.put("probedep", "1.0", datetime(2022, 1, 1, tzinfo=UTC), {"probedep.py": ""})
        for number, when in enumerate(WHEN, 1):
            shelf.put_probe(f"{number}.0", when, 900.0)
        yield shelf


@pytest.fixture
def services(shelf: Shelf, tmp_path: Path) -> Iterator[Services]:
    opened = Services.open(Settings(data_dir=tmp_path / "data"))
    yield opened
    opened.close()


def ask(services: Services, directory: Path, **fields: Any) -> str:
    """Submit a bisection of ``probe``; return its id."""
    asked = {"package": "probe", "good": "1.0", "bad": "6.0", "benchmark": "moving", **fields}
    submitted = submit(
        services,
        BisectionRequest.model_validate(asked),
        requested_by="tester",
        origin="command line",
        base_dir=directory,
        allow_local=fields.pop("allow_local", True),
    )
    return submitted.id


def search(services: Services, directory: Path, **fields: Any) -> dict[str, Any]:
    """Bisect with real runs, and a machine lock that no other test waits for."""
    bisection_id = ask(services, directory, **fields)
    runner = make_host_runner(services.settings)
    conductor = make_conductor(services, ScriptedBuilder(), runner, directory)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    with services.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
        return {**(row.verdict or {}), "error": row.error}


def commits_of_points(services: Services) -> dict[str, set[str]]:
    """Return version (or commit) -> commits of the companion that it was measured with."""
    found: dict[str, set[str]] = {}
    with services.database.read() as session:
        for point in session.scalars(select(PointRow)):
            commit = point.environment["companions"]["models"]["commit"]
            found.setdefault(point.commit_sha, set()).add(commit)
    return found


def test_a_moving_companion_is_found_to_be_the_cause(
    services: Services, garden: Garden, tmp_path: Path
) -> None:
    """Each version runs with its date's companion; the good end with the bad one's says it all."""
    verdict = search(services, tmp_path)
    assert verdict["outcome"] == "culprits", verdict
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == ["6.0"]
    assert culprit["also_changed"] == [
        {
            "name": "models (companion)",
            "before": garden.shas[4][:10],
            "after": garden.shas[5][:10],
        }
    ]
    told = verdict["companions"]
    assert told["moving"] == {"models": {"first": garden.shas[0], "last": garden.shas[5]}}
    assert told["alone"]["word"] == "reproduced"
    assert told["alone"]["change"] == pytest.approx(-0.5, abs=0.02)
    assert "the good end changes by" in verdict["sentence"]
    assert "this reproduces the change" in verdict["sentence"]
    measured = commits_of_points(services)
    # The good end was measured with both, in the search and in the check.
    assert measured["1.0"] == {garden.shas[0], garden.shas[5]}
    assert measured["6.0"] == {garden.shas[5]}


def test_a_companion_that_is_not_the_cause_is_cleared(
    shelf: Shelf, services: Services, garden: Garden, tmp_path: Path
) -> None:
    """Between 1.0 and 4.0 the companion moves, but the version is what is slow."""
    shelf.put_probe("4.0", WHEN[3], 600.0)
    verdict = search(services, tmp_path, bad="4.0", benchmark="dated")
    assert [each["commits"] for each in verdict["culprits"]] == [["4.0"]]
    assert verdict["companions"]["alone"]["word"] == "no"
    assert "they are not the cause" in verdict["sentence"]


def test_a_companion_is_bisected_with_one_wheel(
    services: Services, garden: Garden, tmp_path: Path
) -> None:
    """The culprit is a commit of the companion; rules chose the command on both sides of a move."""
    verdict = search(
        services,
        tmp_path,
        good=garden.shas[0],
        bad=garden.shas[7],
        bisect_companion="models",
        at="2.0",
    )
    assert verdict["outcome"] == "culprits", verdict
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == [garden.shas[5]]
    assert culprit["subject"] == "models 5"
    assert culprit["also_changed"] == []
    assert verdict["axis"] == "commits"
    assert verdict["builds"] == 0
    assert verdict["notes"] == ["the commits are those of companion models, all with probe 2.0"]
    measured = commits_of_points(services)
    assert all(commits == {sha} for sha, commits in measured.items())
    with services.database.read() as session:
        points = session.scalars(select(PointRow)).all()
        assert {point.environment["wheel"] for point in points} == {"probe-2.0-py3-none-any.whl"}
        # No experiment: a companion can't be measured with changes.
        assert session.scalars(select(ExperimentRow)).all() == []


def test_a_pinned_companion_is_the_same_everywhere(
    services: Services, garden: Garden, tmp_path: Path
) -> None:
    """A short name is resolved; with equal versions nothing is found, and one commit was used."""
    verdict = search(services, tmp_path, benchmark="pinned")
    assert verdict["outcome"] == "not_reproduced", verdict
    assert verdict["companions"] is None
    assert set.union(*commits_of_points(services).values()) == {garden.shas[1]}


class Halving:
    """Measures a built wheel by the commit of its companion: half from the fifth on."""

    def __init__(self, garden: Garden) -> None:
        self._slow = set(garden.shas[5:])

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        (companion,) = request.companions
        value = 50.0 if companion.commit in self._slow else 100.0
        told = {"models": {"repository": companion.repository, "commit": companion.commit}}
        return RunSuccess(value, (value,), 0.0, {"companions": told})


def test_a_wheel_that_was_built_serves_too(garden: Garden, tmp_path: Path) -> None:
    """A revision that a recipe has built is the wheel for all commits; any other is refused."""
    own = PROJECT.format(
        name="moving", repository=garden.path, commit='follow = "master"', since=garden.shas[3]
    )
    services = open_services(tmp_path)
    with (tmp_path / "perfbisect.toml").open("a") as project:
        project.write(own)
    (tmp_path / "bench.py").write_text(BENCH)
    main = Workshop(tmp_path / "main")
    main.wait_until(START)
    commits = [main.commit(f"{number}", {"a.txt": f"{number}"}) for number in range(3)]
    origin = {"package": None, "repository": str(main.path), "recipe": "scripted"}
    builder = ScriptedBuilder()

    def conduct(**fields: Any) -> dict[str, Any]:
        bisection_id = ask(services, tmp_path, **origin, **fields)
        conductor = make_conductor(services, builder, Halving(garden), tmp_path)
        conductor.conduct_until_finished(bisection_id)
        conductor.stop()
        with services.database.read() as session:
            return dict(session.get_one(BisectionRow, bisection_id).verdict or {})

    ends = {"good": garden.shas[0], "bad": garden.shas[7], "bisect_companion": "models"}
    with pytest.raises(BadInputError, match="'scripted' has not built"):
        conduct(**ends, at=commits[2])
    first = conduct(good=commits[0], bad=commits[2])
    assert first["outcome"] == "not_reproduced"
    built = len(builder.requests)
    verdict = conduct(**ends, at=commits[2][:10])
    assert [each["commits"] for each in verdict["culprits"]] == [[garden.shas[5]]]
    assert verdict["builds"] == 0
    assert len(builder.requests) == built
    services.close()


def test_what_can_not_be_is_said_before_anything_runs(
    services: Services, garden: Garden, tmp_path: Path
) -> None:
    """An unknown companion, one of no known repository, a wheel that was never built."""
    ends = {"good": garden.shas[0], "bad": garden.shas[7], "at": "2.0"}
    with pytest.raises(BadInputError, match="no companion 'model'; it has models"):
        ask(services, tmp_path, bisect_companion="model", **ends)
    with pytest.raises(NotFoundError, match=r"benchmark|not known"):
        submit(
            services,
            BisectionRequest(package="probe", good="1.0", bad="6.0", benchmark="moving"),
            requested_by="tester",
            origin="api",
            base_dir=tmp_path,
            allow_local=False,
        )
    with services.database.read() as session:
        assert session.scalars(select(BisectionRow)).all() == []
