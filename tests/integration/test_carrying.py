"""Changes carried along a range, and ranges that cross an era: on real repositories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.conducting import make_conductor, open_services
from tests.helpers.repositories import Workshop

from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.revision import patch_name
from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError
from perfbisect.experiments import submit_experiment
from perfbisect.ports import BuildRequest, Failure
from perfbisect.report import experiment_lines
from perfbisect.request_models import ArmRequest, BisectionRequest, ExperimentRequest
from perfbisect.services import Services
from perfbisect.store.tables import (
    ArmRow,
    BisectionRow,
    BuildRow,
    CandidateRow,
    ExperimentRow,
    PointRow,
)
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

N = 12
#: The commit that breaks the build, the one that slows it down, the one that fixes the build.
BREAKS, SLOWS, FIXES = 3, 6, 9
BROKEN, FIXED = "#include <gone.h>\n", "#include <here.h>\n"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A history in which commits 3 to 8 do not build."""
    made = Workshop(tmp_path / "repository")
    for position in range(N + 1):
        files = {"src/value": f"{position}\n"} if position != FIXES else {}
        if position == 0:
            files["src/kernel.cc"] = "int main() {}\n"
        if position == BREAKS:
            files["src/kernel.cc"] = BROKEN + "int main() {}\n"
        if position == FIXES:
            files["src/kernel.cc"] = FIXED + "int main() {}\n"
        made.commit(f"commit {position}", files)
    return made


def shas(workshop: Workshop) -> list[str]:
    return workshop.git("rev-list", "--reverse", "HEAD").split()


def request(workshop: Workshop, **options: object) -> BisectionRequest:
    listed = shas(workshop)
    values: dict[str, object] = {
        "repository": str(workshop.path),
        "good": listed[0],
        "bad": listed[-1],
        "recipe": "scripted",
        "benchmark": "scripted",
        "prove": False,
    }
    return BisectionRequest.model_validate(values | options)


def start(services: Services, asked: BisectionRequest, tmp_path: Path) -> str:
    return submit(
        services,
        asked,
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    ).id


def candidates(services: Services, bisection_id: str) -> list[CandidateRow]:
    with services.database.read() as session:
        found = session.query(CandidateRow).filter_by(bisection_id=bisection_id)
        return list(found.order_by(CandidateRow.position))


def test_a_fix_is_carried_where_it_is_needed_and_applies(
    services: Services, workshop: Workshop, tmp_path: Path
) -> None:
    """Trees change exactly where the fix is missing and fits; each says what it carries."""
    listed = shas(workshop)
    bisection_id = start(services, request(workshop, carry_pick=(listed[FIXES],)), tmp_path)
    rows = candidates(services, bisection_id)
    assert [row.position for row in rows if row.carried] == list(range(BREAKS, FIXES))
    assert rows[BREAKS].carried == [f"pick {listed[FIXES]}"]
    for row in rows:
        own = workshop.tree(row.sha)
        assert (row.tree == own) is not bool(row.carried)
    kernel = workshop.git("rev-parse", f"{listed[FIXES]}:src/kernel.cc")
    mirror = next(services.settings.mirrors_dir.glob("*.git"))
    assert (
        workshop.git(f"--git-dir={mirror}", "rev-parse", f"{rows[4].tree}:src/kernel.cc") == kernel
    )


def test_every_point_of_a_carried_tree_says_so(
    services: Services, workshop: Workshop, tmp_path: Path
) -> None:
    """The culprit hidden among broken commits is found by name, and the evidence is marked."""
    listed = shas(workshop)
    bisection_id = start(services, request(workshop, carry_pick=(listed[FIXES],)), tmp_path)

    def fails(asked: BuildRequest) -> Failure | None:
        at = listed.index(asked.commit)
        needs = BREAKS <= at < FIXES
        return Failure(FailureKind.PERMANENT, "gone.h") if needs and not asked.carried else None

    runner = ScriptedRunner(lambda sha: 9000.0 if listed.index(sha) < SLOWS else 4000.0, noise=0.01)
    conductor = make_conductor(services, ScriptedBuilder(fails), runner, tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    with services.database.read() as session:
        verdict = session.get_one(BisectionRow, bisection_id).verdict
        points = session.query(PointRow).all()
        builds = session.query(BuildRow).all()
    assert verdict is not None
    assert [each["commits"] for each in verdict["culprits"]] == [[listed[SLOWS]]]
    assert any("carried at 6 of 13 commits" in note for note in verdict["notes"])
    marked = {listed.index(each.commit_sha): "carried" in each.environment for each in points}
    assert {at for at, mark in marked.items() if mark} == {
        at for at in marked if BREAKS <= at < FIXES
    }
    assert {build.failure_kind for build in builds} == {None}


def test_a_patch_is_carried_by_its_content(
    services: Services, workshop: Workshop, tmp_path: Path
) -> None:
    """A patch file does the same as the commit that it is of, under the name of its content."""
    listed = shas(workshop)
    patch = workshop.git("show", "--format=", listed[FIXES], "--", "src/kernel.cc") + "\n"
    bisection_id = start(services, request(workshop, carry=(patch,)), tmp_path)
    rows = candidates(services, bisection_id)
    assert [row.position for row in rows if row.carried] == list(range(BREAKS, FIXES))
    names = rows[BREAKS].carried or []
    assert [str(name).startswith("patch carry-") for name in names] == [True]


def test_what_is_carried_is_part_of_the_request(
    services: Services, workshop: Workshop, tmp_path: Path
) -> None:
    """The same command goes on with its own work; with something carried it is another one."""
    plain = start(services, request(workshop), tmp_path)
    carrying = start(services, request(workshop, carry_pick=(shas(workshop)[FIXES],)), tmp_path)
    with services.database.read() as session:
        digests = {session.get_one(BisectionRow, each).request_digest for each in (plain, carrying)}
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("options", "field", "why"),
    [
        ({"carry_pick": ("no-such",)}, "carry_pick", "no such revision"),
        ({"carry_pick": ("{0}",)}, "carry_pick", "have it already"),
        ({"carry": ("no patch at all",)}, "patch", "no patch that git can read"),
        (
            {"carry": ("--- a/src/kernel.cc\n+++ b/src/kernel.cc\n@@ -1 +1 @@\n-x\n+y\n",)},
            "carry",
            "applies to none",
        ),
    ],
)
def test_what_can_not_be_carried_is_refused(
    services: Services,
    workshop: Workshop,
    tmp_path: Path,
    options: dict[str, tuple[str]],
    field: str,
    why: str,
) -> None:
    """Nothing is built for a change that does not exist, is there everywhere, or fits nowhere."""
    first = shas(workshop)[0]
    given = {
        key: tuple(each.replace("{0}", first) for each in value) for key, value in options.items()
    }
    with pytest.raises(BadInputError) as caught:
        start(services, request(workshop, **given), tmp_path)
    assert caught.value.field == field
    assert why in caught.value.message


CONFIGURE = "_TF_MIN_BAZEL_VERSION = '{0}'\n_TF_MAX_BAZEL_VERSION = '{1}'\n"
SETUP = "tensorflow/tools/pip_package/setup.py"
BUILD = {"tensorflow/tools/pip_package/BUILD": 'sh_binary(name = "build_pip_package")\n'}
BAZEL = Recipe(name="tf", kind=RecipeKind.BAZEL, cuda=True)


@pytest.fixture
def eras(tmp_path: Path) -> Workshop:
    """Eight commits: the Bazel changes at 2, TensorFlow becomes 2.1 at 4 and 2.4 at 6."""
    made = Workshop(tmp_path / "eras")
    for position in range(8):
        files = {"src/value": f"{position}\n"}
        if position == 0:
            files |= {**BUILD, SETUP: "_VERSION = '2.0.0'\n"}
            files |= {"configure.py": CONFIGURE.format("0.24.1", "0.25.2")}
        if position == 2:
            files["configure.py"] = CONFIGURE.format("0.24.1", "0.26.1")
        if position in (4, 6):
            files[SETUP] = f"_VERSION = '{'2.1.0' if position == 4 else '2.4.0'}'\n"
        made.commit(f"commit {position}", files)
    return made


def surveyed(services: Services, eras: Workshop, tmp_path: Path, last: int, **more: object) -> str:
    listed = shas(eras)
    recipe = {"name": "tf", "kind": "bazel", "cuda": True, **more}
    asked = request(eras, recipe=recipe, bad=listed[last])
    return start(services, asked, tmp_path)


def notes_of(services: Services, bisection_id: str) -> tuple[dict[str, object], list[str]]:
    with services.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
    return row.recipe, [str(each["note"]) for each in row.build_notes or ()]


def test_a_range_is_built_one_way_where_one_serves_it(
    services: Services, eras: Workshop, tmp_path: Path
) -> None:
    """Two eras of CUDA and of Bazel become one toolchain and one Bazel, and people are told."""
    recipe, notes = notes_of(services, surveyed(services, eras, tmp_path, 5))
    assert (recipe["toolchain"], recipe["bazel"]) == ("tf-cuda10.0", "0.25.2")
    assert len(notes) == 2
    assert all("serves both" in note for note in notes)


def test_a_crossing_that_can_not_be_avoided_is_a_possible_confounder(
    services: Services, eras: Workshop, tmp_path: Path
) -> None:
    """The first commit of another toolchain is named, and a culprit there carries the doubt."""
    bisection_id = surveyed(services, eras, tmp_path, 7)
    listed = shas(eras)
    recipe, notes = notes_of(services, bisection_id)
    assert recipe["toolchain"] == "auto"
    told = [note for note in notes if "toolchain is tf-cuda11" in note]
    assert len(told) == 1
    assert listed[6][:10] in told[0]

    runner = ScriptedRunner(lambda sha: 9000.0 if listed.index(sha) < 6 else 5000.0, noise=0.01)
    conductor = make_conductor(services, ScriptedBuilder(), runner, tmp_path)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    with services.database.read() as session:
        verdict = session.get_one(BisectionRow, bisection_id).verdict
    assert verdict is not None
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == [listed[6]]
    assert culprit["confounders"] == told
    assert told[0] in verdict["notes"]


def test_options_that_a_tree_can_not_have_are_refused_at_once(
    services: Services, eras: Workshop, tmp_path: Path
) -> None:
    """TensorRT on TensorFlow 2.18 is refused with the reason before anything is built."""
    eras.commit("TensorFlow 2.18", {SETUP: "_VERSION = '2.18.0'\n"})
    with pytest.raises(BadInputError) as caught:
        surveyed(services, eras, tmp_path, 8, tensorrt=True)
    assert caught.value.field == "tensorrt"
    assert "removed in TensorFlow 2.18" in caught.value.message
    assert shas(eras)[8][:10] in caught.value.message


def experiment(
    services: Services, workshop: Workshop, tmp_path: Path, **options: object
) -> dict[str, Any]:
    """Conduct an experiment in which commits 3 to 8 build only with the fix; return its verdict."""
    listed = shas(workshop)
    values = {
        "repository": str(workshop.path),
        "recipe": "scripted",
        "benchmark": "scripted",
        **options,
    }
    submitted = submit_experiment(
        services,
        ExperimentRequest.model_validate(values),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )

    def fails(asked: BuildRequest) -> Failure | None:
        needs = BREAKS <= listed.index(asked.commit) < FIXES
        return Failure(FailureKind.PERMANENT, "gone.h") if needs and not asked.carried else None

    runner = ScriptedRunner(lambda sha: 9000.0 if listed.index(sha) < SLOWS else 4000.0, noise=0.01)
    conductor = make_conductor(services, ScriptedBuilder(fails), runner, tmp_path)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        verdict = session.get_one(ExperimentRow, submitted.id).verdict
    assert verdict is not None
    return verdict


def test_an_experiment_carries_a_fix_to_the_bases_that_need_it(
    services: Services, workshop: Workshop, tmp_path: Path
) -> None:
    """Of three bases the broken two get the fix, and their points say so; the good one is as is."""
    listed = shas(workshop)
    bases = (listed[0], listed[4], listed[SLOWS + 1])
    verdict = experiment(
        services,
        workshop,
        tmp_path,
        arms=[{"base": base} for base in bases[1:]],
        against={"base": bases[0]},
        carry_pick=[listed[FIXES]],
    )
    fix = f"pick {listed[FIXES]}"
    assert [arm["revision"] for arm in verdict["arms"]] == [
        bases[0],
        f"{bases[1]} {fix}",
        f"{bases[2]} {fix}",
    ]
    assert [arm["difference"] for arm in verdict["arms"]] == [None, "alike", "worse"]
    assert len(verdict["carried"]) == 1
    assert verdict["carried"][0].startswith(f"{fix}: carried at 2 of 3 commits")
    assert any("carried at 2 of 3 commits" in line for line in experiment_lines(verdict))
    with services.database.read() as session:
        points = session.query(PointRow).all()
    assert {
        (point.commit_sha, tuple(point.environment.get("carried", ()))) for point in points
    } == {
        (bases[0], ()),
        (bases[1], (fix,)),
        (bases[2], (fix,)),
    }


def test_a_minimal_set_of_reverts_is_looked_for_with_the_fix(
    services: Services, workshop: Workshop, tmp_path: Path
) -> None:
    """Every subset that is tried carries the patch, before its own reverts."""
    workshop.switch("side", shas(workshop)[4])
    for number in (1, 2):
        workshop.commit(f"suspect {number}", {f"src/extra{number}": "1\n"})
    head, first = workshop.head, workshop.git("rev-parse", "HEAD~1")
    workshop.switch("master")
    listed = shas(workshop)
    patch = workshop.git("show", "--format=", listed[FIXES], "--", "src/kernel.cc") + "\n"
    submitted = submit_experiment(
        services,
        ExperimentRequest(
            repository=str(workshop.path),
            recipe="scripted",
            benchmark="scripted",
            arms=(ArmRequest(base=head, revert=(head, first)),),
            carry=(patch,),
            minimise_reverts=True,
            max_runs=12,
        ),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    built: list[tuple[str, ...]] = []

    def fails(asked: BuildRequest) -> None:
        built.append(asked.carried)

    runner = ScriptedRunner(lambda sha: 9000.0, noise=0.01)
    conductor = make_conductor(services, ScriptedBuilder(fails), runner, tmp_path)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        arms = session.query(ArmRow).order_by(ArmRow.position).all()
    assert len(arms) > 1
    assert all(
        f"patch {patch_name(patch)}" in arm.revision.partition(" revert ")[0] for arm in arms
    )
    assert built
    assert set(built) == {(f"patch {patch_name(patch)}",)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"carry": ["nonsense"]}, "carry"),
        ({"carry_pick": ["{fixes}"], "arms": [{"base": "{last}"}]}, "have it already"),
        ({"carry_pick": ["{fixes}"], "with_prerequisites": True}, "nothing can be carried along"),
    ],
)
def test_what_an_experiment_cannot_carry_is_refused(
    services: Services, workshop: Workshop, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    """A patch that is none, a fix that all bases have, and prerequisites beside it, by name."""
    listed = shas(workshop)
    text = json.dumps({"arms": [{"base": listed[4], "pick": [listed[FIXES]]}], **options})
    text = text.replace("{fixes}", listed[FIXES]).replace("{last}", listed[-1])
    with pytest.raises(BadInputError, match=said):
        experiment(services, workshop, tmp_path, **json.loads(text))
