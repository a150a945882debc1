"""``perfbisect doctor``: what this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from perfbisect.commands import options

if TYPE_CHECKING:
    from perfbisect.doctor import Check

_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}


def doctor(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Say what this machine has, what is missing, and what to do.

    Ends with 1 where something is missing that nothing works without.
    """
    from perfbisect.doctor import check_all, is_ready

    settings = options.make_settings(data_dir=data_dir)
    checks = check_all(settings.data_dir, settings.database_url, settings.docker_host)
    if as_json:
        options.print_json({"ready": is_ready(checks), "checks": [asdict(c) for c in checks]})
    else:
        options.standard_output().print(_table(checks))
    raise typer.Exit(0 if is_ready(checks) else 1)


def _table(checks: Sequence[Check]) -> Table:
    table = Table.grid(padding=(0, 2))
    for check in checks:
        needed = " (needed)" if check.required and check.status != "ok" else ""
        style = _STYLES[check.status] if check.required or check.status != "missing" else "dim"
        said = Text(check.detail + needed)
        if check.advice:
            said.append(f"\n{check.advice}", style="dim")
        table.add_row(Text(check.name), Text(check.status, style=style), said)
    return table
