"""The store on SQLite and on a real PostgreSQL server: the same tests on both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select
from tests.helpers.bulk import write_bisection
from tests.helpers.plans import queries, whole_reads
from tests.helpers.postgresql import Server, server
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.services import Services
from perfbisect.store.artifact_tables import RunArtifactRow
from perfbisect.store.database import Database
from perfbisect.store.run_artifacts import add_artifacts
from perfbisect.store.tables import CandidateRow, PointRow, RunRow


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Services]:
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("running").migrated()
    with opened(settings_in(tmp_path, database_url=url)) as services:
        yield services


def test_pages_read_no_growing_table_whole(services: Services) -> None:
    """Whatever a page or a list shows, an index leads to it; but for the hosts' totals."""
    wanted = [write_bisection(services, number, 30, 4) for number in range(2)]
    base = f"/bisections/{wanted[0]}"
    with services.database.read() as session:
        point = session.scalars(select(PointRow).limit(1)).one()
        run = session.scalars(select(RunRow.id).limit(1)).one()
    paths = [
        "/", "/?q=conv&commit=abc&host=gpu-0", base, f"{base}/commits/7", "/wheels",
        "/wheels?commit=abc", "/points", "/points?rejected=true", f"/points?host={point.host}",
        f"/points?benchmark={point.benchmark_digest}", f"/points?commit={point.commit_sha}",
        "/experiments", "/series", "/alerts", f"/logs/runs/{run}", f"/api/v1{base}",
        f"/api/v1{base}/chart", f"/api/v1{base}/points", f"/api/v1{base}/decisions",
        f"/api/v1{base}/report?format=md", "/api/v1/bisections", "/api/v1/points",
        f"/api/v1/points?bisection={wanted[0]}", "/api/v1/wheels",
    ]  # fmt: skip
    wrong: dict[str, list[str]] = {}
    with client_of(shown_app(services.settings)) as client:
        database: Database = client.app.state.services.database  # type: ignore[attr-defined]
        for path in paths:
            with queries(database.engine) as asked:
                answer = client.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text[:500]}"
            if found := whole_reads(database, asked):
                wrong[path] = found
    assert wrong == {}, "\n\n".join(f"{path}\n" + "\n".join(each) for path, each in wrong.items())
