"""``perfbisect db``: the schema of the database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import make_url

from perfbisect.commands.options import AsJson, DatabaseUrl, DataDir, make_settings, print_json
from perfbisect.errors import NotFoundError
from perfbisect.store.backup import back_up, put_back
from perfbisect.store.backup_files import About
from perfbisect.store.database import Database, check_schema, opening, upgrade
from perfbisect.units import format_size

BackupFile = Annotated[Path, typer.Argument(help="The backup.", dir_okay=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]

app = typer.Typer(help="Create, upgrade and check the database.", no_args_is_help=True)


def _open(data_dir: DataDir, database_url: DatabaseUrl, *, must_exist: bool = False) -> Database:
    url = make_settings(data_dir=data_dir, database_url=database_url).url
    if must_exist:
        refuse_missing(url)
    with opening():
        return Database(url)


def refuse_missing(url: str) -> None:
    """Refuse a database that is not there, rather than make one where only one is looked for.

    Raises:
        BadInputError: the URL is none.
        NotFoundError: SQLite's file is not there.
    """
    with opening():
        parsed = make_url(url)
    file = parsed.database if parsed.get_backend_name() == "sqlite" else None
    if file and not Path(file).exists():
        raise NotFoundError(
            f"there is no database at {file}: run 'perfbisect db upgrade'",
            field="database_url",
            value=file,
        )


@app.command("upgrade")
def upgrade_command(
    data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Bring the schema to the newest migration.

    Creates the database where there is none.
    """
    database = _open(data_dir, database_url)
    try:
        with opening():
            upgrade(database)
    finally:
        database.close()
    _report(database, as_json)


@app.command("check")
def check_command(
    data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Check that the schema is the one expected; changes nothing."""
    database = _open(data_dir, database_url, must_exist=True)
    try:
        with opening():
            check_schema(database)
    finally:
        database.close()
    _report(database, as_json)


@app.command("backup")
def backup_command(
    file: BackupFile,
    force: Force = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the database to a file; servers may go on meanwhile.

    Mirrors, logs and artifacts are not in it: what is missing is fetched and built again.
    """
    url = make_settings(data_dir=data_dir, database_url=database_url).url
    with opening():
        about = back_up(url, file, force=force)
    _tell(about, file, as_json, f"{file}: schema {about.schema}, {format_size(about.size)}.")


@app.command("restore")
def restore_command(
    file: BackupFile,
    force: Force = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make the database what a backup says; stop the servers first."""
    url = make_settings(data_dir=data_dir, database_url=database_url).url
    with opening():
        about = put_back(url, file, force=force)
    _tell(about, file, as_json, f"The database is as it was at {about.at}.")


def _tell(about: About, file: Path, as_json: bool, sentence: str) -> None:
    if as_json:
        print_json({"file": str(file), **asdict(about)})
    else:
        typer.echo(sentence)


def _report(database: Database, as_json: bool) -> None:
    where = database.engine.url.render_as_string(hide_password=True)
    if as_json:
        print_json({"database": where, "schema": "current"})
    else:
        typer.echo(f"The schema of {where} is current.")
