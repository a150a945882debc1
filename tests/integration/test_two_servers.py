"""Two servers on one database: one conducts, the other takes over; a stale one writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from tests.helpers.conducting import (
    SmallRepository,
    make_conductor,
    make_repository,
    open_services,
    request_for,
)
from tests.helpers.postgresql import Server, server
from tests.helpers.waiting import until

from perfbisect.conductor import Conductor
from perfbisect.core.states import WorkState
from perfbisect.errors import TransientError
from perfbisect.leading import FencedDatabase, Tenure
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store import work
from perfbisect.store.database import Database, now
from perfbisect.store.jobs import bisection
from perfbisect.store.lease_tables import LeaseRow
from perfbisect.store.leases import FencedError, process_lease, take
from perfbisect.store.tables import BisectionRow, BuildRow, HostRow, PointRow, RunRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

#: A process of a machine that can't be seen from here.
ELSEWHERE = "elsewhere.invalid:1:1.00:abcd1234"
LEASE = 2.0


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    if request.param == "postgresql":
        opened.close()
        url = request.getfixturevalue("running").migrated()
        opened = Services.open(Settings(data_dir=tmp_path / "data", database_url=url))
    yield opened
    opened.close()


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    return make_repository(tmp_path / "repository", 12)


def submitted(services: Services, repository: SmallRepository, directory: Path) -> str:
    return submit(
        services,
        request_for(repository),
        requested_by="tester",
        origin="command line",
        base_dir=directory,
        allow_local=True,
    ).id


class CutDatabase(Database):
    """A database that a server can't reach while its network is cut."""

    def __init__(self, database: Database) -> None:
        self.__dict__.update(database.__dict__)
        self.cut = threading.Event()

    @contextmanager
    def write(self) -> Iterator[Session]:
        self._refuse()
        with super().write() as session:
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        self._refuse()
        with super().read() as session:
            yield session

    def _refuse(self) -> None:
        if self.cut.is_set():
            raise TransientError("the network to the database is cut")


def scripted(repository: SmallRepository, directory: Path, services: Services) -> Conductor:
    """A server of its own, whose runs take long enough to be interrupted."""
    directory.mkdir()
    runner = ScriptedRunner(
        lambda sha: 9000.0 if repository.position(sha) < 7 else 6000.0,
        noise=0.01,
        seconds=0.05,
    )
    return make_conductor(services, ScriptedBuilder(), runner, directory, lease_seconds=LEASE)


def points(services: Services) -> int:
    with services.database.read() as session:
        return len(session.scalars(select(PointRow.id)).all())


def outcome(services: Services, bisection_id: str) -> str | None:
    with services.database.read() as session:
        return session.get_one(BisectionRow, bisection_id).outcome


def test_a_server_that_was_cut_off_is_replaced_and_refused(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """The first conducts, the second stands by, and takes over when the first can't reach the
    database; back again, the first drops what it did. The answer is right, each point is once."""
    bisection_id = submitted(services, repository, tmp_path)
    network = CutDatabase(services.database)
    first = scripted(repository, tmp_path / "first", replace(services, database=network))
    second = scripted(repository, tmp_path / "second", services)
    first.start()
    until(lambda: points(services) >= 3, "points of the first server")
    second.start()
    old = first.owner
    try:
        network.cut.set()
        until(lambda: second.conducts, "the second server's turn")
        until(lambda: outcome(services, bisection_id) is not None, "the answer")
        network.cut.clear()
        until(lambda: first.owner != old, "that the first server gives way")
    finally:
        first.stop()
        second.stop()
    with services.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
        runs = session.scalars(select(PointRow.run_id)).all()
        states = set(session.scalars(select(RunRow.state)))
    assert row.outcome == "culprits"
    assert row.verdict is not None
    assert [c["commits"] for c in row.verdict["culprits"]] == [[repository.shas[7]]]
    assert len(runs) == len(set(runs))
    assert states <= {WorkState.SUCCEEDED, WorkState.LOST, WorkState.CANCELLED}


def test_the_lead_passes_on_when_its_holder_stops(services: Services) -> None:
    """One leads and one waits; a polite end hands the lead over at once, not after the lease."""
    first = Tenure(services.database, seconds=3600.0, leading=True)
    second = Tenure(services.database, seconds=3600.0, leading=True)
    first.keep()
    second.keep()
    assert (first.conducts, second.conducts) == (True, False)
    first.release()
    third = Tenure(services.database, seconds=3600.0, leading=True)
    third.keep()
    assert third.conducts
    with services.database.read() as session:
        tokens = dict(session.execute(select(LeaseRow.name, LeaseRow.token)).all())
    assert tokens["conductor"] > 1


def test_a_stale_holder_can_write_nothing(services: Services) -> None:
    """Whoever's lease was taken over is refused inside the transaction, and nothing of it stays."""
    stale = Tenure(services.database, seconds=3600.0, leading=True)
    stale.keep()
    fenced = FencedDatabase(services.database, stale)
    with services.database.write() as session:
        for row in session.scalars(select(LeaseRow)):
            row.expires_at = now() - timedelta(seconds=1)
    heir = Tenure(services.database, seconds=3600.0, leading=True)
    heir.keep()
    assert heir.conducts
    with pytest.raises(FencedError), fenced.write() as session:
        work.remember_host(session, "ghost", "default", {})
    with FencedDatabase(services.database, heir).write() as session:
        work.remember_host(session, "host", "default", {})
    with services.database.read() as session:
        assert session.scalars(select(HostRow.name)).all() == ["host"]


def test_results_of_work_that_was_taken_over_are_refused(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Only who owns a build now may record its end, and only once."""
    ref = bisection(submitted(services, repository, tmp_path))
    with services.database.write() as session:
        build_id = work.start_build(
            session, ref, tree="t", recipe_digest="r", commit="c", owner=ELSEWHERE
        )
        assert build_id is not None
        assert work.finish_build(session, build_id, None, owner="somebody:2:2.00:x") is None
        assert work.finish_build(session, build_id, None, owner=ELSEWHERE) is not None
        assert work.finish_build(session, build_id, None, owner=ELSEWHERE) is None


def test_work_of_a_silent_machine_is_lost(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A process of another machine can't be seen: its work is lost once its lease ran out."""
    ref = bisection(submitted(services, repository, tmp_path))
    with services.database.write() as session:
        work.start_build(session, ref, tree="t", recipe_digest="r", commit="c", owner=ELSEWHERE)
        take(session, process_lease(ELSEWHERE), ELSEWHERE, 3600.0)
        assert not work.any_lost(session)
    with services.database.write() as session:
        session.get_one(LeaseRow, process_lease(ELSEWHERE)).expires_at = now()
    with services.database.write() as session:
        assert work.any_lost(session)
        assert len(work.mark_lost(session).builds) == 1
        assert session.scalars(select(BuildRow.state)).all() == [WorkState.LOST]
