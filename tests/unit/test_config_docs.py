"""docs/recipes-and-benchmarks.md under test: what is not documented, or can't be read, fails."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from perfbisect.config import list_presets, load_benchmark, load_recipe
from perfbisect.config_values import BENCHMARK_PLACEHOLDERS
from perfbisect.core.recipe import (
    Benchmark,
    Companion,
    Metric,
    ReaderKind,
    Recipe,
    RecipeKind,
    Take,
    When,
)
from perfbisect.core.states import FailureKind

TEXT = (Path(__file__).parents[2] / "docs" / "recipes-and-benchmarks.md").read_text("utf-8")
RECIPE = TEXT.partition("## Recipe")[2].partition("## Benchmark")[0]
BENCHMARK = TEXT.partition("## Benchmark")[2].partition("### Metric")[0]
METRIC = TEXT.partition("### Metric")[2].partition("### Companions")[0]
COMPANIONS, _, WHEN = TEXT.partition("| of a companion |")[2].partition("| of a rule in `when` |")
BLOCKS = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def documented(section: str) -> set[str]:
    """Return the names in the first column of a section's tables."""
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    ("kind", "section", "others"),
    [
        (Recipe, RECIPE, set()),
        (Benchmark, BENCHMARK, set()),
        (Metric, METRIC, set(ReaderKind)),
        (Companion, COMPANIONS, set()),
        (When, WHEN.partition("### Files that are kept")[0], set()),
    ],
)
def test_keys_are_documented(kind: type, section: str, others: set[str]) -> None:
    """Each key has its row, and no row is about a key that does not exist."""
    assert documented(section) == {item.name for item in fields(kind)} | others


def test_words_are_documented() -> None:
    """Kinds, ways to take a value, placeholders and kinds of failure are all explained."""
    words = [*RecipeKind, *Take, *(f"{{{name}}}" for name in BENCHMARK_PLACEHOLDERS), *FailureKind]
    assert [word for word in words if f"`{word}`" not in TEXT] == []


def test_presets_are_documented() -> None:
    """Each shipped recipe and benchmark has its row, and no row is about one that isn't."""
    presets = list_presets()
    names = {known.recipe.name for known in presets.recipes}
    names |= {known.benchmark.name for known in presets.benchmarks}
    assert documented(TEXT.partition("## Shipped")[2]) == names


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_load(tmp_path: Path, block: str) -> None:
    """Every example is accepted as it stands."""
    file = tmp_path / "example.toml"
    file.write_text(block, encoding="utf-8")
    for name in re.findall(r'"([\w.]+\.py)"', block):
        (tmp_path / name).touch()
    load = load_recipe if "[recipe" in block else load_benchmark
    several = "#fast" if "[recipe.slow]" in block else ""
    assert load(f"{file}{several}")
