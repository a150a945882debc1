"""``perfbisect host``: which hosts measure. Works on a server's database, beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from perfbisect.commands import options
from perfbisect.commands.database import refuse_missing
from perfbisect.commands.options import AsJson, DatabaseUrl, DataDir
from perfbisect.errors import BadInputError, ConflictError
from perfbisect.report import printable
from perfbisect.store import host_health
from perfbisect.store.catalogue import host_names
from perfbisect.store.database import Database, open_database
from perfbisect.store.host_tables import HostHealthRow

app = typer.Typer(help="List hosts, take them out and put them back.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the host.")]


@contextmanager
def _database(data_dir: DataDir, database_url: DatabaseUrl) -> Iterator[Database]:
    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    refuse_missing(settings.url)
    database = open_database(settings.url)
    try:
        yield database
    finally:
        database.close()


@app.command("list")
def list_(
    data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List the hosts with their scores, and why one is out."""
    with _database(data_dir, database_url) as database, database.read() as session:
        known = host_health.health_of_hosts(session)
        rows = [(name, known.get(name)) for name in host_names(session)]
    told = [_told(name, row) for name, row in rows]
    if as_json:
        options.print_json({"hosts": told})
        return
    for each in told:
        score = "-" if each["score"] is None else each["score"]
        out = f"  out since {each['out_since']}: {printable(each['reason'])}"
        typer.echo(f"{each['name']}  score {score}{out if each['out_since'] else ''}")


def _told(name: str, row: HostHealthRow | None) -> dict[str, Any]:
    if row is None:
        return {"name": name, "score": None, "out_since": None, "out_by": None, "reason": ""}
    return {
        "name": name,
        "score": row.health["score"] if row.health else None,
        "out_since": row.out_since.isoformat(timespec="seconds") if row.out_since else None,
        "out_by": row.out_by,
        "reason": row.reason,
    }


@app.command("out")
def out(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why, for whoever wonders.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a host measure nothing more until it is put back."""
    if not reason.strip():
        raise BadInputError("--reason: say why", field="reason")
    with _database(data_dir, database_url) as database, database.write() as session:
        try:
            host_health.take_out(session, name, by=options.requester(), reason=reason.strip())
        except ConflictError as error:
            # It holds the reason that somebody gave.
            message = printable(error.message)
            raise ConflictError(message, field=error.field, value=error.value) from error
    typer.echo(f"{name} is out: {printable(reason.strip())}")


@app.command("back")
def back(name: Name, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Let a host measure again, judged by what it measures from now on."""
    with _database(data_dir, database_url) as database, database.write() as session:
        host_health.put_back(session, name)
    typer.echo(f"{name} is back")
