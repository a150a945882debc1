"""Checks of what answers requests: the Docker engine, the database, a package index."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from uv import find_uv_bin

from perfbisect.checks import Check, Status, dotted, existing_parent
from perfbisect.containers import Docker
from perfbisect.errors import BadInputError, PerfbisectError
from perfbisect.running.environments import installer_variables
from perfbisect.running.host import gpus
from perfbisect.store.database import Database, check_schema

#: What SQLite needs for the statements of the store.
SQLITE_NEEDED = (3, 35)

#: Seconds that a service may take to answer.
PATIENCE = 10.0


def check_docker(url: str = "") -> Check:
    """Ask the Docker engine who it is.

    Args:
        url: of the engine; empty: DOCKER_HOST or the default socket.
    """
    try:
        with Docker(url) as engine:
            version, info = engine.client.version(), engine.info()
    except PerfbisectError as error:
        advice = "For recipes and benchmarks in containers: start Docker, and let this user use it."
        return Check("Docker", Status.MISSING, error.message, advice)
    return describe_docker(version, info)


def describe_docker(version: Mapping[str, Any], info: Mapping[str, Any]) -> Check:
    """Return the check of an engine that answered with these version and info objects."""
    runtimes = info.get("Runtimes") or {}
    parts = [
        f"engine {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}",
        f"{info.get('Driver', '?')} storage",
    ]
    if "nvidia" in runtimes:
        parts.append("with the NVIDIA runtime")
    warnings = []
    if info.get("OSType", "linux") != "linux":
        warnings.append("It runs no Linux containers: switch it over.")
    if info.get("MemoryLimit") is False:
        warnings.append("It can't limit memory: enable memory control groups in the kernel.")
    if gpus() and "nvidia" not in runtimes:
        warnings.append("For GPUs in containers: install the NVIDIA container toolkit.")
    status = Status.WARNING if warnings else Status.OK
    return Check("Docker", status, ", ".join(parts), " ".join(warnings))


def check_database(url: str) -> Check:
    """Look whether the database can be reached and has the schema of this version.

    A SQLite file that is not there yet is fine: it is tried beside its place whether its file
    system can do what is needed.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        advice = "Give a URL such as postgresql+psycopg://user@host/name, or leave it out."
        return Check("database", Status.MISSING, "not a database URL", advice, required=True)
    shown = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite":
        file = Path(parsed.database or ":memory:")
        failed = _check_sqlite(file, shown)
        if failed is not None or not file.is_file():
            return failed or _database_ok(f"{shown} (not there yet), {_sqlite()}")
    return _check_server(url, shown)


def _check_sqlite(file: Path, shown: str) -> Check | None:
    if sqlite3.sqlite_version_info < SQLITE_NEEDED:
        advice = f"Use a Python with SQLite {dotted(SQLITE_NEEDED)} or newer."
        return Check("database", Status.MISSING, _sqlite(), advice, required=True)
    mode = try_wal(existing_parent(file.parent))
    if mode != "wal":
        advice = "Put the data directory on a local disk: SQLite's write-ahead log fails there."
        return Check("database", Status.MISSING, f"{shown}: {mode}", advice, required=True)
    return None


def _check_server(url: str, shown: str) -> Check:
    """Connect and compare the schema, without changing either."""
    try:
        database = Database(url)
        try:
            check_schema(database)
        finally:
            database.close()
    except ModuleNotFoundError as error:
        advice = "Install the driver: pip install 'perfbisect[postgresql]'."
        return Check("database", Status.MISSING, f"{shown}: {error}", advice, required=True)
    except BadInputError as error:
        advice = "Run 'perfbisect db upgrade'."
        return Check("database", Status.WARNING, error.message.partition(":")[0], advice, True)
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip().splitlines()
        detail = f"{shown}: {said[0] if said else 'no answer'}"
        advice = "Start it, or mend PERFBISECT_DATABASE_URL; left out, SQLite is used."
        return Check("database", Status.MISSING, detail, advice, required=True)
    return _database_ok(f"{shown}, schema up to date")


def _database_ok(detail: str) -> Check:
    return Check("database", Status.OK, detail, required=True)


def _sqlite() -> str:
    return f"SQLite {sqlite3.sqlite_version}"


def try_wal(directory: Path) -> str:
    """Return the journal mode that SQLite gets to in a directory: ``wal``, or why not."""
    try:
        with tempfile.TemporaryDirectory(prefix=".perfbisect-", dir=directory) as scratch:
            connection = sqlite3.connect(Path(scratch) / "try.db")
            try:
                mode = str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
                connection.execute("CREATE TABLE try (value)")
                connection.commit()
            finally:
                connection.close()
    except (OSError, sqlite3.Error) as error:
        return str(error)
    return mode


def check_index(timeout: float = PATIENCE) -> Check:
    """Ask the package index for one small package, the way environments are filled.

    Args:
        timeout: seconds that it may take to answer.
    """
    if _index_answers(timeout):
        return Check("package index", Status.OK, "answers")
    advice = "For wheels with dependencies: mend the network, or set UV_DEFAULT_INDEX to a mirror."
    return Check("package index", Status.WARNING, "does not answer", advice)


def _index_answers(timeout: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="perfbisect-") as scratch:
        path = os.environ.get("PATH", os.defpath)
        variables = installer_variables(uv_cache=f"{scratch}/cache", home=scratch, path=path)
        variables |= {"UV_HTTP_TIMEOUT": str(max(1, int(timeout))), "UV_HTTP_RETRIES": "0"}
        try:
            done = subprocess.run(
                [find_uv_bin(), "pip", "compile", "--quiet", "--no-deps", "-"],
                input="packaging\n",
                env=variables,
                cwd=scratch,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
    return done.returncode == 0
