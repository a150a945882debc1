"""The database as one file, while everything goes on, and back again.

A backup is a ZIP file with two members: ``perfbisect.json`` says what it is (kind of database,
schema, SHA-256 of the content), and the content is an SQLite database, or what ``pg_dump`` writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select
from sqlalchemy.engine import URL, make_url

from perfbisect.errors import BadInputError, ConflictError, TransientError
from perfbisect.store.database import Database, alembic_config, now, owner_is_dead
from perfbisect.store.jobs import CONDUCTED

_ABOUT, _CONTENT = "perfbisect.json", "database"
_BLOCK = 1 << 20
#: Pages copied at once; writers wait no longer than that takes.
_PAGES = 2048


@dataclass(frozen=True, slots=True)
class About:
    """What a backup holds."""

    #: ``sqlite`` or ``postgresql``.
    kind: str
    #: Revision of the schema.
    schema: str
    #: SHA-256 of the content, and its bytes.
    sha256: str
    size: int
    #: Of perfbisect.
    version: str
    #: When it was begun, ISO 8601.
    at: str


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
    with _beside(target) as directory:
        content, partial = directory / _CONTENT, directory / "backup"
        parsed = make_url(url)
        kind = parsed.get_backend_name()
        if kind == "sqlite":
            _copy_sqlite(_sqlite_file(parsed), content)
        else:
            _run_postgresql("pg_dump", parsed, "--format=custom", f"--file={content}")
        about = About(
            kind=kind,
            schema=_schema_of(_url_of(content) if kind == "sqlite" else url),
            sha256=_sha256(content),
            size=content.stat().st_size,
            version=version("perfbisect"),
            at=began,
        )
        _pack(about, content, partial)
        partial.replace(target)
        _sync(target.parent)
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
    with _beside(place) as directory:
        content = directory / _CONTENT
        _unpack(source, about, content)
        if kind == "sqlite":
            _check_sqlite(content, source)
            _place_sqlite(content, place)
        else:
            options = ("--clean", "--if-exists", "--no-owner", "--single-transaction")
            _run_postgresql("pg_restore", parsed, *options, "--exit-on-error", str(content))
    return about


def read_about(source: Path) -> About:
    """Return what a file says of itself.

    Raises:
        BadInputError: it is not there, is no backup, or was cut off.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            told: dict[str, Any] = json.loads(archive.read(_ABOUT))
            archive.getinfo(_CONTENT)
            return About(**told)
    except FileNotFoundError as error:
        raise BadInputError(f"there is no file {source}", field="file") from error
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        raise _damaged(source, "it is no backup, or was cut off") from error


def _damaged(source: Path, why: str) -> BadInputError:
    return BadInputError(f"{source} can't be used: {why}", field="file", value=str(source))


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
            _set_aside(file)
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
        for table in CONDUCTED:
            if table.__tablename__ not in tables:
                continue
            with database.read() as session:
                owners = session.scalars(
                    select(table.lease_owner).where(
                        table.lease_owner.is_not(None), table.lease_expires_at > now()
                    )
                ).all()
            working = [owner for owner in owners if owner and not owner_is_dead(owner)]
            if working:
                raise ConflictError(
                    f"{working[0]} works on this database: stop it first", field="database_url"
                )
    finally:
        database.close()


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


def _set_aside(file: Path) -> None:
    """Rename a damaged database with what belongs to it: somebody may want to look at it."""
    moment = f"{now():%Y%m%dT%H%M%S%f}"
    for suffix in ("-wal", "-shm", ""):
        part = file.with_name(file.name + suffix)
        if part.exists():
            part.rename(file.with_name(f"{file.name}.damaged-{moment}{suffix}"))


def _copy_sqlite(file: Path, target: Path) -> None:
    """Copy a consistent state with SQLite's own means: a copy of the file would be torn."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True)) as source,
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


def _check_sqlite(content: Path, source: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(content)) as opened:
            (said,) = opened.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        raise _damaged(source, str(error)) from error
    if said != "ok":
        raise _damaged(source, str(said))


def _place_sqlite(content: Path, place: Path) -> None:
    """Put a database in place of another in one transaction; SQLite undoes half of it."""
    if not place.exists():
        _sync(content)
        content.replace(place)
        _sync(place.parent)
        return
    try:
        with (
            contextlib.closing(sqlite3.connect(content)) as source,
            contextlib.closing(sqlite3.connect(place)) as target,
        ):
            target.execute("PRAGMA busy_timeout=30000")
            target.execute("PRAGMA synchronous=FULL")
            source.backup(target)
    except sqlite3.OperationalError as error:
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


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield a directory on the same file system, so that a file is moved and not copied.

    Raises:
        BadInputError: nothing can be written there.
        TransientError: the disk is full.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.resolve().parent
        ) as made:
            yield Path(made)
    except PermissionError as error:
        raise BadInputError(f"{target}: {error.strerror}", field="file") from error
    except OSError as error:
        raise TransientError(f"{target}: {error.strerror or error}") from error


def _pack(about: About, content: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_ABOUT, json.dumps(asdict(about), indent=2) + "\n")
        archive.write(content, _CONTENT)
    _sync(target)


def _unpack(source: Path, about: About, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(source) as archive, archive.open(_CONTENT) as packed:
            _copy(packed, target, digest, about.size)
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise _damaged(source, str(error)) from error
    except OSError as error:
        raise TransientError(f"{source} can't be read: {error}") from error
    except Exception as error:
        # zlib and others have errors of their own for content that is none.
        raise _damaged(source, str(error)) from error
    if digest.hexdigest() != about.sha256:
        raise _damaged(source, "its content has another SHA-256 than it says")


def _copy(packed: IO[bytes], target: Path, digest: Any, size: int) -> None:
    left = size
    with target.open("wb") as file:
        while block := packed.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise ValueError("it holds more than it says")
            digest.update(block)
            file.write(block)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Have a file, or a directory's entries, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
