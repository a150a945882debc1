"""The documents under test: what is not documented, or documented and not there, fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from perfbisect.cli import app
from perfbisect.core.states import (
    BISECTION_TRANSITIONS,
    WORK_TRANSITIONS,
    FailureKind,
    Outcome,
)
from perfbisect.report import exit_code, experiment_exit_code
from perfbisect.settings import Settings
from perfbisect.store.tables import Base

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
STATES = (DOCS / "states.md").read_text(encoding="utf-8")


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(path), command
        return
    for name, child in children.items():
        yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    """Every command has a heading of its own in docs/cli.md, and every option is named there."""
    headings = [line for line in CLI.splitlines() if line.startswith("#")]
    assert any(re.search(rf"`perfbisect {name}[` ]", line) for line in headings)
    options = [option for each in COMMANDS[name].params for option in each.opts]
    missing = [each for each in options if each.startswith("--") and f"`{each}`" not in CLI]
    assert missing == []


def test_no_option_is_invented() -> None:
    """Every option that docs/cli.md and the README name exists on some command."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    known = {
        option
        for command in (typer.main.get_command(app), *COMMANDS.values())
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
    } | {"--help"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", CLI + readme))
    assert sorted(named - known) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_fits_its_line(name: str) -> None:
    """The list of commands shows each command's first sentence whole."""
    first = (COMMANDS[name].help or "").split("\n\n")[0]
    assert first.endswith(".")
    assert 0 < len(first) <= 66


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_is_documented(field: str) -> None:
    """Every setting's variable is explained in docs/cli.md."""
    assert f"`PERFBISECT_{field.upper()}`" in CLI


@pytest.mark.parametrize(
    "arrow",
    [
        f"`{before}` -> `{after}`"
        for before, afters in BISECTION_TRANSITIONS.items()
        for after in sorted(afters)
    ],
)
def test_every_transition_of_a_bisection_is_drawn(arrow: str) -> None:
    """Every transition that the code allows is explained in docs/states.md."""
    assert arrow in STATES


def test_every_transition_of_work_is_drawn() -> None:
    """The transitions of builds and runs in docs/states.md are exactly those of the code."""
    for before, afters in WORK_TRANSITIONS.items():
        if not afters:
            continue
        match = re.search(rf"- `{before}` -> ([^\n]*?)\.\n", STATES.partition("## A build")[2])
        assert match is not None
        assert set(re.findall(r"`(\w+)`", match.group(1))) == set(afters)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_documented_with_its_exit_code(outcome: Outcome) -> None:
    """docs/states.md tells each outcome's exit code as the command line has it."""
    row = re.search(rf"^\| `{outcome}` \|.*\| ([^|]*) \|$", STATES, re.MULTILINE)
    assert row is not None
    code = experiment_exit_code if outcome is Outcome.ANSWERED else exit_code
    assert str(code({"outcome": outcome})) in row.group(1)


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_is_documented(kind: FailureKind) -> None:
    """docs/states.md says what happens on each kind of failure."""
    assert f"| `{kind}` |" in STATES


@pytest.mark.parametrize("table", Base.metadata.tables)
def test_every_table_is_documented(table: str) -> None:
    """docs/database.md says what a row of each table is."""
    assert f"| `{table}` |" in (DOCS / "database.md").read_text(encoding="utf-8")


def test_links_lead_somewhere() -> None:
    """Every relative link of the documents leads to a file that is there."""
    broken = []
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")):
        targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        broken += [
            f"{page.name}: {target}"
            for target in targets
            if "://" not in target and not (page.parent / target).exists()
        ]
    assert broken == []


def test_every_document_can_be_reached() -> None:
    """docs/index.md links every document."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(page for page in pages if f"]({page})" not in index) == []
