"""Printing a verdict: a sentence, a small table, the cost, and where the evidence is."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfbisect.commands import options
from perfbisect.report import (
    cost_line,
    culprit_lines,
    doubt_line,
    ends_line,
    printable,
    sentence,
)
from perfbisect.services import Services


def show_verdict(services: Services, verdict: dict[str, Any], *, as_json: bool) -> None:
    """Print a verdict on standard output: as JSON and nothing else, or for people."""
    if as_json:
        options.print_json(verdict)
        return
    print_verdict(options.standard_output(), verdict)
    options.standard_output().print(
        Text(f"Evidence: {services.settings.data_dir} ('perfbisect serve' shows it; logs in logs/)")
    )


def print_verdict(console: Console, verdict: dict[str, Any]) -> None:
    """Print a verdict for people."""
    console.print()
    console.print(Text(sentence(verdict), style="bold"))
    for line in _failure_lines(verdict):
        console.print(Text(f"  | {printable(line)}"))
    if verdict.get("culprits"):
        console.print(_table(verdict))
    for line in (ends_line(verdict), doubt_line(verdict), f"Cost: {cost_line(verdict)}"):
        if line:
            console.print(Text(line))


def _failure_lines(verdict: dict[str, Any]) -> list[str]:
    error = verdict.get("error") or {}
    return [str(line) for line in error.get("lines") or ()]


def _table(verdict: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in (
        "commit",
        "kind",
        "before",
        "after",
        "change",
        "95% interval",
        "prob.",
        "verified",
    ):
        table.add_column(name, no_wrap=True)
    table.add_column("subject")
    for line in culprit_lines(verdict):
        subject = "; ".join(text for text in (line.subject, *line.relations) if text)
        cells = (line.commit, line.kind, line.before, line.after, line.change, line.interval)
        table.add_row(
            *(Text(cell) for cell in (*cells, line.probability, line.verified)), Text(subject)
        )
    return table
