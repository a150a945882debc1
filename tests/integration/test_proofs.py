"""Proofs of culprits on a real repository: trees with changes against their references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.helpers.conducting import (
    FactorRunner,
    SmallRepository,
    make_conductor,
    make_factor_repository,
    open_services,
    request_for,
)

from perfbisect.core.states import ExperimentKind
from perfbisect.services import Services
from perfbisect.store.tables import ArmRow, BisectionRow, ExperimentRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def bisect_and_prove(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> BisectionRow:
    submitted = submit(
        services,
        request_for(repository, prove=True),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    conductor = make_conductor(services, ScriptedBuilder(), FactorRunner(services), tmp_path)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        return session.get_one(BisectionRow, submitted.id)


def test_a_culprit_is_proven_by_revert_and_pick(services: Services, tmp_path: Path) -> None:
    """Reverting it on the bad end brings the value back; picking it on the good end drops it."""
    repository = make_factor_repository(tmp_path / "repository", {13: 0.5}, 24)
    verdict = bisect_and_prove(services, repository, tmp_path).verdict
    assert verdict is not None
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == [repository.shas[13]]
    assert culprit["proof"]["verdict"] == "proven by revert and pick"
    assert culprit["proof"]["revert"]["change"] == pytest.approx(1.0, abs=0.1)
    assert culprit["proof"]["pick"]["change"] == pytest.approx(-0.5, abs=0.05)
    assert verdict["proof"]["outcome"] == "answered"
    assert verdict["proof"]["builds"] == 2
    assert verdict["proof"]["runs"] >= 8
    with services.database.read() as session:
        kinds = session.scalars(select(ExperimentRow.kind)).all()
        arms = session.scalars(select(ArmRow).order_by(ArmRow.position)).all()
    assert list(kinds) == [ExperimentKind.PROVE]
    assert [arm.name for arm in arms if arm.against is None] == ["later end", "earlier end"]


def test_layered_culprits_are_proven_each_on_its_own(services: Services, tmp_path: Path) -> None:
    """Layered steps: each is proven on its own, although the ends hold all of them."""
    repository = make_factor_repository(tmp_path / "repository", {7: 0.6, 17: 0.7}, 24)
    verdict = bisect_and_prove(services, repository, tmp_path).verdict
    assert verdict is not None
    told = [
        (repository.position(culprit["commits"][0]), culprit["proof"]["verdict"])
        for culprit in verdict["culprits"]
    ]
    assert told == [(7, "proven by revert and pick"), (17, "proven by revert and pick")]
