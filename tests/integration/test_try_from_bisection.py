"""``perfbisect try --bisection``: what was found is what is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers.command_line import Ended, call, make_project
from tests.helpers.conducting import (
    FactorRunner,
    SmallRepository,
    make_conductor,
    make_factor_repository,
    open_services,
    request_for,
)

from perfbisect.experiments import submit_experiment
from perfbisect.request_models import ArmRequest, ExperimentRequest
from perfbisect.routers.subjects import subject_of
from perfbisect.services import Services
from perfbisect.store.tables import ExperimentRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder


@dataclass(frozen=True)
class Lab:
    """Services, and a repository in which two commits made it slow and one fast again."""

    services: Services
    repository: SmallRepository
    directory: Path

    def conduct(self, job_id: str) -> None:
        runner = FactorRunner(self.services)
        conductor = make_conductor(self.services, ScriptedBuilder(), runner, self.directory)
        conductor.conduct_until_finished(job_id)
        conductor.stop()

    def bisect(self) -> str:
        submitted = submit(
            self.services,
            request_for(self.repository),
            requested_by="tester",
            origin="command line",
            base_dir=self.directory,
            allow_local=True,
        )
        self.conduct(submitted.id)
        return submitted.id

    def try_(self, *options: str) -> Ended:
        data = f"--data-dir={self.services.settings.data_dir}"
        return call(["try", *options, data], self.directory)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    services = open_services(tmp_path)
    repository = make_factor_repository(tmp_path / "repository", {2: 0.5, 4: 1.4, 6: 0.6}, 8)
    yield Lab(services, repository, tmp_path)
    services.close()


def test_the_regressions_of_a_bisection_are_the_suspects(lab: Lab) -> None:
    """Its regressions, not its recovery, are minimised on its bad end; both are needed."""
    subject = subject_of(lab.services, lab.bisect())
    slow = (lab.repository.shas[2], lab.repository.shas[6])
    assert subject.suspects() == slow
    assert subject.bad == lab.repository.shas[-1]
    submitted = submit_experiment(
        lab.services,
        ExperimentRequest(
            repository=subject.repository,
            recipe=subject.recipe,
            benchmark=subject.benchmark,
            arms=(ArmRequest(base=subject.bad, revert=subject.suspects()),),
            minimise_reverts=True,
        ),
        requested_by="tester",
        origin="command line",
        base_dir=lab.directory,
        allow_local=True,
    )
    lab.conduct(submitted.id)
    with lab.services.database.read() as session:
        verdict = session.get_one(ExperimentRow, submitted.id).verdict
    assert verdict is not None
    assert set(verdict["minimal"]["commits"]) == set(slow)


def test_what_is_missing_is_told_by_its_option(lab: Lab) -> None:
    """An unknown bisection, one without regressions, no change, and no repository: exit code 2."""
    submitted = submit(
        lab.services,
        request_for(lab.repository),
        requested_by="tester",
        origin="command line",
        base_dir=lab.directory,
        allow_local=True,
    )
    told = {
        "no bisection": lab.try_("--bisection=01NOTHING", "--minimise-reverts"),
        "names no regression": lab.try_(f"--bisection={submitted.id}", "--minimise-reverts"),
        "the arm is its own reference": lab.try_(f"--bisection={submitted.id}"),
        "--repo is needed (or --bisection)": lab.try_("--base=master", "--env=A=1"),
    }
    for words, ended in told.items():
        assert words in ended.err
        assert ended.code == 2


def test_what_was_bisected_is_tried_from_the_command_line(tmp_path: Path) -> None:
    """Repository, recipe, benchmark and bad end come from the bisection: one option is enough."""
    project = make_project(tmp_path, [900.0, 900.0, 600.0, 600.0])
    found = call([*project.arguments, "--json"], project.directory)
    assert found.code == 0, found.err
    asked = [f"--bisection={found.json['id']}", f"--revert={project.shas[2]}"]
    tried = call(["try", *asked, f"--data-dir={project.data_dir}", "--json"], project.directory)
    assert tried.code == 0, tried.err
    reference, reverted = tried.json["arms"]
    assert reference["revision"] == project.shas[-1]
    assert reverted["difference"] == "better"
    assert reverted["change"] == pytest.approx(0.5, abs=0.03)
