"""A fix applies on a release branch, but does not build there: the set grows until it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.conducting import FactorRunner, make_conductor, open_services
from tests.helpers.repositories import Workshop

from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError
from perfbisect.experiments import submit_experiment
from perfbisect.history import Mirror
from perfbisect.ports import BuildRequest, Failure
from perfbisect.report import experiment_exit_code, experiment_lines
from perfbisect.reports.formats import render_dossier
from perfbisect.request_models import ArmRequest, ExperimentRequest
from perfbisect.routers.dossiers import experiment_dossier
from perfbisect.services import Services
from perfbisect.testing import ScriptedBuilder

#: What the fix calls; what its build complains of besides, without need.
HELPER, NOISE = "make_flags", "describe_flags"


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """master: flags (conflicts with the fix), helper, noise, other, fix; r2.0 at the base."""
    made = Workshop(tmp_path / "repository")
    lines = [f"line {number}" for number in range(30)]

    def kernel(**changed: str) -> str:
        return "".join(f"{changed.get(f'L{n}', line)}\n" for n, line in enumerate(lines))

    made.commit("base", {"kernel.cc": kernel(), "src/slow.txt": "0.5\n"})
    made.git("branch", "r2.0")
    made.git("tag", "flags", made.commit("Move the flags", {"kernel.cc": kernel(L10="flags")}))
    made.git("tag", "helper", made.commit("Make flags", {"flags.h": f"int {HELPER}();\n"}))
    made.git("tag", "noise", made.commit("Describe", {"words.h": f"int {NOISE}();\n"}))
    made.commit("Other", {"other.txt": "1\n"})
    fixed = kernel(L10="flags", L11=f"x = {HELPER}(); // not {NOISE}")
    made.git("tag", "fix", made.commit("Fix", {"kernel.cc": fixed, "src/slow.txt": "1.0\n"}))
    return made


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def _needs(files: set[str], *, named: str) -> ScriptedBuilder:
    """A compiler that wants these files once the fix is in the tree, and complains of names."""

    def fails(request: BuildRequest) -> Failure | None:
        mirror = Mirror(request.mirror)
        text = mirror.read_file(request.tree, "kernel.cc") or ""
        if HELPER not in text or all(mirror.read_file(request.tree, f) for f in files):
            return None
        return Failure(FailureKind.PERMANENT, "the compiler failed", (named,))

    return ScriptedBuilder(fails)


def _tried(
    services: Services, shop: Workshop, directory: Path, builder: ScriptedBuilder
) -> dict[str, Any]:
    request = ExperimentRequest(
        repository=str(shop.path),
        recipe="scripted",
        benchmark="scripted",
        arms=(ArmRequest(base="r2.0", pick=("fix",)),),
        with_prerequisites=True,
    )
    submitted = submit_experiment(
        services,
        request,
        requested_by="tester",
        origin="command line",
        base_dir=directory,
        allow_local=True,
    )
    conductor = make_conductor(services, builder, FactorRunner(services), directory)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        dossier = experiment_dossier(session, submitted.id)
    answer: dict[str, Any] = dossier["answer"]
    return answer | {"markdown": render_dossier(dossier, "md")}


def test_a_request_is_not_kept_open_for_the_search(
    services: Services, shop: Workshop, tmp_path: Path
) -> None:
    """Where the set is not found in time, the answer says so and what looks for longer."""
    request = ExperimentRequest(
        repository=str(shop.path),
        recipe="scripted",
        benchmark="scripted",
        arms=(ArmRequest(base="r2.0", pick=("fix",)),),
        with_prerequisites=True,
    )
    with pytest.raises(BadInputError, match="perfbisect try --with-prerequisites") as refused:
        submit_experiment(
            services,
            request,
            requested_by="tester",
            origin="api",
            base_dir=tmp_path,
            allow_local=True,
            patience=0.0,
        )
    assert refused.value.field == "with_prerequisites"


def _picked(shop: Workshop, arm: dict[str, Any]) -> list[str]:
    names = {shop.git("rev-parse", tag): tag for tag in shop.git("tag").split()}
    return [names[word] for word in arm["revision"].split()[2::2]]


def test_a_set_that_does_not_build_grows_by_what_the_build_misses(
    services: Services, shop: Workshop, tmp_path: Path
) -> None:
    """The name in the compiler's words leads to the commit that made it; then it is measured."""
    builder = _needs({"flags.h"}, named=f"error: '{HELPER}' was not declared")
    answer = _tried(services, shop, tmp_path, builder)
    reference, first, second = answer["arms"]
    assert _picked(shop, first) == ["flags", "fix"]
    assert first["only_built"]
    assert first["failure"] == "the compiler failed"
    assert first["runs"] == 0
    assert _picked(shop, second) == ["flags", "helper", "fix"]
    assert second["difference"] == "better"
    assert second["runs"] == reference["runs"] >= 4
    (told,) = answer["pick_sets"]
    assert (told["state"], told["measured"], told["smallest"]) == ("settled", 2, True)
    assert told["why"] == f"the build misses '{HELPER}'"
    assert experiment_exit_code(answer) == 0
    assert f"the build misses '{HELPER}'; 2 sets tried" in "\n".join(experiment_lines(answer))
    assert "the build misses" in answer["markdown"]
    assert "Make flags" in answer["markdown"]


def test_what_came_along_for_the_build_without_need_is_dropped_again(
    services: Services, shop: Workshop, tmp_path: Path
) -> None:
    """Two commits come along, one of them is needed: the smaller set is built and measured."""
    complaint = f"error: '{HELPER}' was not declared; did you mean '{NOISE}'?"
    answer = _tried(services, shop, tmp_path, _needs({"flags.h"}, named=complaint))
    sets = [_picked(shop, arm) for arm in answer["arms"][1:]]
    assert sets[:2] == [["flags", "fix"], ["flags", "helper", "noise", "fix"]]
    (told,) = answer["pick_sets"]
    assert sets[told["measured"] - 1] == ["flags", "helper", "fix"]
    assert told["smallest"]
    measured = [arm["position"] for arm in answer["arms"] if arm["runs"]]
    assert measured == [0, told["measured"]]


def test_if_nothing_builds_it_says_so(services: Services, shop: Workshop, tmp_path: Path) -> None:
    """Each set that was tried is there with its failure; the answer is that none builds."""
    complaint = f"error: '{HELPER}' was not declared"
    answer = _tried(services, shop, tmp_path, _needs({"never.h"}, named=complaint))
    assert len(answer["arms"]) > 2
    assert [arm["runs"] for arm in answer["arms"]] == [0] * len(answer["arms"])
    (told,) = answer["pick_sets"]
    assert told["state"] == "gave_up"
    assert "no earlier commit was found" in told["why"]
    assert experiment_exit_code(answer) == 1
    assert "no set that builds was found" in "\n".join(experiment_lines(answer))


def test_a_search_that_was_stopped_goes_on_where_it_was(
    services: Services, shop: Workshop, tmp_path: Path
) -> None:
    """What was tried is in the database: a second look at the same request tries nothing twice."""
    builder = _needs({"flags.h"}, named=f"error: '{HELPER}' was not declared")
    first = _tried(services, shop, tmp_path, builder)
    built = len(builder.requests)
    again = _tried(services, shop, tmp_path, builder)
    assert len(builder.requests) == built
    assert again["pick_sets"] == first["pick_sets"]
