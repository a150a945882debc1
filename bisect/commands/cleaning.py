"""``perfbisect gc``: what is no longer needed goes."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfbisect.commands import options
from perfbisect.core.retention import Kind, Removal
from perfbisect.report import plural, printable
from perfbisect.services import Services
from perfbisect.units import format_size

if TYPE_CHECKING:
    from perfbisect.collecting import Collected

_DAY = 86_400.0

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")]


def gc(
    dry_run: DryRun = False,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove wheels, trees, caches, logs, … no longer needed.

    Also toolchains' images, and files that runs left. By size and age, as the settings
    PERFBISECT_KEEP_… say; never what an open bisection needs.
    """
    # Docker's client takes long to import; other commands must not wait for it.
    from perfbisect.collecting import Collected, Collector

    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    if dry_run and not settings.data_dir.is_dir():
        # To look, nothing is made.
        options.say(f"{settings.data_dir} is not there: nothing was kept yet.")
        if as_json:
            options.print_json(_as_json(Collected(()), dry_run=True))
        else:
            _say_totals(Collected(()), dry_run=True)
        return
    services = Services.open(settings, make_artifacts=not dry_run)
    try:
        collected = Collector(services).collect(dry_run=dry_run)
    finally:
        services.close()
    if as_json:
        options.print_json(_as_json(collected, dry_run=dry_run))
        return
    for removal in collected.removals:
        if removal.item.kind is not Kind.BUILD_CACHE:
            typer.echo(_line(removal))
    _say_totals(collected, dry_run=dry_run)


def _line(removal: Removal) -> str:
    item = removal.item
    days = max(0.0, time.time() - item.last_used) / _DAY
    return (
        f"{item.kind:11}  {format_size(item.size):>9}  {days:4.0f} d  {printable(item.name)}  "
        f"({removal.reason})"
    )


def _say_totals(collected: Collected, *, dry_run: bool) -> None:
    counts = Counter(each.item.kind for each in collected.removals)
    sizes: Counter[Kind] = Counter()
    for each in collected.removals:
        sizes[each.item.kind] += each.item.size
    parts = [f"{plural(counts[kind], kind)}, {format_size(sizes[kind])}" for kind in counts]
    verb = "would go" if dry_run else "went"
    what = "; ".join(parts) or "nothing"
    typer.echo(f"{verb}: {what}" + (f"; {format_size(collected.size)} in all" if parts else ""))
    for problem in collected.problems:
        options.say(f"stays: {printable(problem)}")


def _as_json(collected: Collected, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "bytes": collected.size,
        "removed": [
            {
                "kind": each.item.kind,
                "name": each.item.name,
                "bytes": each.item.size,
                "last_used": each.item.last_used,
                "reason": each.reason,
            }
            for each in collected.removals
        ],
        "problems": list(collected.problems),
    }
