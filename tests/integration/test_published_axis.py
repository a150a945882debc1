"""Versions of a package, bisected: a real index over HTTP, real environments, tiny wheels."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.command_line import call
from tests.helpers.conducting import make_conductor
from tests.helpers.package_index import FakeIndex, serving
from tests.helpers.published import Shelf, months, write_project
from tests.helpers.serving import client_of, shown_app

from perfbisect.core.states import FailureKind
from perfbisect.report import exit_code
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.tables import BisectionRow, ExperimentRow, PointRow, RunRow, WheelRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder
from perfbisect.wiring import make_host_runner

START = datetime(2023, 1, 10, 12, tzinfo=UTC)
WHEN = months(START, 8)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """An index with eight versions of ``probe``: a drop of a third at 6.0, a dependency moves."""
    write_project(tmp_path)
    with serving(FakeIndex()) as index:
        monkeypatch.setenv("PERFBISECT_INDEX_URL", f"{index.url}/simple/")
        shelf = Shelf(index, tmp_path / "wheels")
        shelf.put("probedep", "1.0", datetime(2022, 1, 1, tzinfo=UTC), {"probedep.py": ""})
        # Between 5.0 and 6.0.
        shelf.put("probedep", "2.0", datetime(2023, 5, 20, tzinfo=UTC), {"probedep.py": ""})
        for number, when in enumerate(WHEN, 1):
            shelf.put_probe(f"{number}.0", when, 900.0 if number < 6 else 600.0)
        yield shelf


@pytest.fixture
def services(shelf: Shelf, tmp_path: Path) -> Iterator[Services]:
    opened = Services.open(Settings(data_dir=tmp_path / "data"))
    yield opened
    opened.close()


def search(services: Services, directory: Path, **fields: Any) -> dict[str, Any]:
    """Bisect ``probe`` with real runs, and a machine lock that no other test waits for."""
    asked = {"package": "probe", "good": "1.0", "bad": "8.0", "benchmark": "speed", **fields}
    submitted = submit(
        services,
        BisectionRequest.model_validate(asked),
        requested_by="tester",
        origin="command line",
        base_dir=directory,
        allow_local=True,
    )
    runner = make_host_runner(services.settings)
    conductor = make_conductor(services, ScriptedBuilder(), runner, directory)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        row = session.get_one(BisectionRow, submitted.id)
        return {**(row.verdict or {}), "error": row.error}


def named(verdict: dict[str, Any]) -> list[list[str]]:
    assert verdict["outcome"] == "culprits", verdict
    return [culprit["commits"] for culprit in verdict["culprits"]]


def test_a_version_is_named_with_what_moved_beside_it(services: Services, tmp_path: Path) -> None:
    """The verified culprit is 6.0; its dependencies are of its own day, and the change is told."""
    verdict = search(services, tmp_path)
    assert named(verdict) == [["6.0"]]
    assert verdict["axis"] == "published"
    assert verdict["builds"] == 0
    (culprit,) = verdict["culprits"]
    assert culprit["previous"] == "5.0"
    assert culprit["verified"] is True
    assert culprit["change"] == pytest.approx(-1 / 3, abs=0.02)
    assert culprit["also_changed"] == [{"name": "probedep", "before": "1.0", "after": "2.0"}]
    assert verdict["good"]["revision"] == "1.0"
    assert "probe 6.0, published 2023-06-09, after 5.0 is a regression" in verdict["sentence"]
    assert "also changed across this step: probedep 1.0 → 2.0" in verdict["sentence"]
    with services.database.read() as session:
        # Nothing can be reverted or picked, and no wheel was copied into the artifact store.
        assert session.scalars(select(ExperimentRow)).all() == []
        assert {wheel.artifact for wheel in session.scalars(select(WheelRow))} == {""}
        for point in session.scalars(select(PointRow)):
            assert "--exclude-newer" in point.environment["install_options"]
            later = float(point.commit_sha) >= 6
            assert point.environment["packages"]["probedep"] == ("2.0" if later else "1.0")


def test_people_read_a_table_with_the_dependency(shelf: Shelf, tmp_path: Path) -> None:
    """On the command line the dependency stands below its culprit, and what is left out last."""
    shelf.index.extra["probe-3.0-py3-none-any.whl"]["yanked"] = "a broken release"
    ends = ["--good=1.0", "--bad=8.0", "--benchmark=speed", f"--data-dir={tmp_path / 'data'}"]
    ended = call(["bisect", "--package=probe", *ends], tmp_path)
    assert ended.code == 0, ended.err
    assert "probe 6.0, published 2023-06-09, after 5.0 is a regression" in ended.out
    assert "\n      also changed across this step: probedep 1.0 → 2.0" in ended.out
    assert "6 versions to choose from" in ended.err
    assert "Note: probe 3.0 is left out: yanked: a broken release" in ended.out
    asked = [request.path for request in shelf.index.asked]
    assert not [path for path in asked if "probe-3.0" in path]


def test_versions_that_can_not_be_imported_become_a_set(
    shelf: Shelf, services: Services, tmp_path: Path
) -> None:
    """Where the culprit can't be told from a broken version, both are named; it is tried once."""
    shelf.put_probe("6.0", WHEN[5], 0.0)
    verdict = search(services, tmp_path)
    assert named(verdict) == [["6.0", "7.0"]]
    assert any(
        note.startswith("probe 6.0 can't be used: the wheel can't be imported")
        for note in verdict["notes"]
    )
    with services.database.read() as session:
        failed = session.scalars(
            select(RunRow).where(RunRow.failure_kind == FailureKind.PERMANENT)
        ).all()
        assert len(failed) == 1
        assert "made for another world" in "\n".join(failed[0].lines)


def test_a_wheel_that_is_not_what_the_index_says_is_broken(
    shelf: Shelf, services: Services, tmp_path: Path
) -> None:
    """A file with the wrong content is never run: it is told apart from no neighbour."""
    shelf.index.claimed["probe-5.0-py3-none-any.whl"] = "0" * 64
    verdict = search(services, tmp_path, good="3.0")
    assert named(verdict) == [["5.0", "6.0"]]
    with services.database.read() as session:
        assert "5.0" not in set(session.scalars(select(PointRow.commit_sha)))


def test_nightlies_by_their_days_and_the_commits_between(
    shelf: Shelf, services: Services, tmp_path: Path
) -> None:
    """Ends may be days; the stamps of the culprit's wheels say which commits to bisect next."""
    for day, speed in ((1, 900.0), (2, 900.0), (4, 600.0), (5, 600.0)):
        stamp = f"git_version = 'v1.0-{day}00-gabc{day}def'\n"
        files = {"probe/__init__.py": f"SPEED = {speed}\n", "probe/version.py": stamp}
        when = datetime(2024, 1, day, 6, tzinfo=UTC)
        shelf.put("probe", f"9.0.dev2024010{day}", when, files)
    verdict = search(services, tmp_path, good="2024-01-01", bad="2024-01-05")
    assert named(verdict) == [["9.0.dev20240104"]]
    assert verdict["culprits"][0]["commit_range"] == {
        "before": "v1.0-200-gabc2def",
        "after": "v1.0-400-gabc4def",
        "range": "abc2def..abc4def",
    }


def test_downloads_stay_within_their_limit(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache for two wheels is enough for eight: the longest unused go first."""
    largest = max(len(content) for content in shelf.index.files.values())
    limit = 2 * largest + 10
    monkeypatch.setenv("PERFBISECT_WHEEL_CACHE_SIZE", str(limit))
    services = Services.open(Settings(data_dir=tmp_path / "data"))
    assert named(search(services, tmp_path)) == [["6.0"]]
    kept = list(services.settings.published_dir.glob("*/*.whl"))
    assert 0 < sum(path.stat().st_size for path in kept) <= limit
    services.close()


def test_a_cache_too_small_for_one_wheel_is_a_mistake_of_settings(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at once and is said so, with the exit code of bad input."""
    monkeypatch.setenv("PERFBISECT_WHEEL_CACHE_SIZE", "10")
    services = Services.open(Settings(data_dir=tmp_path / "data"))
    verdict = search(services, tmp_path)
    assert "raise the limit" in verdict["error"]["message"]
    assert exit_code(verdict) == 2
    services.close()


def test_the_second_search_knows_the_points_of_the_first(
    services: Services, tmp_path: Path
) -> None:
    """Points belong to the wheel, whoever measured it."""
    search(services, tmp_path)
    second = search(services, tmp_path, good="2.0")
    assert second["reused_points"] > 0
    assert named(second) == [["6.0"]]


WRONG: list[tuple[list[str], str]] = [
    ([], "--repo is needed (or --package)"),
    (["--package=probe", "--recipe=pip-wheel"], "leave the recipe out"),
    (["--package=probe", "--path=src"], "Versions have no commits"),
    (["--repo=.", "--recipe=pip-wheel", "--prereleases"], "name a package"),
    (["--repo=."], "--recipe is needed"),
    (["--package=probe", "--good=1.5"], "good: the index has no version 1.5 of probe; nearest"),
    (["--package=prob"], "has no project 'prob'"),
    (["--package=probe", "--good=8.0", "--bad=1.0"], "older than"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_requests(shelf: Shelf, tmp_path: Path, arguments: list[str], message: str) -> None:
    """What can't be right is refused before anything runs: one sentence, exit code 2."""
    ends = ["--good=1.0", "--bad=8.0", "--benchmark=speed", f"--data-dir={tmp_path / 'data'}"]
    ended = call(["bisect", *ends, *arguments], tmp_path)
    assert ended.code == 2
    assert message in ended.err.replace("\n", " ")


def test_the_pages_and_the_api_show_versions(services: Services, tmp_path: Path) -> None:
    """A bisection without a repository is listed, shown and exported under its package's name."""
    identifier = search(services, tmp_path)["id"]
    with client_of(shown_app(services.settings)) as client:
        (item,) = client.get("/api/v1/bisections").json()["items"]
        assert item["repository"] == "probe"
        assert item["culprits"] == ["6.0"]
        page = client.get(f"/bisections/{identifier}").text
        assert "7 versions" in page
        assert "probe 6.0, published 2023-06-09" in page
        assert client.get(f"/bisections/{identifier}/commits/5").status_code == 200
        assert client.get("/wheels").status_code == 200
        assert "probe 6.0" in client.get("/").text
        asked = {"package": "probe", "good": "1.0", "bad": "8.0", "benchmark": "import-time"}
        answer = client.post("/api/v1/bisections", json=asked)
        assert answer.status_code == 422
        assert "PERFBISECT_ALLOWED_PACKAGES" in answer.text
