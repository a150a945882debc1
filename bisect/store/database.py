"""Opening the database: engine, migrations, sessions."""

from __future__ import annotations

import secrets
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry
from ulid import ULID

from perfbisect.errors import BadInputError, TransientError
from perfbisect.resources import migrations_dir


def now() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


def new_id() -> str:
    """Return a new sortable identifier (ULID, 26 characters)."""
    return str(ULID())


def _sqlite_pragmas(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    # The driver must not open transactions of its own: _begin does.
    connection.isolation_level = None
    cursor = connection.cursor()
    # WAL: readers never wait for the writer. FULL: a commit survives a power cut.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Any) -> None:
    # SQLite's deferred transactions fail at once when a reader becomes a writer; taking the
    # write lock at the start makes them wait for their turn instead.
    if connection.get_execution_options().get("perfbisect_read_only"):
        connection.exec_driver_sql("BEGIN")
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Database:
    """An open database; sessions write in one transaction each."""

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite and parsed.database and parsed.database != ":memory:":
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        self.engine = self._make_engine(url)
        self._write = sessionmaker(self.engine, expire_on_commit=False)
        self._read = sessionmaker(
            self.engine.execution_options(perfbisect_read_only=True), expire_on_commit=False
        )

    def _make_engine(self, url: str) -> Engine:
        if not self.is_sqlite:
            return create_engine(url, pool_pre_ping=True)
        engine = create_engine(url, connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _sqlite_pragmas)
        event.listen(engine, "begin", _begin)
        return engine

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Yield a session whose changes are committed whole at the end, or not at all.

        Raises:
            TransientError: the database can't be reached or stayed locked.
        """
        try:
            with self._write.begin() as session:
                yield session
        except OperationalError as error:
            raise TransientError(f"the database could not be written: {error.orig}") from error

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a session for queries only; nothing is committed.

        Raises:
            TransientError: the database can't be reached.
        """
        try:
            with self._read() as session:
                yield session
        except OperationalError as error:
            raise TransientError(f"the database could not be read: {error.orig}") from error

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def alembic_config(url: str) -> Config:
    """Return Alembic's configuration for this database, with the migrations of this package."""
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    # ConfigParser interpolates '%', which passwords in URLs contain.
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def upgrade(database: Database) -> None:
    """Bring the schema to the newest migration; safe to call from several processes at once."""
    config = alembic_config(database.url)
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check_schema(database: Database) -> None:
    """Verify that the schema is the one this code expects.

    Raises:
        BadInputError: it is older or newer; says which command mends it.
    """
    head = ScriptDirectory.from_config(alembic_config(database.url)).get_current_head()
    with database.engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current != head:
        raise BadInputError(
            f"the database is at schema {current or 'none'}, this version needs {head}: "
            "run 'perfbisect db upgrade'",
            field="database_url",
            value=current,
        )


@contextmanager
def opening() -> Iterator[None]:
    """Tell failures to open a database by whose they are.

    Raises:
        BadInputError: the URL is none, its driver is not installed, or its file holds something
            else or a damaged database.
        TransientError: the database can't be reached.
    """
    try:
        yield
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadInputError(
            "--database-url: not a database URL like 'sqlite:////path/perfbisect.db' or "
            "'postgresql+psycopg://user@host/name'",
            field="database_url",
        ) from error
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"--database-url: {error}, which is the driver of this database; perfbisect knows "
            "SQLite, and PostgreSQL with pip install 'perfbisect[postgresql]'",
            field="database_url",
        ) from error
    except OperationalError as error:
        raise TransientError(f"the database can't be opened: {error.orig}") from error
    except DatabaseError as error:
        # SQLite has no class of its own for a file that holds no database, or half of one.
        if type(error.orig) is not sqlite3.DatabaseError:
            raise
        raise BadInputError(
            f"the database can't be used: {error.orig}; put back a copy of its file, or move it "
            "away to begin anew",
            field="database_url",
        ) from error


def open_database(url: str) -> Database:
    """Open and migrate a database; raises as ``opening`` does."""
    with opening():
        database = Database(url)
        upgrade(database)
    return database


def process_owner() -> str:
    """Return a name for this process that survives pid reuse: ``host:pid:start:nonce``."""
    process = psutil.Process()
    return (
        f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}:{secrets.token_hex(4)}"
    )


def owner_is_dead(owner: str) -> bool:
    """Return whether the named process of this machine is certainly gone.

    Processes of other machines can't be seen from here: their leases have to expire.
    """
    host, pid, started, _ = owner.rsplit(":", 3)
    if host != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(started)) > 1
    except psutil.NoSuchProcess:
        return True
