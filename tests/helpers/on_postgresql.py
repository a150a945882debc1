"""Tests that know nothing of PostgreSQL, on it: ``pytest -p tests.helpers.on_postgresql FILES``.

Every test gets a database of its own, by the variable that services read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.helpers.postgresql import Server, server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.fixture(autouse=True)
def on_postgresql(postgresql: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFBISECT_DATABASE_URL", postgresql.migrated())
