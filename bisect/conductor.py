"""The loop: facts -> plan -> engine -> facts. It keeps no state that is not in the database."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from perfbisect.build_watch import BuildWatch
from perfbisect.core.facts import Action, Build, Finish
from perfbisect.core.states import BisectionState, FailureKind, Outcome
from perfbisect.errors import TransientError
from perfbisect.gather import Capacity
from perfbisect.hosting import Flight, Hosting
from perfbisect.job_table import load_job
from perfbisect.jobs import Job, Look
from perfbisect.leading import FencedDatabase, Tenure
from perfbisect.ports import BuildDone, ClusterEngine, Engine, HostInfo, RunDone
from perfbisect.recorder import Recorder
from perfbisect.services import Services
from perfbisect.starting import Starter
from perfbisect.store import bisections, work
from perfbisect.store.jobs import JobRef, asked_by, load_row
from perfbisect.store.leases import FencedError
from perfbisect.sweeping import left_behind
from perfbisect.work_orders import WorkOrders

log = logging.getLogger(__name__)

#: Seconds the loop waits for news before it looks at the database by itself.
TICK = 0.5
#: Seconds after which a job is looked at without news.
LOOK_AGAIN = 2.0
#: Seconds until a step that the database refused is done again: the first time, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


@dataclass(slots=True)
class _Active:
    """A job under this conductor, and when it was looked at."""

    job: Job
    renewed_at: float
    #: The higher one goes first (see ``Conducted.priority``).
    priority: int = 0
    #: Something happened since the last plan.
    dirty: bool = True
    looked_at: float = 0.0
    #: When it last started something.
    served_at: float = 0.0


class Conductor:
    """Conducts the bisections and experiments it holds leases on. One thread runs the loop."""

    def __init__(
        self,
        services: Services,
        engine: Engine,
        *,
        only: Collection[str] | None = None,
        clean_containers: Callable[[str], None] | None = None,
        no_room: Callable[[], str] = lambda: "",
        lease_seconds: float = bisections.LEASE,
        host_grace: float = 120.0,
        detach: bool = False,
    ) -> None:
        """Make a conductor.

        Args:
            only: conduct these bisections (with their proofs) or experiments and no others; None:
                whatever is there, as the one server of this database that conducts.
            clean_containers: removes the containers that lost work (by id) left behind.
            no_room: says why no build may start now (a full disk); empty: one may.
            lease_seconds: of silence after which this conductor counts as gone.
            host_grace: seconds that a host of a cluster may be away before its jobs move.
            detach: when stopped, leave what is under way on a cluster for the next conductor.
        """
        self._tenure = Tenure(services.database, seconds=lease_seconds, leading=only is None)
        services = replace(services, database=FencedDatabase(services.database, self._tenure))
        self._services = services
        self._database = services.database
        self._engine = engine
        self._cluster = engine if isinstance(engine, ClusterEngine) else None
        self._detach = detach
        self._only = only
        self._orders = WorkOrders(services, clean_containers)
        self._recorder = Recorder(services)
        self._watch = BuildWatch(services, no_room)
        self._hosting = Hosting(engine, self._database, host_grace)
        self._news: queue.SimpleQueue[BuildDone | RunDone] = queue.SimpleQueue()
        self._active: dict[JobRef, _Active] = {}
        #: By id of the build or run.
        self._in_flight: dict[str, Flight] = {}
        #: Hosts as they were last remembered.
        self._remembered: dict[str, HostInfo] = {}
        #: Jobs whose end was asked for, and when that was last looked up.
        self._cancelled: set[JobRef] = set()
        self._cancels_at = -TICK
        #: Seconds that a look at a job takes, on average.
        self._look_seconds = 0.0
        self._swept = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def owner(self) -> str:
        """Name under which this conductor writes."""
        return self._tenure.owner

    @property
    def conducts(self) -> bool:
        """Whether it conducts now, or stands by for another server."""
        return self._tenure.conducts

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the loop in a thread of its own."""
        self._thread = threading.Thread(target=self._loop, name="conductor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop, cancel what is under way here, and release the leases."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._detach and self._cluster is not None:
            self._cluster.detach()
        else:
            self._engine.close()
        try:
            self._drain()
            with self._database.write() as session:
                bisections.release_leases(session, self.owner)
            self._tenure.release()
        except FencedError:
            log.warning("another process took over")
        except TransientError:
            # The leases run out by themselves.
            log.warning("leases could not be released")

    def request_stop(self) -> None:
        """Ask the loop to end after this round; ``stop`` does the rest."""
        self._stop.set()

    @property
    def alive(self) -> bool:
        """Whether the loop's thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def conduct_until_finished(
        self, job_id: str, on_tick: Callable[[], None] | None = None
    ) -> None:
        """Run the loop in this thread until a bisection with its proof, or an experiment, is done.

        Args:
            on_tick: called after each round, to show progress; it may end the loop by raising.
        """
        while not self._stop.is_set():
            self._repeat(self._round, on_tick)
            if on_tick is not None:
                on_tick()
            with self._database.read() as session:
                if not bisections.any_unfinished(session, [job_id]):
                    return

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self._repeat(self._round)
            except Exception:
                log.exception("conductor: unforeseen error; trying again")
                self._stop.wait(1.0)

    def _repeat(
        self, step: Callable[[], None], meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Do a step of the loop; while the database can't be written, wait and do it again."""
        # A full disk may last: whoever waits is told so once, and can still end the wait.
        level, pause = logging.ERROR, FIRST_PAUSE
        while not self._stop.is_set():
            try:
                step()
            except TransientError as error:
                log.log(level, "conductor: %s; trying again", error)
                level = logging.WARNING
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                if meanwhile is not None:
                    with suppress(TransientError):
                        meanwhile()
            else:
                return

    def _remember_hosts(self) -> None:
        found = {host.name: host for host in self._engine.hosts()}
        news = [host for name, host in found.items() if self._remembered.get(name) != host]
        if not news:
            return
        with self._database.write() as session:
            for host in news:
                work.remember_host(session, host.name, host.pool, host.facts)
        self._remembered |= {host.name: host for host in news}

    def _round(self) -> None:
        try:
            self._tenure.keep()
            if self._tenure.conducts:
                self._conduct()
            else:
                self._stop.wait(TICK)
        except FencedError:
            self._give_way()

    def _conduct(self) -> None:
        self._remember_hosts()
        self._sweep()
        self._wait_for_news()
        self._recover()
        self._adopt()
        self._look_for_cancels()
        self._watch.look({key: each.ref for key, each in self._in_flight.items() if not each.host})
        for ref in sorted(self._active, key=self._turn()):
            self._advance_safely(ref)

    def _give_way(self) -> None:
        """Drop everything: another process took over while this one was silent."""
        log.error("another process took over from %s; what it did is dropped", self.owner)
        for work_id in self._in_flight:
            if self._cluster is not None:
                self._cluster.let_go(work_id)
            else:
                self._engine.cancel(work_id)
        for ref in self._active:
            self._hosting.drop(ref)
        self._in_flight.clear()
        self._active.clear()
        self._tenure.begin_anew()

    def _turn(self) -> Callable[[JobRef], tuple[int, int, float]]:
        """Return what jobs are sorted by: the first one gets what is free.

        The one with the least under way, then the one that has waited longest.
        """
        busy = Counter(flight.ref for flight in self._in_flight.values())

        def turn(ref: JobRef) -> tuple[int, int, float]:
            item = self._active[ref]
            return -item.priority, busy[ref], item.served_at

        return turn

    def _sweep(self) -> None:
        """Once: clean up after processes that were killed after their work had ended."""
        if self._swept:
            return
        for work_id in left_behind(self._services):
            log.info("cleaning up after %s", work_id)
            self._orders.clean_lost(work_id)
        self._swept = True

    # ------------------------------------------------------------------ what came back

    def _wait_for_news(self) -> None:
        """Record what ended; wait a tick if nothing did."""
        try:
            first = self._news.get(timeout=0.0 if self._any_dirty() else TICK)
        except queue.Empty:
            return
        self._record(first)
        self._drain()

    def _any_dirty(self) -> bool:
        return any(item.dirty for item in self._active.values())

    def _drain(self) -> None:
        while True:
            try:
                news = self._news.get_nowait()
            except queue.Empty:
                return
            self._record(news)

    def _record(self, news: BuildDone | RunDone) -> None:
        try:
            if isinstance(news, BuildDone):
                recorded = self._recorder.build(news, self.owner)
            else:
                recorded = self._recorder.run(news, self.owner)
        except TransientError:
            # What was measured must not be lost because the database was busy.
            self._news.put(news)
            raise
        flight = self._in_flight.pop(news.id, None)
        if not recorded:
            log.warning("%s was taken over by another process: its result is dropped", news.id)
            return
        self._orders.clean(news.id)
        if self._cluster is not None:
            self._cluster.recorded(news.id)
        for ref, item in self._active.items():
            item.dirty |= self._concerns(ref, flight)

    def _concerns(self, ref: JobRef, flight: Flight | None) -> bool:
        """Return whether the end of a build or run may change what a job does next."""
        # A wheel may be what another job waits for, and a slot is free for anybody.
        if flight is None or not flight.host or self._cluster is None:
            return True
        return ref == flight.ref or self._hosting.pinned(ref) == flight.host

    # ------------------------------------------------------------------ whose job

    def _recover(self) -> None:
        """Take over the work of processes that are gone, or close it and clean up after it."""
        with self._database.read() as session:
            if not work.any_lost(session):
                return
        if self._cluster is not None:
            self._reattach(self._cluster)
            return
        with self._database.write() as session:
            lost = work.mark_lost(session)
        for work_id in (*lost.builds, *lost.runs):
            log.info("cleaning up lost work %s", work_id)
            self._orders.clean_lost(work_id)
        for item in self._active.values():
            item.dirty = True

    def _reattach(self, cluster: ClusterEngine) -> None:
        """Go on with what goes on without its process."""
        with self._database.write() as session:
            builds, runs = work.take_over(session, self.owner)
        found = [(row.id, asked_by(row), "") for row in builds]
        found += [(row.id, asked_by(row), row.host) for row in runs]
        for work_id, ref, host in found:
            assert ref is not None
            log.info("taking over %s", work_id)
            self._in_flight[work_id] = Flight(ref, host)
            cluster.reattach(self._orders.orphan(work_id, host), self._news.put)

    def _adopt(self) -> None:
        """Take over what nobody conducts, renew leases, drop those that were lost."""
        with self._database.read() as session:
            wanted = bisections.any_unheld(session, self.owner, only=self._only)
        if wanted:
            with self._database.write() as session:
                taken = bisections.acquire_leases(
                    session, self.owner, only=self._only, seconds=self._tenure.seconds
                )
            if taken:
                # Whoever had them may have gone between the two looks.
                self._recover()
            for ref in taken:
                job = load_job(self._services, ref)
                self._active[ref] = _Active(job, time.monotonic(), self._priority(ref))
        self._renew()

    def _priority(self, ref: JobRef) -> int:
        with self._database.read() as session:
            return load_row(session, ref).priority

    def _renew(self) -> None:
        moment = time.monotonic()
        held = {
            ref: moment - item.renewed_at
            for ref, item in self._active.items()
            if moment - item.renewed_at >= self._tenure.renew_after
        }
        if not held:
            return
        with self._database.write() as session:
            kept = bisections.renew_leases(session, self.owner, held, self._tenure.seconds)
        for ref in held:
            if ref in kept:
                self._active[ref].renewed_at = moment
            else:
                self._drop(ref)

    def _drop(self, ref: JobRef) -> None:
        """Stop caring about a job; whatever runs for it here is cancelled."""
        self._active.pop(ref, None)
        self._hosting.drop(ref)
        self._cancel_work_of(ref)

    def _cancel_work_of(self, ref: JobRef) -> bool:
        """Ask everything that runs for a job here to end; return whether there is any."""
        mine = [key for key, flight in self._in_flight.items() if flight.ref == ref]
        for work_id in mine:
            self._engine.cancel(work_id)
        return bool(mine)

    # ------------------------------------------------------------------ one job

    def _advance_safely(self, ref: JobRef) -> None:
        """Advance; an unforeseen error ends this job, not the service."""
        try:
            self._advance(ref)
        except (TransientError, FencedError):
            raise
        except Exception as error:
            log.exception("%s: unforeseen error", ref.id)
            self._drop(ref)
            self._recorder.fail(ref, f"{type(error).__name__}: {error}")

    def _look_for_cancels(self) -> None:
        """Look up whose end was asked for, in one query for all jobs."""
        moment = time.monotonic()
        if moment - self._cancels_at >= TICK:
            self._cancels_at = moment
            with self._database.read() as session:
                self._cancelled = bisections.cancelled(session, self.owner)

    def _advance(self, ref: JobRef) -> None:
        item = self._active[ref]
        moment = time.monotonic()
        # Without news the plan can only change by the clock and by other processes. Looking without
        # news must not take the time of those who have some.
        pause = max(LOOK_AGAIN, 4 * len(self._active) * self._look_seconds)
        cancelled = ref in self._cancelled
        if not item.dirty and moment - item.looked_at < pause and not cancelled:
            return
        alone = len(self._active) == 1
        may_build = self._watch.may_build(self._active)
        capacity = self._hosting.capacity(ref, self._in_flight, may_build=may_build, alone=alone)
        with self._database.read() as session:
            row = load_row(session, ref)
            if row.state is BisectionState.FINISHED:
                self._drop(ref)
                return
            cancelled = row.cancel_requested_at is not None
            elapsed = row.active_seconds + moment - item.renewed_at
            look = item.job.look(session, capacity, elapsed)
        item.dirty = False
        item.looked_at = moment
        if cancelled:
            end = Finish(Outcome.CANCELLED, "cancelled on request", "cancelled")
            self._end(item, look, end)
        elif look.trouble is not None:
            mistake = look.trouble.kind is FailureKind.OURS
            code = "bad-input" if mistake else "infrastructure"
            self._end(item, look, Finish(Outcome.FAILED, look.trouble.message, code))
        else:
            actions = item.job.decide(look)
            item.dirty = look.outdated
            self._look_seconds += 0.1 * (time.monotonic() - moment - self._look_seconds)
            if not self._is_too_early(ref, actions, capacity):
                self._carry_out(item, look, actions)

    def _is_too_early(self, ref: JobRef, actions: Sequence[Action], capacity: Capacity) -> bool:
        """Return whether a plan gives up only because there is no room for it at this moment."""
        if self._watch.waiting and _gives_up(actions):
            return True
        others = any(flight.ref != ref for flight in self._in_flight.values())
        return (others or self._hosting.is_short(capacity)) and any(
            isinstance(action, Finish) and action.code == "nothing_left" for action in actions
        )

    def _carry_out(self, item: _Active, look: Look, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Finish):
                self._end(item, look, action)
                return
        starter = self._starter()
        started = [starter.start(item.job, look, action) for action in actions]
        if any(started):
            item.served_at = time.monotonic()
            self._recorder.progress(item.job, look)
        # Of several jobs each gets one build a round: the next one, if nobody else wants the slot.
        builds = any(isinstance(action, Build) for action in actions)
        item.dirty |= starter.wheel_lost or (builds and any(started) and len(self._active) > 1)

    def _starter(self) -> Starter:
        return Starter(
            self._database, self._engine, self._orders, self.owner, self._in_flight, self._news.put
        )

    def _end(self, item: _Active, look: Look, action: Finish) -> None:
        """Close a job; called again once whatever still runs for it is gone."""
        ref = item.job.ref
        if self._cancel_work_of(ref):
            return
        seconds = time.monotonic() - item.renewed_at
        self._recorder.end(item.job, look, action, seconds)
        self._active.pop(ref)
        self._hosting.drop(ref)


def _gives_up(actions: Sequence[Action]) -> bool:
    """Whether a plan ends without an answer: too early while builds wait for room."""
    return any(
        isinstance(action, Finish) and action.outcome is Outcome.INCONCLUSIVE for action in actions
    )
