"""Migrations on SQLite; the same on PostgreSQL is in tests/integration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from perfbisect.errors import BadInputError
from perfbisect.store.database import (
    Database,
    alembic_config,
    check_schema,
    now,
    open_database,
    upgrade,
)
from perfbisect.store.tables import Base, RepositoryRow


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path / 'new' / 'perfbisect.db'}")
    yield opened
    opened.close()


def test_from_nothing_to_head(database: Database) -> None:
    """An empty database becomes one that this version can use, with every table."""
    check_schema(database)
    tables = set(inspect(database.engine).get_table_names())
    assert set(Base.metadata.tables) <= tables


def test_models_and_migrations_agree(database: Database) -> None:
    """Alembic finds nothing to migrate between the newest migration and the models."""
    config = alembic_config(database.url)
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.check(config)


def test_there_is_one_head() -> None:
    """Migrations form one line: two heads could not be upgraded to."""
    script = ScriptDirectory.from_config(alembic_config("sqlite://"))
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1


def test_upgrading_again_changes_nothing(database: Database) -> None:
    """A second upgrade keeps what is stored."""
    with database.write() as session:
        session.add(RepositoryRow(id="1", name="a", url="/a", created_at=now()))
    upgrade(database)
    with database.read() as session:
        assert session.get_one(RepositoryRow, "1").name == "a"


def test_down_to_nothing_and_up_again(database: Database) -> None:
    """Every migration can be undone and done again."""
    config = alembic_config(database.url)
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert set(inspect(database.engine).get_table_names()) <= {"alembic_version"}
    upgrade(database)
    check_schema(database)


def test_an_old_schema_is_noticed(tmp_path: Path) -> None:
    """A database without the newest migration is refused, with the command that mends it."""
    database = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(BadInputError, match="perfbisect db upgrade"):
        check_schema(database)
    database.close()


def test_urls_with_percent_signs(tmp_path: Path) -> None:
    """A percent sign in the URL (as in passwords) does not break the migrations."""
    database = open_database(f"sqlite:///{tmp_path / '100%25.db'}")
    check_schema(database)
    database.close()


def test_a_file_that_holds_no_database_is_bad_input(tmp_path: Path) -> None:
    """A damaged file is named as such, and stays as it is."""
    file = tmp_path / "perfbisect.db"
    file.write_bytes(b"no database at all " * 1000)
    before = file.read_bytes()
    with pytest.raises(BadInputError, match="can't be used: file is not a database"):
        open_database(f"sqlite:///{file}")
    assert file.read_bytes() == before


@pytest.mark.parametrize("url", ["not a url", "foo://x"])
def test_a_url_of_no_database_is_bad_input(url: str) -> None:
    """A URL that can't be read, or of a database that nobody knows, says what one looks like."""
    with pytest.raises(BadInputError, match="not a database URL like"):
        open_database(url)
