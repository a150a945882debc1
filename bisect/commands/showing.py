"""Printing a verdict: a sentence, a small table, the cost, and where the evidence is."""

from __future__ import annotations

from typing import Any

from rich.console import Console
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
from perfbisect.report_steps import notes_lines
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
    for line in (*culprit_table(verdict), ends_line(verdict), doubt_line(verdict)):
        if line:
            console.print(Text(line))
    console.print(Text(f"Cost: {cost_line(verdict)}"))
    for note in notes_lines(verdict):
        console.print(Text(printable(note)))


def _failure_lines(verdict: dict[str, Any]) -> list[str]:
    error = verdict.get("error") or {}
    return [str(line) for line in error.get("lines") or ()]


def culprit_table(verdict: dict[str, Any]) -> list[str]:
    """Return two lines for each culprit, aligned and narrow enough for any terminal."""
    lines = culprit_lines(verdict)
    columns = [
        (
            line.commit,
            line.kind,
            f"{line.before} -> {line.after}",
            line.change,
            f"({line.interval})",
            f"p {line.probability}",
            f"{'verified' if line.verified == 'yes' else 'not verified'}"
            + (f", {line.proof}" if line.proof else ""),
        )
        for line in lines
    ]
    widths = [max(len(row[index]) for row in columns) for index in range(7)] if columns else []
    table = []
    for line, row in zip(lines, columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        table.append(f"  {'  '.join(cells)}".rstrip())
        about = "; ".join(text for text in (line.subject, *line.relations) if text)
        table += [f"      {about}"] if about else []
        table += [f"      {remark}" for remark in line.remarks]
    return table
