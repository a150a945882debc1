"""Experiments on a real repository and database: arms, environments, minimal sets, conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.conducting import (
    FactorRunner,
    SmallRepository,
    make_conductor,
    make_factor_repository,
    make_repository,
    open_services,
)

from perfbisect.errors import BadInputError
from perfbisect.experiments import submit_experiment
from perfbisect.ports import Runner
from perfbisect.request_models import ArmRequest, ExperimentRequest
from perfbisect.services import Services
from perfbisect.store.tables import ArmRow, ExperimentRow, PointRow, RunRow
from perfbisect.testing import ScriptedBuilder


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def try_out(
    services: Services,
    repository: SmallRepository,
    tmp_path: Path,
    *,
    arms: list[ArmRequest],
    runner: Runner | None = None,
    **options: Any,
) -> dict[str, Any]:
    request = ExperimentRequest(
        repository=str(repository.path),
        recipe="scripted",
        benchmark="scripted",
        arms=tuple(arms),
        **options,
    )
    submitted = submit_experiment(
        services,
        request,
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    conductor = make_conductor(
        services, ScriptedBuilder(), runner or FactorRunner(services), tmp_path
    )
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        verdict = session.get_one(ExperimentRow, submitted.id).verdict
    assert verdict is not None
    return verdict


def test_a_revert_is_measured_in_balanced_order(services: Services, tmp_path: Path) -> None:
    """Reference and arm are interleaved in equal numbers; the change is told with its interval."""
    repository = make_factor_repository(tmp_path / "repository", {3: 0.5}, 8)
    arm = ArmRequest(base=repository.shas[-1], revert=(repository.shas[3],))
    verdict = try_out(services, repository, tmp_path, arms=[arm])
    assert verdict["outcome"] == "answered"
    reference, reverted = verdict["arms"]
    assert reverted["difference"] == "better"
    assert reverted["change"] == pytest.approx(1.0, abs=0.1)
    assert reverted["ci95"][0] < 1.0 < reverted["ci95"][1]
    assert reference["runs"] == reverted["runs"] >= 4
    with services.database.read() as session:
        order = session.scalars(select(RunRow.position).order_by(RunRow.id)).all()
    assert list(order[:8]) == [0, 1, 1, 0, 0, 1, 1, 0]


def test_a_switch_of_the_environment_is_an_arm_of_the_same_wheel(
    services: Services, tmp_path: Path
) -> None:
    """An environment variable needs no build, and its points belong to another benchmark."""
    repository = make_factor_repository(tmp_path / "repository", {}, 4)
    arm = ArmRequest(base=repository.shas[-1], env={"FACTOR": "0.8"})
    verdict = try_out(services, repository, tmp_path, arms=[arm])
    assert verdict["builds"] == 1
    assert verdict["arms"][1]["difference"] == "worse"
    with services.database.read() as session:
        digests = set(session.scalars(select(PointRow.benchmark_digest)))
    assert len(digests) == 2


def test_a_conflict_is_told_with_its_files_and_nothing_is_measured(
    services: Services, tmp_path: Path
) -> None:
    """A revert that does not apply names the file; an empty one says so; neither is built."""
    repository = make_repository(tmp_path / "repository", 6)
    conflicting = ArmRequest(base=repository.shas[-1], revert=(repository.shas[2],))
    already = ArmRequest(base=repository.shas[-1], pick=(repository.shas[-1],))
    verdict = try_out(services, repository, tmp_path, arms=[conflicting, already])
    assert verdict["arms"][1]["problem"]["kind"] == "conflict"
    assert [file["path"] for file in verdict["arms"][1]["problem"]["files"]] == ["src/value.cc"]
    assert verdict["arms"][2]["problem"]["kind"] == "empty"
    assert verdict["builds"] == 0
    assert verdict["runs"] == 0


def test_the_smallest_set_of_reverts_is_found(services: Services, tmp_path: Path) -> None:
    """Of six suspects exactly the three that matter are named; each subset tried is an arm."""
    repository = make_factor_repository(tmp_path / "repository", {2: 0.6, 5: 0.7, 7: 0.5}, 10)
    suspects = tuple(repository.shas[position] for position in (2, 3, 4, 5, 7, 9))
    arm = ArmRequest(base=repository.shas[-1], revert=suspects)
    verdict = try_out(services, repository, tmp_path, arms=[arm], minimise_reverts=True)
    assert verdict["outcome"] == "answered"
    found = {repository.position(sha) for sha in verdict["minimal"]["commits"]}
    assert found == {2, 5, 7}
    with services.database.read() as session:
        arms = session.scalars(select(ArmRow)).all()
    assert len(arms) == len(verdict["arms"]) > 3


def test_commits_that_work_only_together_are_found(services: Services, tmp_path: Path) -> None:
    """Reverting A alone does nothing, A and B together restore the value: both are named."""
    repository = make_factor_repository(tmp_path / "repository", {}, 10)

    class Either(FactorRunner):
        """Slow as long as one of two commits is in the tree."""

        def factor(self, names: list[str]) -> float:
            return 0.5 if {"src/3.txt", "src/6.txt"} & set(names) else 1.0

    suspects = tuple(repository.shas[position] for position in (2, 3, 6, 8))
    arm = ArmRequest(base=repository.shas[-1], revert=suspects)
    verdict = try_out(
        services,
        repository,
        tmp_path,
        arms=[arm],
        runner=Either(services),
        minimise_reverts=True,
    )
    found = {repository.position(sha) for sha in verdict["minimal"]["commits"]}
    assert found == {3, 6}


def test_what_can_not_be_right_is_refused_before_anything_is_stored(
    services: Services, tmp_path: Path
) -> None:
    """An unknown commit and a minimisation without reverts are errors that name the field."""
    repository = make_factor_repository(tmp_path / "repository", {}, 4)
    with pytest.raises(BadInputError, match="minimise_reverts needs one arm"):
        try_out(
            services,
            repository,
            tmp_path,
            arms=[ArmRequest(base=repository.shas[-1])],
            minimise_reverts=True,
        )
    with pytest.raises(BadInputError, match="revert"):
        try_out(
            services,
            repository,
            tmp_path,
            arms=[ArmRequest(base=repository.shas[-1], revert=("nonsense",))],
        )
    with services.database.read() as session:
        assert session.scalars(select(ExperimentRow)).all() == []
