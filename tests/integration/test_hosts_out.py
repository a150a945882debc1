"""Jobs on a cluster leave a host that was taken out, and come back to none that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import select
from tests.helpers.seeding import Seed
from tests.helpers.serving import opened, settings_in

from perfbisect.hosting import Hosting
from perfbisect.ports import (
    BuildDone,
    BuildRequest,
    HostInfo,
    Orphan,
    Room,
    RunDone,
    RunRequest,
)
from perfbisect.services import Services
from perfbisect.store.host_health import put_back, take_out
from perfbisect.store.jobs import bisection
from perfbisect.store.tables import BisectionRow, DecisionRow
from perfbisect.store.work import remember_host

NAMES = ("host-a", "host-b")


class Cluster:
    """Two hosts on which nothing is under way. Implements ``ClusterEngine``."""

    exclusive = False

    def hosts(self) -> Sequence[HostInfo]:
        return tuple(HostInfo(name, "default") for name in NAMES)

    def room(self) -> Room:
        return Room({host.name: host for host in self.hosts()}, NAMES, 1)

    def build_slots(self) -> int:
        return 1

    def submit_build(self, request: BuildRequest, done: Callable[[BuildDone], None]) -> None:
        raise AssertionError("nothing is asked to be done")

    def submit_run(self, request: RunRequest, done: Callable[[RunDone], None]) -> None:
        raise AssertionError("nothing is asked to be done")

    def cancel(self, work_id: str) -> None: ...

    def close(self) -> None: ...

    def reattach(self, orphan: Orphan, done: Callable[[BuildDone | RunDone], None]) -> None: ...

    def recorded(self, work_id: str) -> None: ...

    def let_go(self, work_id: str) -> None: ...

    def detach(self) -> None: ...


def out(services: Services, name: str) -> None:
    with services.database.write() as session:
        take_out(session, name, by="drift", reason="the same wheels measure -9.2%")


def test_a_job_leaves_a_host_that_is_out(tmp_path: Path) -> None:
    """It moves once, with the reason in its decisions; when every host is out it stays."""
    with opened(settings_in(tmp_path)) as services:
        seed = Seed(services)
        ref = bisection(seed.submit())
        with services.database.write() as session:
            for name in NAMES:
                remember_host(session, name, "default", {})
        hosting = Hosting(Cluster(), services.database, 60.0)

        def measured_on() -> str:
            (host,) = hosting.capacity(ref, {}, may_build=True, alone=True).hosts
            return host

        assert measured_on() == "host-a"
        out(services, "host-a")
        assert [measured_on(), measured_on()] == ["host-b", "host-b"]
        with services.database.read() as session:
            assert session.get_one(BisectionRow, ref.id).pinned_host == "host-b"
            notes = session.scalars(select(DecisionRow.reason)).all()
        assert any("host-a was taken out (the same wheels measure -9.2%)" in note for note in notes)
        out(services, "host-b")
        assert [measured_on(), measured_on()] == ["host-b", "host-b"]
        with services.database.write() as session:
            put_back(session, "host-a")
        assert measured_on() == "host-a"
