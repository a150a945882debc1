"""The database as one file, while everything goes on, and back again.

A backup is a ZIP file with two members: ``perfbisect.json`` says what it is (kind of database,
schema, SHA-256 of the content), and the content is an SQLite database, or what ``pg_dump`` writes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import Session

from perfbisect.errors import BadInputError, ConflictError, TransientError
from perfbisect.store.backup_files import (
    About,
    beside,
    damaged,
    pack,
    read_about,
    sha256_of,
    sync,
    unpack,
)
from perfbisect.store.database import Database, alembic_config, now, owner_is_dead
from perfbisect.store.jobs import CONDUCTED
from perfbisect.store.lease_tables import LeaseRow
from perfbisect.store.tables import BisectionRow

#: Pages copied at once; writers wait no longer than that takes.
_PAGES = 2048


def back_up(url: str, target: Path, *, force: bool = False) -> About:
    """Write everything that is committed to a file, whole or not at all; servers may go on.

    Args:
        url: of the database.
        force: replace a file that is there.

    Raises:
        BadInputError: there is no database, or the file can't be written there.
        ConflictError: the file is there.
        TransientError: the database can't be read, the disk is full, or ``pg_dump`` failed.
    """
    _refuse_existing(url, target, force)
    began = now().isoformat()
    with beside(target) as directory:
        content, partial = directory / "database", directory / "backup"
        parsed = make_url(url)
        kind = parsed.get_backend_name()
        if kind == "sqlite":
            _copy_sqlite(_sqlite_file(parsed), content)
        else:
            _run_postgresql("pg_dump", parsed, "--format=custom", f"--file={content}")
        about = About(
            kind=kind,
            schema=_schema_of(_url_of(content) if kind == "sqlite" else url),
            sha256=sha256_of(content),
            size=content.stat().st_size,
            version=version("perfbisect"),
            at=began,
        )
        pack(about, content, partial)
        partial.replace(target)
        sync(target.parent)
    return about


def put_back(url: str, source: Path, *, force: bool = False) -> About:
    """Make a database what a backup says, whole or not at all.

    Args:
        url: of the database; what is there is replaced with ``force`` only.

    Raises:
        BadInputError: the file is no backup, is damaged, is of another kind of database, or of a
            newer version of perfbisect.
        ConflictError: there is a database, or a process works on it.
        TransientError: the disk is full, or ``pg_restore`` failed.
    """
    parsed = make_url(url)
    about = read_about(source)
    kind = parsed.get_backend_name()
    if about.kind != kind:
        raise BadInputError(
            f"{source} holds a {about.kind} database, which can't be put into {kind}",
            field="file",
            value=str(source),
        )
    _refuse_newer(url, about, source)
    _refuse_used(url, parsed, force)
    place = _sqlite_file(parsed) if kind == "sqlite" else Path(tempfile.gettempdir()) / "database"
    place.parent.mkdir(parents=True, exist_ok=True)
    with beside(place) as directory:
        content = directory / "database"
        unpack(source, about, content)
        if kind == "sqlite":
            _check_sqlite(content, about, source)
            _place_sqlite(content, place)
        else:
            options = ("--clean", "--if-exists", "--no-owner", "--single-transaction")
            _run_postgresql("pg_restore", parsed, *options, "--exit-on-error", str(content))
    return about


# ---------------------------------------------------------------------- what is refused


def _refuse_existing(url: str, target: Path, force: bool) -> None:
    if make_url(url).get_backend_name() == "sqlite":
        own = _sqlite_file(make_url(url))
        if not own.exists():
            raise BadInputError(f"there is no database at {own}", field="database_url")
        if target.exists() and target.samefile(own):
            raise BadInputError(f"{target} is the database itself", field="file")
    if target.exists() and not force:
        raise ConflictError(f"{target} is there already: --force replaces it", field="file")
    if not target.resolve().parent.is_dir():
        raise BadInputError(f"there is no directory {target.resolve().parent}", field="file")


def _refuse_newer(url: str, about: About, source: Path) -> None:
    script = ScriptDirectory.from_config(alembic_config(url))
    if about.schema not in {each.revision for each in script.walk_revisions()}:
        raise BadInputError(
            f"{source} has schema {about.schema} of perfbisect {about.version}, which this version "
            f"({version('perfbisect')}) does not know: put it back with that one, or a newer one",
            field="file",
            value=str(source),
        )


def _refuse_used(url: str, parsed: URL, force: bool) -> None:
    """Refuse to replace a database unless told to, and one that is worked on in any case."""
    if parsed.get_backend_name() == "sqlite":
        file = _sqlite_file(parsed)
        if not file.exists():
            return
        if not _is_readable(file):
            if not force:
                raise ConflictError(
                    f"{file} holds no database, or a damaged one: --force sets it aside",
                    field="database_url",
                )
            return
    database = Database(url)
    try:
        tables = set(inspect(database.engine).get_table_names())
        if not tables:
            return
        if not force:
            raise ConflictError(
                "there is a database already: --force replaces all that is in it",
                field="database_url",
            )
        with database.read() as session:
            held = _held(session, tables)
        if held:
            last = max(until for _, until in held)
            raise ConflictError(
                f"{held[0][0]} works on this database: stop the servers first; the lease of a "
                f"process that was killed lapses, at {last:%Y-%m-%d %H:%M:%S} UTC",
                field="database_url",
            )
    finally:
        database.close()


def _held(session: Session, tables: set[str]) -> list[tuple[str, datetime]]:
    """Return who holds a lease, and until when; of an idle server it is the one on itself."""
    held: list[tuple[str, datetime]] = []
    if LeaseRow.__tablename__ in tables:
        asked = select(LeaseRow.holder, LeaseRow.expires_at).where(LeaseRow.expires_at > now())
        held.extend((row.holder, row.expires_at) for row in session.execute(asked))
    for table in CONDUCTED:
        if table.__tablename__ in tables:
            found = session.execute(
                select(table.lease_owner, table.lease_expires_at).where(
                    table.lease_owner.is_not(None), table.lease_expires_at > now()
                )
            )
            held.extend((owner, until) for owner, until in found if owner and until)
    return [each for each in held if not owner_is_dead(each[0])]


# ---------------------------------------------------------------------- SQLite


def _sqlite_file(parsed: URL) -> Path:
    if not parsed.database or parsed.database == ":memory:":
        raise BadInputError("a database in memory has no file", field="database_url")
    return Path(parsed.database)


def _url_of(file: Path) -> str:
    return URL.create("sqlite", database=str(file)).render_as_string()


def _is_readable(file: Path) -> bool:
    """Return whether there is an SQLite database in a file, as far as its first pages say."""
    try:
        with contextlib.closing(sqlite3.connect(file)) as opened:
            opened.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        raise TransientError(f"the database can't be read: {error}") from error
    except sqlite3.DatabaseError:
        return False
    return True


def _set_aside(file: Path, why: str) -> None:
    """Rename a database, or what is left of one: somebody may want to look at it."""
    moment = f"{now():%Y%m%dT%H%M%S%f}"
    for suffix in ("-wal", "-shm", "-journal", ""):
        part = file.with_name(file.name + suffix)
        if part.exists():
            part.rename(file.with_name(f"{file.name}.{why}-{moment}{suffix}"))


def _copy_sqlite(file: Path, target: Path) -> None:
    """Copy a consistent state with SQLite's own means: a copy of the file would be torn."""
    try:
        with (
            contextlib.closing(
                sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)
            ) as source,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            source.execute("PRAGMA busy_timeout=30000")
            # One transaction that reads: writers go on beside it, and what they add is not seen,
            # so that a busy server can't make the copy begin again for ever.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            source.backup(copy, pages=_PAGES)
            copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        raise TransientError(f"the database can't be copied: {error}") from error
    except sqlite3.DatabaseError as error:
        raise BadInputError(
            f"the database is damaged: {error}", field="database_url", value=str(file)
        ) from error


def _check_sqlite(content: Path, about: About, source: Path) -> None:
    """Refuse content that is no whole database of perfbisect with the schema it is said to have."""
    try:
        with contextlib.closing(sqlite3.connect(content)) as opened:
            (said,) = opened.execute("PRAGMA integrity_check(1)").fetchone()
            tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master")}
            if not {"alembic_version", BisectionRow.__tablename__} <= tables:
                raise damaged(source, "its content is no database of perfbisect")
            schemas = [name for (name,) in opened.execute("SELECT * FROM alembic_version")]
    except (sqlite3.DatabaseError, ValueError) as error:
        raise damaged(source, str(error)) from error
    if said != "ok":
        raise damaged(source, str(said))
    if schemas != [about.schema]:
        held = ", ".join(map(str, schemas)) or "none"
        raise damaged(source, f"it says schema {about.schema}, and its content has {held}")


def _place_sqlite(content: Path, place: Path) -> None:
    """Put a database in place of another in one transaction; SQLite undoes half of it."""
    found = place.exists()
    if not found or not _is_readable(place):
        sync(content)
        # A log that is left of another database would be replayed over this one.
        _set_aside(place, "damaged" if found else "left")
        content.replace(place)
        sync(place.parent)
        return
    try:
        with (
            contextlib.closing(sqlite3.connect(content)) as source,
            contextlib.closing(sqlite3.connect(place)) as target,
        ):
            target.execute("PRAGMA busy_timeout=30000")
            target.execute("PRAGMA synchronous=FULL")
            source.backup(target)
    except sqlite3.DatabaseError as error:
        raise TransientError(f"the database can't be replaced: {error}") from error


# ---------------------------------------------------------------------- PostgreSQL


def _run_postgresql(program: str, parsed: URL, *options: str) -> None:
    """Run one of PostgreSQL's programs on a database."""
    found = shutil.which(program)
    if found is None:
        raise BadInputError(
            f"{program} is not installed: it comes with PostgreSQL's client programs",
            field="database_url",
        )
    from psycopg.conninfo import make_conninfo

    _, known = parsed.get_dialect()().create_connect_args(parsed)
    password = known.pop("password", None)
    # Not on the command line, which every user of the machine can read.
    environment = {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}
    connection = make_conninfo("", **known)
    done = subprocess.run(
        [found, f"--dbname={connection}", "--no-password", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise TransientError(f"{program} failed: {done.stderr.strip()[-1000:]}")


# ---------------------------------------------------------------------- files


def _schema_of(url: str) -> str:
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
    finally:
        database.close()
    if current is None:
        raise BadInputError("this is no database of perfbisect: it has no schema",
                            field="database_url")  # fmt: skip
    return current
