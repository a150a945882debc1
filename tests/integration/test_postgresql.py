"""The store on a real PostgreSQL server, started for this module in a directory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import inspect, select, text
from tests.helpers.alerting import scene

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


def _programs() -> Path | None:
    """The directory of PostgreSQL's server programs, which Debian keeps off PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return candidates[-1].parent if candidates else None


def _run(*arguments: str | Path) -> None:
    """Run a program; PostgreSQL refuses to be root, so then it runs as an unprivileged user."""
    options: dict[str, object] = {}
    if os.geteuid() == 0:
        options = {"user": "postgres", "group": "postgres", "extra_groups": []}
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """A running server; yields the directory of its socket."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's server programs (initdb) are not installed")
    # A socket's path may have 107 characters only, which pytest's directories can exceed.
    directory = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    data = directory / "data"
    _run(programs / "initdb", "-D", data, "-U", "perfbisect", "-A", "trust", "-E", "UTF8", "-N")
    options = f"-c listen_addresses='' -c fsync=off -k {directory}"
    start = (programs / "pg_ctl", "-D", data, "-w", "-l", directory / "log", "-o", options, "start")
    try:
        _run(*start)
        yield directory
    finally:
        _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(directory)


@pytest.fixture
def url(server: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a new, empty database."""
    pytest.importorskip("psycopg", reason="the extra 'postgresql' is not installed")
    name = f"t{abs(hash(request.node.name))}"
    base = f"postgresql+psycopg://perfbisect@/{{}}?host={server}"
    admin = Database(base.format("postgres"))
    with admin.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.close()
    return base.format(name)


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
    outputs = [process.communicate()[0] for process in processes]
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
