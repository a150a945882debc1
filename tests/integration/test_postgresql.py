"""The store on a real PostgreSQL server, started for this module in a directory of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import inspect, select
from tests.helpers.alerting import scene
from tests.helpers.postgresql import Server, server

from perfbisect.alerting.desk import Desk
from perfbisect.alerts import raise_alert
from perfbisect.core.alert_states import AlertState
from perfbisect.routers.alert_submission import AlertSubmitter
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.database import (
    Database,
    alembic_config,
    check_schema,
    open_database,
    upgrade,
)
from perfbisect.store.tables import Base, BisectionRow


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture
def url(running: Server) -> str:
    """The URL of a new, empty database."""
    return running.empty()


def test_from_nothing_to_head(url: str) -> None:
    """An empty database becomes one that this version can use, and nothing is left to migrate."""
    database = open_database(url)
    check_schema(database)
    assert set(Base.metadata.tables) <= set(inspect(database.engine).get_table_names())
    config = alembic_config(url)
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.check(config)
    database.close()


def test_down_to_nothing_and_up_again(url: str) -> None:
    """Every migration can be undone and done again."""
    database = open_database(url)
    config = alembic_config(url)
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()
    assert set(inspect(database.engine).get_table_names()) <= {"alembic_version"}
    upgrade(database)
    check_schema(database)
    database.close()


def test_upgrades_at_the_same_time(url: str) -> None:
    """Several processes that start at once migrate one after the other, and all of them succeed."""
    program = [sys.executable, "-m", "perfbisect", "db", "upgrade", "--database-url", url]
    processes = [
        subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    database = Database(url)
    check_schema(database)
    database.close()


def test_alerts_told_at_once_to_two_desks(url: str, tmp_path: Path) -> None:
    """Eight senders tell twelve alerts of one range five times each while two desks look: each
    notice counts, and there is one bisection."""
    with scene(tmp_path, {"strong": {5: 0.5}}, working=False, database_url=url) as here:
        desks = [here.desk, Desk(here.services, AlertSubmitter(here.services))]
        signals = [here.signal("strong", fingerprint=f"f{number}") for number in range(12)]

        def told(number: int) -> str:
            return raise_alert(here.services, signals[number % len(signals)])

        def looked(number: int) -> None:
            for _ in range(8):
                desks[number].look()

        with ThreadPoolExecutor(10) as pool:
            looking = [pool.submit(looked, number) for number in range(len(desks))]
            ids = list(pool.map(told, range(60)))
            for each in looking:
                each.result()
        here.desk.look()
        with here.services.database.read() as session:
            alerts = session.scalars(select(AlertRow)).all()
            bisections = session.scalars(select(BisectionRow.id)).all()
    assert len(set(ids)) == len(alerts) == 12
    assert sum(row.notices for row in alerts) == 60
    assert {row.state for row in alerts} == {AlertState.BISECTING}
    assert len(bisections) == 1
