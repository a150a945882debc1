"""A real PostgreSQL server in a directory of its own, and databases on it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from perfbisect.store.database import Database, open_database

_NUMBERS = itertools.count()


def programs() -> Path | None:
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
        timeout=300,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def server() -> Iterator[Server]:
    """Start a server; skip, with the reason, where it can't be had."""
    pytest.importorskip("psycopg", reason="the extra 'postgresql' is not installed")
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's server programs (initdb) are not installed")
    # A socket's path may have 107 characters only, which pytest's directories can exceed.
    directory = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    data = directory / "data"
    control = (found / "pg_ctl", "-D", data, "-w")
    options = f"-c listen_addresses='' -c fsync=off -k {directory}"
    try:
        _run(found / "initdb", "-D", data, "-U", "perfbisect", "-A", "trust", "-E", "UTF8", "-N")
        _run(*control, "-l", directory / "log", "-o", options, "start")
        try:
            yield Server(directory)
        finally:
            _run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Server:
    """A running server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._template = ""

    def empty(self) -> str:
        """Return the URL of a new, empty database."""
        return self._create(f"empty{next(_NUMBERS)}")

    def migrated(self) -> str:
        """Return the URL of a new database with the newest schema: a copy of one made once."""
        if not self._template:
            name = f"schema{next(_NUMBERS)}"
            open_database(self._create(name)).close()
            self._template = name
        return self._create(f"copy{next(_NUMBERS)}", f"TEMPLATE {self._template}")

    def cpu_seconds(self) -> float:
        """Return the processor time of the server's processes that are there now."""
        note = (self._directory / "data" / "postmaster.pid").read_text()
        main = psutil.Process(int(note.split()[0]))
        times = [each.cpu_times() for each in (main, *main.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def _create(self, name: str, how: str = "") -> str:
        admin = Database(self._url("postgres"))
        with admin.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"CREATE DATABASE {name} {how}"))
        admin.close()
        return self._url(name)

    def _url(self, name: str) -> str:
        return f"postgresql+psycopg://perfbisect@/{name}?host={self._directory}"
