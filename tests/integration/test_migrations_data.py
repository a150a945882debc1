"""From every released schema, with rows in every table, to the newest: nothing is lost.

The rows are those that this version writes, in the columns that the older schema had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    Engine,
    Float,
    Integer,
    MetaData,
    Table,
    func,
    insert,
    inspect,
    select,
)
from tests.helpers.alert_scenes import dead, explained, held
from tests.helpers.postgresql import Server, server
from tests.helpers.scenes import seed_experiment, seed_finished
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect import series
from perfbisect.nightly.points import NightPoint
from perfbisect.services import Services
from perfbisect.store.database import Database, alembic_config, check_schema, upgrade
from perfbisect.store.tables import Base, EnumText, UtcDateTime

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

_SCRIPT = ScriptDirectory.from_config(alembic_config("sqlite://"))
#: Every schema there was, the oldest first.
REVISIONS = [each.revision for each in reversed(list(_SCRIPT.walk_revisions()))]
PAGES = ("/", "/points", "/wheels", "/hosts", "/experiments", "/series", "/alerts")
API = ("bisections", "experiments", "points", "wheels", "hosts", "repositories")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Rows of every table, by name, as this version writes them."""
    with opened(settings_in(tmp_path_factory.mktemp("source"))) as services:
        _seed(services)
        with services.database.engine.begin() as connection:
            for table in Base.metadata.sorted_tables:
                if not connection.scalar(select(func.count()).select_from(table)):
                    first = {
                        key.column: connection.scalar(select(key.column).limit(1))
                        for key in table.foreign_keys
                    }
                    connection.execute(insert(table).values(_made_up(table, first)))
        return read(services.database.engine, Base.metadata.sorted_tables)


def _seed(services: Services) -> None:
    seed = seed_finished(services, n=36)
    seed_experiment(seed)
    explained(services, seed)
    dead(services, held(services))
    night = NightPoint(night=date(2026, 11, 30), value=9000.0, commits={"framework": seed.sha(0)})
    series.record_points(services, "nightly", [night], source="api", idempotency_key="delivery")


def _made_up(table: Table, first: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row for a table that nothing above writes."""
    found: dict[str, Any] = {}
    for column in table.columns:
        if column.foreign_keys:
            found[column.name] = first[next(iter(column.foreign_keys)).column]
        elif isinstance(column.type, EnumText):
            found[column.name] = next(iter(column.type.words))
        else:
            found[column.name] = next(
                (value for kind, value in _VALUES if isinstance(column.type, kind)), "1"
            )
    return found


_VALUES: tuple[tuple[type, Any], ...] = (
    (JSON, {}),
    (UtcDateTime, datetime(2026, 11, 30, 6, tzinfo=UTC)),
    (Boolean, True),
    (Date, date(2026, 11, 30)),
    (Float, 0.5),
    (Integer, 1),
)


def read(engine: Engine, tables: Sequence[Table]) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of tables, in the order of their keys."""
    with engine.connect() as connection:
        return {
            table.name: [
                dict(row._mapping)
                for row in connection.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in tables
        }


def migrated_to(database: Database, revision: str) -> None:
    config = alembic_config(database.url)
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def fill(database: Database, rows: Rows) -> list[Table]:
    """Insert the rows into what tables and columns there are; return those."""
    present = inspect(database.engine)
    there = set(present.get_table_names())
    known = []
    for table in Base.metadata.sorted_tables:
        if table.name not in there:
            continue
        columns = {each["name"] for each in present.get_columns(table.name)}
        known.append(
            Table(
                table.name,
                MetaData(),
                *(
                    Column(each.name, each.type, primary_key=each.primary_key)
                    for each in table.columns
                    if each.name in columns
                ),
            )
        )
    with database.engine.begin() as connection:
        for table in known:
            names = [column.name for column in table.columns]
            connection.execute(
                insert(table), [{name: row[name] for name in names} for row in rows[table.name]]
            )
    return known


def check(database: Database, revision: str, rows: Rows) -> None:
    """Fill a schema, bring it to the newest, and compare what is read back."""
    migrated_to(database, revision)
    tables = fill(database, rows)
    before = read(database.engine, tables)
    assert all(before[table.name] for table in tables)
    upgrade(database)
    check_schema(database)
    assert read(database.engine, tables) == before
    with database.read() as session:
        for mapper in Base.registry.mappers:
            # Every column is readable, those that were added since too.
            session.scalars(select(mapper.class_)).all()


def test_there_are_rows_for_every_table(rows: Rows) -> None:
    """No table is left out of these tests."""
    assert {name for name, each in rows.items() if each} == set(Base.metadata.tables)


@pytest.mark.parametrize("revision", REVISIONS)
def test_on_sqlite(rows: Rows, tmp_path: Path, revision: str) -> None:
    """What was stored is there as it was, and the pages and the API show it."""
    settings = settings_in(tmp_path)
    database = Database(settings.url)
    check(database, revision, rows)
    with database.read() as session:
        assert session.connection().exec_driver_sql("PRAGMA foreign_key_check").all() == []
    database.close()
    (bisection,) = rows["bisections"]
    with client_of(shown_app(settings)) as client:
        paths = [*PAGES, f"/bisections/{bisection['id']}"]
        paths += [f"/api/v1/{name}" for name in (*API, f"bisections/{bisection['id']}")]
        answers = {path: client.get(path).status_code for path in paths}
        assert client.get(f"/api/v1/bisections/{bisection['id']}").json()["outcome"] == "culprits"
    assert set(answers.values()) == {200}, answers


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.mark.parametrize("revision", REVISIONS)
def test_on_postgresql(rows: Rows, running: Server, revision: str) -> None:
    """The same on a real PostgreSQL."""
    database = Database(running.empty())
    check(database, revision, rows)
    database.close()
