"""``perfbisect token``: who may do what on a server. Works on its database, beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from perfbisect.commands import options
from perfbisect.commands.options import AsJson, DatabaseUrl, DataDir
from perfbisect.core.access import Scope
from perfbisect.errors import BadInputError
from perfbisect.report import printable
from perfbisect.settings import checked_limit
from perfbisect.store import access
from perfbisect.store.access import ANONYMOUS, Caller, NewToken
from perfbisect.store.access_tables import TokenRow
from perfbisect.store.database import Database, now, open_database
from perfbisect.units import parse_duration

app = typer.Typer(help="Create, list and revoke tokens.", no_args_is_help=True)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")

Scopes = Annotated[
    list[Scope] | None,
    typer.Option("--scope", help="What it may do; may be repeated. Each includes the ones before."),
]


@contextmanager
def _database(data_dir: DataDir, database_url: DatabaseUrl) -> Iterator[Database]:
    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    database = open_database(settings.url)
    try:
        yield database
    finally:
        database.close()


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whom or what it stands for.")],
    scope: Scopes = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: after '90d', or on '2030-01-31'; else never.")
    ] = None,
    rate_limit: Annotated[
        str | None, typer.Option(help="Requests at most, '100/minute'; else as the server says.")
    ] = None,
    max_unfinished: Annotated[
        int | None,
        typer.Option(min=1, help="Unfinished submissions at most; else as the server says."),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print its secret, which is not kept.

    Without ``--scope`` it may read.
    """
    wanted = NewToken(
        name=_checked_name(name),
        scopes=scope or [Scope.READ],
        expires_at=None if expires is None else _moment(expires),
        rate_limit=_checked_limit(rate_limit),
        max_unfinished=max_unfinished,
    )
    with _database(data_dir, database_url) as database:
        row, secret = access.create_token(database, wanted, created_by=options.requester())
    if as_json:
        options.print_json({"token": secret, **_told(row)})
        return
    options.say(f"'{row.name}' may {', '.join(row.scopes)}. Keep this: it is shown only now.")
    typer.echo(secret)


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) and name != ANONYMOUS:
        return name
    raise BadInputError(
        f"NAME: {name!r} can't be the name of a token: letters, digits and '._@+-', at most 100, "
        f"and not '{ANONYMOUS}'",
        field="name",
        value=name,
    )


def _checked_limit(text: str | None) -> str | None:
    try:
        return None if text is None else checked_limit(text)
    except ValueError as error:
        raise BadInputError(
            f"--rate-limit: {error}, not {text!r}", field="rate_limit", value=text
        ) from error


def _moment(text: str) -> datetime:
    """Return when a token ends: after a duration, or at the start of a day in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        seconds = parse_duration(text, "--expires")
        try:
            return now() + timedelta(seconds=seconds)
        except OverflowError as error:
            raise BadInputError(
                f"--expires: '{text}' ends after the year 9999; leave it out for a token that "
                "never ends",
                field="expires",
                value=text,
            ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment <= now():
        raise BadInputError(f"--expires: {text!r} is over", field="expires", value=text)
    return moment


@app.command("list")
def list_command(
    data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List all tokens, without their secrets."""
    with _database(data_dir, database_url) as database, database.read() as session:
        rows = [_told(row) for row in access.list_tokens(session)]
    if as_json:
        options.print_json({"tokens": rows})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = ("name", "state", "prefix", "scopes", "expires_at", "last_used_at")
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=True)
    for row in rows:
        cells = {**row, "scopes": ", ".join(row["scopes"])}
        table.add_row(*(Text(printable(str(cells[column] or "–"))) for column in columns))
    options.standard_output().print(table)


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a token.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token useless at once, also for who logged in by it."""
    me = Caller(options.requester(), frozenset(Scope))
    with _database(data_dir, database_url) as database:
        row = access.revoke_token(database, name, me)
    if as_json:
        options.print_json(_told(row))
    else:
        typer.echo(f"'{row.name}' is revoked.")


def _told(row: TokenRow) -> dict[str, Any]:
    moments = ("created_at", "expires_at", "revoked_at", "last_used_at")
    names = ("id", "name", "prefix", "scopes", "rate_limit", "max_unfinished", "created_by")
    told = {name: getattr(row, name) for name in names}
    for name in moments:
        moment: datetime | None = getattr(row, name)
        told[name] = moment.isoformat(timespec="seconds") if moment else None
    return {**told, "state": access.state_of(row)}
