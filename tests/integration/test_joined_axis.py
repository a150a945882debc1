"""Commits with nightlies among them: one search, the nights for nothing, the rest built."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from tests.helpers.conducting import (
    SmallRepository,
    make_conductor,
    make_factor_repository,
    open_services,
    request_for,
)
from tests.helpers.package_index import FakeIndex, serving
from tests.helpers.published import Shelf

from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.running.published import PublishedRunner
from perfbisect.services import Services
from perfbisect.store.tables import BisectionRow, ExperimentRow, PointRow, WheelRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder

FIRST = datetime.fromtimestamp(1_564_617_600, UTC)
COMMITS = 40
#: Positions of the commits that nightlies are of.
NIGHTS = (4, 12, 20, 28, 36)
CULPRIT = 23


class BothRunner:
    """Runs nightlies and wheels of the scripted builder; each knows its commit."""

    def __init__(self, repository: SmallRepository) -> None:
        self._repository = repository
        self._random = np.random.default_rng(5)
        self.requests: list[RunRequest] = []

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        self.requests.append(request)
        if zipfile.is_zipfile(request.wheel):
            with zipfile.ZipFile(request.wheel) as archive:
                sha = archive.read("nightly/version.py").decode().split("'")[1]
        else:
            sha = request.wheel.read_text().splitlines()[0]
        position = next(at for at, full in enumerate(self._repository.shas) if full.startswith(sha))
        value = 900.0 if position < CULPRIT else 800.0
        value *= float(np.exp(self._random.normal(0.0, 0.005)))
        return RunSuccess(value, (value,), 0.01, {"packages": {"numpy": "1.17.0"}})


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    # Each commit has a file of its own, so that a proof finds changes that apply on the ends.
    return make_factor_repository(tmp_path / "repository", {}, COMMITS)


@pytest.fixture
def index(
    tmp_path: Path, repository: SmallRepository, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeIndex]:
    """Five nightlies of commits on the axis, and one of another branch."""
    with serving(FakeIndex()) as index:
        monkeypatch.setenv("PERFBISECT_INDEX_URL", f"{index.url}/simple/")
        shelf = Shelf(index, tmp_path / "nightlies")
        shas = [(at, repository.shas[at]) for at in NIGHTS] + [(39, "fedcba98" * 5)]
        for number, (position, sha) in enumerate(shas, 1):
            stamp = {"nightly/version.py": f"git_version = '{sha[:10]}'\n"}
            when = FIRST + timedelta(minutes=10 * position, hours=2)
            shelf.put("nightly", f"1.dev2019080{number}", when, stamp)
        yield index


@pytest.fixture
def services(index: FakeIndex, tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def search(
    services: Services, repository: SmallRepository, tmp_path: Path, **options: Any
) -> tuple[BisectionRow, ScriptedBuilder, BothRunner]:
    submitted = submit(
        services,
        request_for(repository, **options),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    builder, inner = ScriptedBuilder(), BothRunner(repository)
    runner = PublishedRunner(inner, services.settings.index_url, 10**9)
    conductor = make_conductor(services, builder, runner, tmp_path, only=[submitted.id])
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        return session.get_one(BisectionRow, submitted.id), builder, inner


def test_nights_cost_no_build_and_the_commit_is_found(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """One search from nights to the commit: nothing is built that a nightly is of."""
    row, builder, inner = search(services, repository, tmp_path, package="nightly")
    verdict = row.verdict or {}
    assert verdict["outcome"] == "culprits", verdict
    assert [each["commits"] for each in verdict["culprits"]] == [[repository.shas[CULPRIT]]]
    assert verdict["axis"] == "commits"
    assert verdict["package"] == "nightly"
    built = {repository.position(request.commit) for request in builder.requests}
    assert not built & set(NIGHTS)
    assert verdict["builds"] == len(built) < 12
    names = {request.wheel.name for request in inner.requests}
    assert sum(name.startswith("nightly-") for name in names) >= 2
    assert any("not on the axis" in note for note in verdict["notes"])


def test_all_dependencies_are_of_their_day(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Built wheels between nightlies get the dependencies of their commit's day, as those do."""
    _, _, inner = search(services, repository, tmp_path, package="nightly")
    for request in inner.requests:
        option, moment = request.install_options[:2]
        assert option == "--exclude-newer"
        assert datetime.fromisoformat(moment).date() == (FIRST + timedelta(days=1)).date()


def test_nightlies_stand_for_no_commit_elsewhere(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A search without the package neither runs nightlies nor uses points that they gave."""
    search(services, repository, tmp_path, package="nightly")
    row, builder, inner = search(services, repository, tmp_path)
    verdict = row.verdict or {}
    assert verdict["reused_points"] == 0
    assert verdict["notes"] == []
    assert {request.published for request in inner.requests} == {None}
    assert {request.install_options for request in inner.requests} == {()}
    assert len(builder.requests) == verdict["builds"] > 0
    with services.database.read() as session:
        published = select(WheelRow.id).where(WheelRow.published.is_not(None))
        points = select(PointRow.id).where(
            PointRow.bisection_id == row.id, PointRow.wheel_id.in_(published)
        )
        assert session.scalars(points).all() == []


def test_what_a_recipe_has_built_stands_among_nightlies_too(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Wheels of an earlier search are not built again; only where there are nightlies they rest."""
    _, first, _ = search(services, repository, tmp_path)
    _, second, _ = search(services, repository, tmp_path, package="nightly")
    earlier = {request.commit for request in first.requests}
    assert not earlier & {request.commit for request in second.requests}


def test_a_proof_is_built_throughout(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Where nightlies took part in the search, the proof compares built wheels with built ones."""
    row, _, _ = search(services, repository, tmp_path, package="nightly", prove=True)
    with services.database.read() as session:
        proof = session.scalars(select(ExperimentRow)).one()
        assert proof.recipe_digest != row.recipe_digest
        points = session.scalars(select(PointRow).where(PointRow.experiment_id == proof.id)).all()
        wheels = [session.get_one(WheelRow, point.wheel_id) for point in points]
    assert wheels
    assert {wheel.published for wheel in wheels} == {None}


def test_a_package_without_nights_in_the_range(
    services: Services, repository: SmallRepository, index: FakeIndex, tmp_path: Path
) -> None:
    """It is said, and the search goes on by building."""
    name = "later-1.0-py3-none-any.whl"
    index.files[name] = b"x"
    index.extra[name] = {"upload-time": "2024-01-01T00:00:00Z"}
    row, builder, _ = search(services, repository, tmp_path, package="later")
    verdict = row.verdict or {}
    assert verdict["notes"] == ["no wheel of later is of a commit between the ends"]
    assert verdict["outcome"] == "culprits"
    assert builder.requests


def test_digests_name_where_wheels_come_from(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """With and without a package, wheels have origins of their own."""
    with_package, _, _ = search(services, repository, tmp_path, package="nightly")
    without, _, _ = search(services, repository, tmp_path)
    assert with_package.recipe == without.recipe
    assert with_package.recipe_digest != without.recipe_digest
    assert len(with_package.recipe_digest) == len(hashlib.sha256().hexdigest())
