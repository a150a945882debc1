"""A real hunt replayed: which commits to revert on a release branch, and what a fix needs there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.conducting import make_conductor, open_services
from tests.helpers.release_branches import CAPS, FAST, LayeredRunner, Releases, make_releases
from tests.helpers.serving import client_of, shown_app

from perfbisect.experiments import submit_experiment
from perfbisect.reports.formats import render_dossier
from perfbisect.request_models import ArmRequest, ExperimentRequest
from perfbisect.routers.dossiers import experiment_dossier
from perfbisect.services import Services
from perfbisect.testing import ScriptedBuilder


@dataclass(frozen=True)
class Lab:
    """A service with the repository at hand."""

    services: Services
    releases: Releases
    directory: Path

    def measure(self, *arms: ArmRequest, **options: Any) -> dict[str, Any]:
        """Conduct an experiment; return the answer as its report in JSON holds it."""
        request = ExperimentRequest(
            repository=str(self.releases.shop.path),
            recipe="scripted",
            benchmark="scripted",
            arms=arms,
            **options,
        )
        submitted = submit_experiment(
            self.services,
            request,
            requested_by="tester",
            origin="command line",
            base_dir=self.directory,
            allow_local=True,
        )
        runner = LayeredRunner(self.services, FAST, noise=0.02)
        conductor = make_conductor(self.services, ScriptedBuilder(), runner, self.directory)
        conductor.conduct_until_finished(submitted.id)
        conductor.stop()
        with self.services.database.read() as session:
            dossier = experiment_dossier(session, submitted.id)
        answer: dict[str, Any] = dossier["answer"]
        return answer | {"markdown": render_dossier(dossier, "md")}

    def page(self, path: str) -> str:
        """Return a page of a service on the same data."""
        with client_of(shown_app(self.services.settings)) as client:
            answer = client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200
        return answer.text


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    services = open_services(tmp_path)
    yield Lab(services, make_releases(tmp_path / "repository"), tmp_path)
    services.close()


def test_exactly_three_layers_are_to_be_reverted(lab: Lab) -> None:
    """From 1,600 to 7,700 images/s by three of six commits, each hidden behind the one before."""
    arm = ArmRequest(base="r2.0", revert=lab.releases.suspects)
    answer = lab.measure(arm, minimise_reverts=True)
    assert answer["outcome"] == "answered", answer["reason"]
    assert set(answer["minimal"]["commits"]) == {lab.releases.shas[name] for name in CAPS}
    whole = answer["arms"][1]
    assert whole["reference_mean"] == pytest.approx(1600, rel=0.05)
    assert whole["mean"] == pytest.approx(7700, rel=0.05)
    page = lab.page(f"/experiments/{answer['id']}")
    assert "these commits restores the value" in page
    assert lab.releases.shas["src/swap.txt"] in page
    assert "--minimise-reverts" in answer["markdown"]


def test_the_fix_needs_its_prerequisite_on_one_branch_only(lab: Lab) -> None:
    """On r2.0 the fix conflicts and needs one commit, told with its size; on r1.15 it applies."""
    fix = lab.releases.shas["fix"]
    arms = [ArmRequest(base=branch, pick=(fix,)) for branch in ("r2.0", "r1.15")]
    (reference, on_20, on_115) = (answer := lab.measure(*arms, with_prerequisites=True))["arms"]
    assert reference["against"] is None
    assert [each["commit"]["sha"] for each in on_20["role"]["prerequisites"]] == [
        lab.releases.shas["prerequisite"]
    ]
    assert "prerequisites" not in on_115["role"]
    for arm in (on_20, on_115):
        assert arm["difference"] == "better"
        assert arm["ci95"][0] < FAST / 1600 - 1 < arm["ci95"][1]
    assert "needs 1 earlier commit" in answer["markdown"]
    page = lab.page(f"/experiments/{answer['id']}")
    assert "What it needs to apply: r2.0" in page
    assert "Move the flags" in page


def test_without_prerequisites_the_conflict_is_shown_with_its_hunks(lab: Lab) -> None:
    """The page and the report name the file and show both sides; nothing is measured."""
    answer = lab.measure(ArmRequest(base="r2.0", pick=(lab.releases.shas["fix"],)))
    assert answer["runs"] == 0
    page = lab.page(f"/experiments/{answer['id']}")
    assert "Conflicts of: r2.0" in page
    assert "kernel.cc" in page
    assert "&lt;&lt;&lt;&lt;&lt;&lt;&lt;" in page
    assert "conflicts in kernel.cc" in answer["markdown"]
    assert "<<<<<<<" in answer["markdown"]
