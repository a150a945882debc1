"""perfbisect.building.steps: the commands of each kind of recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perfbisect.building.place import Paths, Step, StepResult, Stopped
from perfbisect.building.steps import bazelrc, steps_of
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.core.toolchain import ToolchainFacts

JUNE_2019 = 1_560_000_000


@dataclass
class Somewhere:
    """A place that runs nothing."""

    paths: Paths = field(default_factory=lambda: Paths("/s", "/o ut", "/h", "/c", "/b", "/d"))
    python: str = "python3"
    uv: str = "/bin/uv"
    jobs: int = 3
    toolchain_key: str = "key"
    environment: dict[str, Any] = field(default_factory=dict)
    keeps_server: bool = False

    def prepare(self) -> None:
        pass

    def python_version(self) -> tuple[int, int] | None:
        return (3, 7)

    def bazel(self, version: str) -> tuple[str, str]:
        return f"/bin/bazel-{version}", version

    def run(self, step: Step, timeout: float) -> StepResult:
        raise AssertionError((step, timeout))


def recipe(kind: RecipeKind, **options: Any) -> Recipe:
    return Recipe(name="r", kind=kind, **options)


def test_bazel_by_the_version_of_the_tree(tmp_path: Path) -> None:
    """The tree's Bazel runs the command that is shown, and what it built is run afterwards."""
    target = "//tensorflow/tools/pip_package:build_pip_package"
    facts = ToolchainFacts(bazel="0.26.1", target=target)
    steps = steps_of(recipe(RecipeKind.BAZEL), facts, Somewhere(), tmp_path, 0)
    assert steps[0].argv == ("/bin/bazel-0.26.1", "build", target)
    assert steps[0].shown == f"bazel build {target}"
    assert steps[1].argv == ("bazel-bin/tensorflow/tools/pip_package/build_pip_package", "/o ut")


def test_bazel_of_the_recipe_wins(tmp_path: Path) -> None:
    """A version named in the recipe replaces the tree's."""
    facts = ToolchainFacts(bazel="0.26.1", target="//a:wheel")
    steps = steps_of(recipe(RecipeKind.BAZEL, bazel="0.29.1"), facts, Somewhere(), tmp_path, 0)
    assert steps[0].argv[0] == "/bin/bazel-0.29.1"


def test_compiled_things_are_kept_apart_by_compiler() -> None:
    """What another compiler made is never taken from a cache; archives are shared."""
    one, two = (bazelrc(Somewhere(toolchain_key=key)) for key in ("gcc7", "gcc12"))
    assert "--output_user_root=/b/gcc7\n" in one
    assert "--disk_cache=/c/bazel/disk-gcc7 --repository_cache=/c/bazel/repository\n" in one
    assert one.replace("gcc7", "gcc12") == two
    assert "startup --batch " in one


def test_command_placeholders_are_quoted(tmp_path: Path) -> None:
    """Placeholders become words for the shell; other braces are left alone."""
    text = "make -j{jobs} OUT={out} PY={python} && echo ${HOME} {a,b}"
    steps = steps_of(
        recipe(RecipeKind.COMMAND, command=text), ToolchainFacts(), Somewhere(), tmp_path, 0
    )
    assert steps[0].argv[-1] == "make -j3 OUT='/o ut' PY=python3 && echo ${HOME} {a,b}"


def test_globs_are_globs_and_nothing_else(tmp_path: Path) -> None:
    """Characters that mean something else to the shell are quoted in artifacts."""
    chosen = recipe(RecipeKind.COMMAND, command="true", artifacts=("a/**/*.so", "b c;$(x)"))
    steps = steps_of(chosen, ToolchainFacts(), Somewhere(), tmp_path, 0)
    assert "cp -rL --parents -- a/**/*.so b\\ c\\;\\$\\(x\\) '/o ut/artifacts'/" in steps[1].shown


def test_pip_wheel_of_a_date(tmp_path: Path) -> None:
    """uv is told the date and the constraints."""
    chosen = recipe(RecipeKind.PIP_WHEEL, build_requirements=("setuptools<50",), subdirectory="py")
    step = steps_of(chosen, ToolchainFacts(), Somewhere(), tmp_path, JUNE_2019)[0]
    assert step.shown == (
        "uv build --wheel --no-progress --python python3 --out-dir '/o ut' "
        "--exclude-newer 2019-06-08T13:20:00+00:00 "
        "--build-constraints /h/build-constraints.txt py"
    )
    assert (tmp_path / "build-constraints.txt").read_text() == "setuptools<50\n"


@pytest.mark.parametrize(
    ("chosen", "kind"),
    [
        (recipe(RecipeKind.BAZEL), FailureKind.PERMANENT),
        (recipe(RecipeKind.COMMAND, command=" "), FailureKind.OURS),
        (recipe(RecipeKind.COMMAND, command="x", artifacts=("/etc/*",)), FailureKind.OURS),
        (recipe(RecipeKind.COMMAND, command="x", artifacts=("a/../../b",)), FailureKind.OURS),
        (recipe(RecipeKind.PIP_WHEEL, subdirectory="/etc"), FailureKind.OURS),
    ],
)
def test_what_can_not_be_built(chosen: Recipe, kind: FailureKind, tmp_path: Path) -> None:
    """Each is refused before anything runs, with whose fault it is."""
    with pytest.raises(Stopped) as caught:
        steps_of(chosen, ToolchainFacts(), Somewhere(), tmp_path, 0)
    assert caught.value.failure.kind is kind
