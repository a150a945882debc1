"""Where jobs may build and run now: what is free, and on which host a job is measured.

On a cluster a job is measured on one host, to which it is pinned: values of different hosts are
never compared directly. It moves only when that host is lost, or fails it again and again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.states import BisectionState, FailureKind
from perfbisect.gather import Capacity
from perfbisect.ports import ClusterEngine, Engine, HostInfo, Room
from perfbisect.store import bisections
from perfbisect.store.database import Database
from perfbisect.store.host_health import hosts_out
from perfbisect.store.jobs import CONDUCTED, JobRef, load_row
from perfbisect.store.tables import BisectionRow, ExperimentRow, RunRow

log = logging.getLogger(__name__)

#: Stands for the host of a job for which there is none.
NO_HOST = "(no host)"
#: Transient failures in a row of a job's runs after which it tries another host.
UNLUCKY = 2


@dataclass(frozen=True, slots=True)
class Flight:
    """A build or run under way here."""

    ref: JobRef
    #: Empty for builds.
    host: str = ""


class Hosting:
    """Tells jobs what they may start."""

    def __init__(self, engine: Engine, database: Database, grace: float) -> None:
        """Make one.

        Args:
            grace: seconds that a host may be away before its jobs move to another.
        """
        self._engine = engine
        self._cluster = engine if isinstance(engine, ClusterEngine) else None
        self._database = database
        self._grace = grace
        self._pins: dict[JobRef, str] = {}
        #: Since when a host that was pinned has been away.
        self._away: dict[str, float] = {}

    def capacity(
        self, ref: JobRef, flights: Mapping[str, Flight], *, may_build: bool, alone: bool
    ) -> Capacity:
        """Return what a job could start now.

        Args:
            flights: what is under way, by id.
            may_build: whether builds may start at all.
            alone: no other job wants anything: else builds are handed out one by one, in turn.
        """
        if self._cluster is None:
            found = self._on_machine(flights, may_build)
        else:
            found = self._on_cluster(ref, self._cluster.room(), may_build)
        if alone or found.free_build_slots <= 1:
            return found
        return Capacity(1, found.free_hosts, found.hosts, found.exclusive)

    def is_short(self, capacity: Capacity) -> bool:
        """Return whether a plan that finds nothing to do may find something later."""
        if self._cluster is None:
            return False
        return not capacity.free_hosts or not capacity.free_build_slots

    def pinned(self, ref: JobRef) -> str:
        """Return the host that a job is pinned to; empty: none, or there is no choice."""
        return self._pins.get(ref, "")

    def drop(self, ref: JobRef) -> None:
        """Forget a job."""
        self._pins.pop(ref, None)

    def _on_machine(self, flights: Mapping[str, Flight], may_build: bool) -> Capacity:
        hosts = tuple(host.name for host in self._engine.hosts())
        busy = {flight.host for flight in flights.values() if flight.host}
        builds = sum(not flight.host for flight in flights.values())
        slots = max(self._engine.build_slots() - builds, 0) if may_build else 0
        free_hosts = tuple(host for host in hosts if host not in busy)
        if self._engine.exclusive and builds:
            free_hosts = ()
        if self._engine.exclusive and busy:
            slots = 0
        return Capacity(slots, free_hosts, hosts, self._engine.exclusive)

    def _on_cluster(self, ref: JobRef, room: Room, may_build: bool) -> Capacity:
        self._note_absence(room)
        host = self._host_of(ref, room)
        free = (host,) if host in room.free_hosts else ()
        slots = room.free_build_slots if may_build else 0
        return Capacity(slots, free, (host or NO_HOST,), exclusive=False)

    # ------------------------------------------------------------------ pins

    def _note_absence(self, room: Room) -> None:
        if not room.hosts:
            # The whole cluster is away: its hosts come back one by one.
            self._away.clear()
            return
        for host in set(self._pins.values()):
            if host in room.hosts:
                self._away.pop(host, None)
            else:
                self._away.setdefault(host, time.monotonic())

    def _is_lost(self, host: str) -> bool:
        since = self._away.get(host)
        return since is not None and time.monotonic() - since >= self._grace

    def _host_of(self, ref: JobRef, room: Room) -> str:
        """Return the host of a job; one is chosen where it has none, or its own is lost."""
        host = self._pins.get(ref)
        if host is None:
            with self._database.read() as session:
                host = load_row(session, ref).pinned_host
            if host is not None:
                self._pins[ref] = host
                self._note_absence(room)
        if host is not None and not self._is_lost(host):
            why = self._unfit(ref, host) if host in room.hosts else ""
            if not why:
                return host
        else:
            why = f"{host} has been away for {self._grace:.0f} s"
        return self._move(ref, room, host, why)

    def _unfit(self, ref: JobRef, host: str) -> str:
        """Return why a job should leave a host that is there; empty: it need not."""
        with self._database.read() as session:
            out = hosts_out(session).get(host)
        if out is not None:
            return f"{host} was taken out ({out})"
        return f"{host} failed {UNLUCKY} times in a row" if self._is_unlucky(ref, host) else ""

    def _is_unlucky(self, ref: JobRef, host: str) -> bool:
        with self._database.read() as session:
            column = RunRow.bisection_id if ref.bisection_id else RunRow.experiment_id
            last = session.execute(
                select(RunRow.host, RunRow.failure_kind)
                .where(column == ref.id, RunRow.finished_at.is_not(None))
                .order_by(RunRow.finished_at.desc())
                .limit(UNLUCKY)
            ).all()
        wanted = [(host, FailureKind.TRANSIENT)] * UNLUCKY
        return [(row.host, row.failure_kind) for row in last] == wanted

    def _move(self, ref: JobRef, room: Room, before: str | None, why: str) -> str:
        """Pin a job to the host with the fewest jobs, and say so."""
        with self._database.read() as session:
            row = load_row(session, ref)
            able = [host for host in room.hosts.values() if _suits(host, row)]
            load = _jobs_by_host(session)
            out = hosts_out(session)
        fit = [host for host in able if host.name not in out]
        if not fit and before in out:
            return before  # there is none that is better
        able = fit or able
        able = [host for host in able if host.name != before] or able
        if not able:
            return before or ""
        able.sort(key=lambda host: (load[host.name], host.name not in room.free_hosts, host.name))
        chosen = able[0].name
        if chosen == before:
            return chosen
        with self._database.write() as session:
            load_row(session, ref).pinned_host = chosen
            if before is not None:
                reason = f"{why}: measured on {chosen} from now on, both ends first"
                log.warning("%s: %s", ref.id, reason)
                bisections.add_note(session, ref, reason)
        self._pins[ref] = chosen
        return chosen


def _suits(host: HostInfo, row: BisectionRow | ExperimentRow) -> bool:
    """Return whether a host is of the pool that a job asks for, and has the GPUs it needs."""
    pool = str(row.request.get("pool") or "")
    gpus = row.benchmark.get("gpus", 0)
    has = host.facts.get("gpu_slots")
    enough = has is None or not isinstance(gpus, int) or has >= gpus
    return enough and pool in ("", host.pool)


def _jobs_by_host(session: Session) -> Counter[str]:
    """Return how many unfinished jobs are pinned to each host."""
    found: Counter[str] = Counter()
    for table in CONDUCTED:
        hosts: Collection[str | None] = session.scalars(
            select(table.pinned_host).where(
                table.state != BisectionState.FINISHED, table.pinned_host.is_not(None)
            )
        ).all()
        found.update(host for host in hosts if host is not None)
    return found
