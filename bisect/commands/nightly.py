"""``perfbisect nightly``: series of this data directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from sqlalchemy import select

from perfbisect import series
from perfbisect.commands import options
from perfbisect.commands.remote import TokenFile, make_client
from perfbisect.commands.search import Interrupted, InterruptFlag, open_services
from perfbisect.core.recipe import digest_of
from perfbisect.core.series_states import NightState
from perfbisect.errors import BadInputError, why_unreadable
from perfbisect.nightly.definitions import find_series
from perfbisect.nightly.formats import read_csv
from perfbisect.nightly.points import MOST_POINTS, NightPoint
from perfbisect.nightly.showing import all_series, change_json, nights_json, series_json
from perfbisect.report import format_value, plural
from perfbisect.services import Services
from perfbisect.store.series_tables import SeriesNightRow, SeriesRow

app = typer.Typer(help="Nightly series: points in, changes out.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="SERIES", help="Name of a series.")]


@app.command("import")
def import_points(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Columns: night, value, …")],
    name: Annotated[
        str | None, typer.Option("--series", help="Name of the series; else the file's.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Unit of the values, for a new series.")] = "",
    better: Annotated[
        str | None, typer.Option(help="'higher' or 'lower', for a new series.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send them to this server; else into the data directory."),
    ] = None,
    token_file: TokenFile = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Add the nights of a CSV file to a series and look for changes.

    Columns are night, value, and as wanted version, host, runs, measured_at; every other column is
    a repository and holds its commit. Sending a file again changes nothing.
    """
    points = read_csv(_read(file), str(file))
    asked = {"unit": unit, "better": better} if unit or better else None
    definition = None
    if asked is not None:
        definition = series.definition_from_dict(asked, "--better")
    chosen = file.stem if name is None else name
    if server is not None:
        if data_dir is not None or database_url is not None:
            raise BadInputError(
                "--server: the points go to the server; leave --data-dir and --database-url out",
                field="server",
                value=server,
            )
        answer, changes = _sent(server, token_file, chosen, points, asked)
    else:
        settings = options.make_settings(data_dir=data_dir, database_url=database_url)
        with open_services(settings) as services:
            series.sync_project(services)
            if definition is not None and _is_known(services, chosen, unit, better):
                definition = None
            answer = series.record_points(
                services, chosen, points, source="csv", definition=definition
            )
            series.search(services)
            changes = [change_json(each) for each in series.changes_of(services, chosen)]
    if as_json:
        options.print_json({**answer, "changes": changes})
        return
    typer.echo(
        f"{answer['series']}: {plural(answer['added'], 'night')} added, {answer['known']} known"
    )
    _print_changes(changes)


def _is_known(services: Services, name: str, unit: str, better: str | None) -> bool:
    """Return whether a series is there already, as it was said to be.

    Raises:
        BadInputError: it is there with another unit or direction.
    """
    with services.database.read() as session:
        row = session.scalar(select(SeriesRow).where(SeriesRow.name == name))
    if row is not None:
        _refuse_other(name, {"unit": row.unit, "better": row.better}, unit, better)
    return row is not None


def _refuse_other(name: str, known: Mapping[str, Any], unit: str, better: str | None) -> None:
    for option, wanted in (("unit", unit), ("better", better)):
        if wanted and str(known[option]) != wanted:
            raise BadInputError(
                f"--{option}: series '{name}' has '{known[option]}', not '{wanted}'; leave it "
                "out, or give the series another name with --series",
                field=option,
                value=wanted,
            )


def _sent(
    server: str,
    token_file: Path | None,
    name: str,
    points: Sequence[NightPoint],
    asked: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Send points to a server; return its answer, and the changes that it knows of then."""
    body: dict[str, Any] = {
        "points": [point.model_dump(mode="json", exclude_defaults=True) for point in points]
    }
    with make_client(server, token_file) as client:
        known = {each["name"]: each for each in client.series()}
        if asked is not None and name in known:
            _refuse_other(name, known[name], str(asked["unit"]), asked["better"])
        elif asked is not None:
            body["series"] = {key: value for key, value in asked.items() if value}
        # Made of what is sent: the same file sent again is the same delivery.
        answer = client.add_points(name, body, digest_of([name, body]))
        return answer, list(client.changes(name))


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > 1000 * MOST_POINTS:
            raise BadInputError(f"{file}: larger than {MOST_POINTS} nights can be", value=str(file))
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{file}: can't be read: {why_unreadable(error)}", field="FILE", value=str(file)
        ) from error


@app.command("list")
def list_series(
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """List all series with their last night and what is open."""
    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    with open_services(settings) as services:
        series.sync_project(services)
        with services.database.read() as session:
            found = all_series(session)
    if as_json:
        options.print_json({"items": found})
        return
    if not found:
        typer.echo("No series yet: define one in perfbisect.toml, or import or send points.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("series", "nights", "last", "value", "unit", "suspected", "confirmed"):
        table.add_column(heading)
    for each in found:
        changes = each["changes"]
        cells = (
            each["name"], str(each["nights"]), each["last_night"] or "–",
            format_value(each["last_value"]) if each["last_value"] else "–", each["unit"],
            str(changes["suspected"] + changes["confirming"]), str(changes["confirmed"]),
        )  # fmt: skip
        table.add_row(*(Text(cell) for cell in cells))
    options.standard_output().print(table)


@app.command("show")
def show(
    name: Name,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a series and every change that was seen in it."""
    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    with open_services(settings) as services:
        series.sync_project(services)
        with services.database.read() as session:
            row = find_series(session, name)
            told = series_json(session, row)
            nights = nights_json(session, row)
        changes = [change_json(each) for each in series.changes_of(services, name)]
    if as_json:
        options.print_json({**told, "found": changes, "own_nights": nights})
        return
    typer.echo(
        f"{told['name']}: {plural(told['nights'], 'night')}, the last one "
        f"{told['last_night'] or '–'} with {format_value(told['last_value'])} {told['unit']}"
    )
    _print_changes(changes)


def _print_changes(changes: list[dict[str, Any]]) -> None:
    if not changes:
        typer.echo("No change was seen.")
    for each in changes:
        typer.echo(f"  {each['state']}: {each['reason']}")


@app.command("run")
def run(
    name: Name,
    night: Annotated[
        datetime | None,
        typer.Option("--night", formats=["%Y-%m-%d"], help="The day; else today, in UTC."),
    ] = None,
    host: options.HostName = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure a night here and append it.

    The newest published wheel of the series' package, or the head of its branch, as it was at the
    end of that night.
    """
    settings = options.make_settings(data_dir=data_dir, database_url=database_url, host_name=host)
    with open_services(settings) as services:
        series.sync_project(services)
        row = series.run_night(services, name, night.date() if night else None)
        if row.state is NightState.MEASURING and row.experiment_id is not None:
            options.say(f"Night {row.night}: {row.version or 'measuring'}.")
            _conduct(services, row.experiment_id)
            series.advance(services)
        ended = _night(services, row.series_id, row.night)
        changes = [change_json(each) for each in series.changes_of(services, name)]
    if as_json:
        options.print_json(
            {"series": name, "night": str(row.night), "state": ended.state, "reason": ended.reason}
        )
    else:
        typer.echo(f"{name}, night {row.night}: {ended.state} ({ended.reason})")
        _print_changes(changes[:1])
    raise typer.Exit(3 if ended.state is NightState.FAILED else 0)


def _night(services: Services, series_id: str, night: date) -> SeriesNightRow:
    with services.database.read() as session:
        return session.scalars(
            select(SeriesNightRow).where(
                SeriesNightRow.series_id == series_id, SeriesNightRow.night == night
            )
        ).one()


def _conduct(services: Services, experiment_id: str) -> None:
    """Conduct the measurement until it is finished or interrupted."""
    # Builders and Docker's client take long to import.
    from perfbisect.wiring import make_conductor

    conductor = make_conductor(services, only=[experiment_id])
    interrupt = InterruptFlag()
    with interrupt:
        try:
            conductor.conduct_until_finished(experiment_id, interrupt.check)
        except Interrupted:
            options.say("Stopping: what was measured is kept; a server goes on with it.")
        finally:
            conductor.stop()
