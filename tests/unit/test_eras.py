"""perfbisect.core.eras: where the way of building changes, and what serves both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfbisect.core.eras import crossings, toolchain_of, unified
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.toolchain import ToolchainFacts

CPU = Recipe(name="r", kind=RecipeKind.BAZEL)
GPU = replace(CPU, cuda=True)
OLD = ToolchainFacts(
    bazel="0.26.1",
    target="//a:build_pip_package",
    gpu_toolchain="tf-cuda10.0",
    bazel_range=("0.24.1", "0.26.1"),
)
NEXT = replace(OLD, bazel="0.29.1", gpu_toolchain="tf-cuda10.1", bazel_range=("0.27.1", "0.29.1"))
LATER = replace(
    NEXT,
    bazel="3.1.0",
    gpu_toolchain="tf-cuda11",
    bazel_range=("3.1.0", "3.1.0"),
    xla_by_default=True,
)
HERMETIC = replace(LATER, cpu_toolchain="tf-hermetic", hermetic_python=True)


def changed(recipe: Recipe, *facts: ToolchainFacts) -> set[str]:
    return {each.what for each in crossings(recipe, dict(enumerate(facts)))}


@pytest.mark.parametrize(
    ("recipe", "before", "after", "what"),
    [
        (GPU, OLD, OLD, set()),
        (GPU, OLD, NEXT, {"toolchain", "Bazel"}),
        (CPU, OLD, NEXT, {"Bazel"}),
        (GPU, NEXT, LATER, {"toolchain", "Bazel", "XLA"}),
        (replace(GPU, xla=True), NEXT, LATER, {"toolchain", "Bazel"}),
        (replace(GPU, toolchain="tf-cuda11", bazel="3.1.0", xla=True), NEXT, LATER, set()),
        (CPU, LATER, HERMETIC, {"toolchain", "Python"}),
        (replace(CPU, docker=False), LATER, HERMETIC, {"Python"}),
        (CPU, OLD, replace(OLD, api_default=2), {"API"}),
        (replace(CPU, tf_api_version=2), OLD, replace(OLD, api_default=2), set()),
        (CPU, OLD, replace(OLD, target="//a:wheel"), {"target"}),
    ],
)
def test_what_changes_between_eras(
    recipe: Recipe, before: ToolchainFacts, after: ToolchainFacts, what: set[str]
) -> None:
    """Only what the recipe leaves to the tree can change along a range."""
    assert changed(recipe, before, after) == what


def test_a_crossing_says_where_and_what_it_may_mean() -> None:
    """The note names the first commit that is built otherwise, both ways, and the danger."""
    (crossing,) = crossings(CPU, {3: OLD, 7: replace(OLD, xla_by_default=True)})
    assert crossing.position == 7
    note = crossing.note("1a2b3c")
    assert "from 1a2b3c on, XLA is built in rather than left out" in note
    assert "may come from that" in note


@pytest.mark.parametrize(
    ("recipe", "facts", "toolchain", "bazel"),
    [
        (GPU, (OLD, OLD), "auto", "auto"),
        (GPU, (OLD, NEXT), "tf-cuda10.0", "auto"),
        (GPU, (NEXT, LATER), "auto", "auto"),
        (CPU, (LATER, HERMETIC), "tf-cpu", "auto"),
        (replace(GPU, toolchain="mine"), (OLD, NEXT), "mine", "auto"),
        (CPU, (OLD, replace(OLD, bazel="0.25.2")), "auto", "0.26.1"),
        (
            CPU,
            (OLD, replace(OLD, bazel="0.25.2", bazel_range=("0.24.1", "0.25.2"))),
            "auto",
            "0.25.2",
        ),
        (CPU, (OLD, replace(OLD, bazel="4.2.1", bazel_range=("", ""))), "auto", "auto"),
    ],
)
def test_one_way_for_a_whole_range_where_there_is_one(
    recipe: Recipe, facts: tuple[ToolchainFacts, ...], toolchain: str, bazel: str
) -> None:
    """A toolchain or a Bazel that serves both sides is taken for all; what is named stays."""
    one = unified(recipe, facts)
    assert (one.toolchain, one.bazel) == (toolchain, bazel)


def test_other_kinds_have_no_era() -> None:
    """A recipe that is not Bazel's is built by the toolchain for Python, whatever the tree says."""
    wheel = Recipe(name="r", kind=RecipeKind.PIP_WHEEL)
    assert toolchain_of(wheel, LATER) == "python"
    assert unified(wheel, (OLD, LATER)) == wheel
