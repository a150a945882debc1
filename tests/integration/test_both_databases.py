"""The store on SQLite and on a real PostgreSQL server: the same tests on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select
from tests.helpers.bulk import write_bisection
from tests.helpers.plans import queries, whole_reads
from tests.helpers.postgresql import Server, server
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.nightly.definitions import SeriesDefinition, define, find_series
from perfbisect.nightly.points import NightPoint, store_points
from perfbisect.services import Services
from perfbisect.store import catalogue
from perfbisect.store.artifact_tables import RunArtifactRow
from perfbisect.store.database import Database
from perfbisect.store.run_artifacts import add_artifacts
from perfbisect.store.tables import BenchmarkRow, CandidateRow, PointRow, RunRow


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


@contextmanager
def counted(services: Services) -> Iterator[list[int]]:
    """Yield a list whose number is how often the driver was called."""
    calls = [0]

    def before(*_: object) -> None:
        calls[0] += 1

    event.listen(services.database.engine, "before_cursor_execute", before)
    try:
        yield calls
    finally:
        event.remove(services.database.engine, "before_cursor_execute", before)


def test_many_rows_take_few_statements(services: Services) -> None:
    """A delivery of 800 nights, 300 files of a run and an axis of 500 commits: each goes to the
    database at once, not row by row."""
    with counted(services) as statements:
        write_bisection(services, 1, 500, 0)
    assert statements[0] < 40
    with services.database.read() as session:
        assert session.scalar(select(func.count()).select_from(CandidateRow)) == 501

    nights = [
        NightPoint(night=date(2014, 1, 1) + timedelta(days=number), value=1000.0 + number)
        for number in range(800)
    ]
    define(services, "resnet", SeriesDefinition())
    with services.database.read() as session:
        series = find_series(session, "resnet")
    with counted(services) as statements:
        told = store_points(services, series, nights, source="api")
    assert told["added"] == 800
    assert statements[0] < 20

    bisection = write_bisection(services, 2, 3, 1)
    with services.database.read() as session:
        run = session.scalars(select(RunRow.id).where(RunRow.bisection_id == bisection)).first()
    assert run is not None
    files = [{"name": f"dump/{n}", "artifact": f"sha256/{n}", "size": n} for n in range(300)]
    with counted(services) as statements, services.database.write() as session:
        add_artifacts(session, run, files)
    assert statements[0] < 5
    with services.database.read() as session:
        assert session.scalar(select(func.count()).select_from(RunArtifactRow)) == 300


def test_points_are_listed_alike(services: Services) -> None:
    """By benchmark, host, the beginning of a commit and reason, newest first, page by page."""
    first, _ = (write_bisection(services, number, 3, 2) for number in (1, 2))

    def listed(**wanted: Any) -> list[str]:
        found: list[str] = []
        more, before = True, None
        while more:
            with services.database.read() as session:
                rows, more = catalogue.list_points(
                    session, catalogue.PointFilter(**wanted), before=before, limit=3
                )
            found += [each.row.id for each in rows]
            before = found[-1] if found else None
        return found

    with services.database.read() as session:
        points = session.scalars(select(PointRow).order_by(PointRow.id.desc())).all()
        (name, *_) = session.scalars(select(BenchmarkRow.name)).all()
    assert listed() == [point.id for point in points]
    assert listed(benchmark=name) == [point.id for point in points]
    one = points[-1]
    cases: list[tuple[dict[str, Any], Callable[[PointRow], bool]]] = [
        ({"bisection": first}, lambda point: point.bisection_id == first),
        ({"host": one.host}, lambda point: point.host == one.host),
        ({"commit": one.commit_sha[:9]}, lambda point: point.commit_sha == one.commit_sha),
        ({"commit": one.commit_sha[:1]}, lambda point: point.commit_sha[0] == one.commit_sha[0]),
        ({"commit": "%"}, lambda point: False),
        ({"rejected": True}, lambda point: bool(point.rejected)),
        ({"benchmark": one.benchmark_digest}, lambda p: p.benchmark_digest == one.benchmark_digest),
        ({"benchmark": "no such"}, lambda point: False),
        ({"benchmark": name, "host": one.host, "rejected": False},
         lambda point: point.host == one.host and not point.rejected),
    ]  # fmt: skip
    for wanted, holds in cases:
        assert listed(**wanted) == [point.id for point in points if holds(point)], wanted
