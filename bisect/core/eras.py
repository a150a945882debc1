"""Where the way of building changes along a range, and whether one way serves all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.toolchain import ToolchainFacts

#: Toolchains of neighbouring eras, and the one of them that builds the trees of both: TensorFlow
#: took its CUDA from configure.py until 2.17, and accepts the older one for some time.
_SERVES_BOTH: Mapping[frozenset[str], str] = {
    frozenset({"tf-cuda10.0", "tf-cuda10.1"}): "tf-cuda10.0",
    frozenset({"tf-cpu", "tf-hermetic"}): "tf-cpu",
}

#: What a change of each fact may mean for a benchmark.
_MEANS: Mapping[str, str] = {
    "toolchain": "another compiler, or another CUDA, makes other code of the same source",
    "Bazel": "another Bazel may pass other options to the compiler",
    "XLA": "XLA is built in on one side only",
    "Python": "the wheel is made for another Python",
    "API": "TensorFlow starts with another API by default",
    "target": "the wheel is put together in another way",
}


@dataclass(frozen=True, slots=True)
class Crossing:
    """The first position that is built otherwise than the one before it."""

    position: int
    #: ``toolchain``, ``Bazel``, ``XLA``, ``Python``, ``API`` or ``target``.
    what: str
    before: str
    after: str

    def note(self, name: str) -> str:
        """Return the crossing in words; ``name`` is the commit's."""
        return (
            f"from {name} on, {self.what} is {self.after} rather than {self.before}: "
            f"{_MEANS[self.what]}, so a step at this commit may come from that"
        )


def toolchain_of(recipe: Recipe, facts: ToolchainFacts) -> str:
    """Return the name of the toolchain that builds a tree by a recipe."""
    if recipe.toolchain != "auto":
        return recipe.toolchain
    if recipe.kind is not RecipeKind.BAZEL:
        return "python"
    return facts.gpu_toolchain if recipe.cuda else facts.cpu_toolchain


def ways(recipe: Recipe, facts: ToolchainFacts) -> dict[str, str]:
    """Return how a tree is built by a recipe: what a crossing is a change of."""
    found = {
        "Bazel": facts.bazel if recipe.bazel == "auto" else recipe.bazel,
        "Python": "hermetic" if facts.hermetic_python else recipe.python,
        "target": facts.target if recipe.target == "auto" else recipe.target,
    }
    if recipe.docker:
        found["toolchain"] = toolchain_of(recipe, facts)
    if not recipe.xla:
        found["XLA"] = "built in" if facts.xla_by_default else "left out"
    if recipe.tf_api_version is None:
        found["API"] = f"version {facts.api_default}"
    return {name: value or "not told" for name, value in sorted(found.items())}


def crossings(recipe: Recipe, facts: Mapping[int, ToolchainFacts]) -> tuple[Crossing, ...]:
    """Return where the way of building changes, in order.

    Args:
        recipe: how the range is built.
        facts: position -> facts, at both ends and on both sides of every change.
    """
    found = []
    before: dict[str, str] | None = None
    for position, each in sorted(facts.items()):
        after = ways(recipe, each)
        for name, value in after.items():
            if before is not None and before[name] != value:
                found.append(Crossing(position, name, before[name], value))
        before = after
    return tuple(found)


def unified(recipe: Recipe, facts: Iterable[ToolchainFacts]) -> Recipe:
    """Return the recipe with one toolchain and one Bazel for a whole range, where there is one.

    Args:
        recipe: what was asked for; what it names itself stays.
        facts: of the trees along the range.
    """
    listed = list(facts)
    if recipe.kind is not RecipeKind.BAZEL:
        return recipe
    names = {toolchain_of(recipe, each) for each in listed}
    if recipe.docker and len(names) > 1 and (one := _SERVES_BOTH.get(frozenset(names))):
        recipe = replace(recipe, toolchain=one)
    versions = sorted({each.bazel for each in listed}, key=_number)
    if recipe.bazel == "auto" and len(versions) > 1 and (common := _common(versions, listed)):
        recipe = replace(recipe, bazel=common)
    return recipe


def _common(versions: Sequence[str], facts: Sequence[ToolchainFacts]) -> str:
    """Return the newest Bazel of the range that every tree of it accepts; empty: there is none."""
    for version in reversed(versions):
        if version and all(_accepts(each, version) for each in facts):
            return version
    return ""


def _accepts(facts: ToolchainFacts, version: str) -> bool:
    if facts.bazel == version:
        return True
    low, high = facts.bazel_range
    if not low or not high:
        return False
    return _number(low) <= _number(version) <= _number(high)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
