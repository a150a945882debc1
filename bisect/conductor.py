"""The loop: facts -> plan -> engine -> facts. It keeps no state that is not in the database."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from perfbisect.build_watch import BuildWatch
from perfbisect.core.facts import Action, Build, Finish, Run
from perfbisect.core.states import BisectionState, FailureKind, Outcome
from perfbisect.engines.failing import failure_of
from perfbisect.errors import DamagedError, PerfbisectError, TransientError
from perfbisect.gather import Capacity
from perfbisect.job_table import load_job
from perfbisect.jobs import Job, Look
from perfbisect.ports import BuildDone, Engine, RunDone
from perfbisect.recorder import Recorder
from perfbisect.services import Services
from perfbisect.store import bisections, work
from perfbisect.store.database import process_owner
from perfbisect.store.jobs import JobRef, load_row
from perfbisect.sweeping import left_behind
from perfbisect.work_orders import WorkOrders

log = logging.getLogger(__name__)

#: Seconds the loop waits for news before it looks at the database by itself.
TICK = 0.5
#: Seconds between two renewals of leases.
RENEW = 5.0
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


@dataclass(frozen=True, slots=True)
class _Flight:
    """A build or run under way here."""

    ref: JobRef
    #: Empty for builds.
    host: str = ""


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
    ) -> None:
        """Make a conductor.

        Args:
            only: conduct these bisections (with their proofs) or experiments and no others; None:
                whatever is there.
            clean_containers: removes the containers that lost work (by id) left behind.
            no_room: says why no build may start now (a full disk); empty: one may.
        """
        self._services = services
        self._database = services.database
        self._engine = engine
        self._only = only
        self.owner = process_owner()
        self._orders = WorkOrders(services, clean_containers)
        self._recorder = Recorder(services)
        self._watch = BuildWatch(services, no_room)
        self._news: queue.SimpleQueue[BuildDone | RunDone] = queue.SimpleQueue()
        self._active: dict[JobRef, _Active] = {}
        #: By id of the build or run.
        self._in_flight: dict[str, _Flight] = {}
        self._prepared = False
        self._swept = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

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
        self._engine.close()
        self._drain()
        try:
            with self._database.write() as session:
                bisections.release_leases(session, self.owner)
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

    def _prepare(self) -> None:
        if self._prepared:
            return
        with self._database.write() as session:
            for host in self._engine.hosts():
                work.remember_host(session, host.name, host.pool, host.facts)
        self._prepared = True

    def _round(self) -> None:
        self._prepare()
        self._sweep()
        self._wait_for_news()
        self._recover()
        self._adopt()
        self._watch.look({key: each.ref for key, each in self._in_flight.items() if not each.host})
        for ref in sorted(self._active, key=self._turn):
            self._advance_safely(ref)

    def _turn(self, ref: JobRef) -> tuple[int, float]:
        """Return what jobs are sorted by: the first one gets what is free."""
        item = self._active[ref]
        return -item.priority, item.looked_at

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
                self._recorder.build(news)
            else:
                self._recorder.run(news)
        except TransientError:
            # What was measured must not be lost because the database was busy.
            self._news.put(news)
            raise
        self._in_flight.pop(news.id, None)
        self._orders.clean(news.id)
        # A wheel may be what another bisection waits for, and a slot is free for anybody.
        for item in self._active.values():
            item.dirty = True

    # ------------------------------------------------------------------ whose job

    def _recover(self) -> None:
        """Close and clean up the work of processes that are gone."""
        with self._database.read() as session:
            if not work.any_lost(session):
                return
        with self._database.write() as session:
            lost = work.mark_lost(session)
        for work_id in (*lost.builds, *lost.runs):
            log.info("cleaning up lost work %s", work_id)
            self._orders.clean_lost(work_id)
        for item in self._active.values():
            item.dirty = True

    def _adopt(self) -> None:
        """Take over what nobody conducts, renew leases, drop those that were lost."""
        with self._database.read() as session:
            wanted = bisections.any_unheld(session, self.owner, only=self._only)
        if wanted:
            with self._database.write() as session:
                taken = bisections.acquire_leases(session, self.owner, only=self._only)
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
            if moment - item.renewed_at >= RENEW
        }
        if not held:
            return
        with self._database.write() as session:
            kept = bisections.renew_leases(session, self.owner, held)
        for ref in held:
            if ref in kept:
                self._active[ref].renewed_at = moment
            else:
                self._drop(ref)

    def _drop(self, ref: JobRef) -> None:
        """Stop caring about a job; whatever runs for it here is cancelled."""
        self._active.pop(ref, None)
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
        except TransientError:
            raise
        except Exception as error:
            log.exception("%s: unforeseen error", ref.id)
            self._drop(ref)
            self._recorder.fail(ref, f"{type(error).__name__}: {error}")

    def _advance(self, ref: JobRef) -> None:
        item = self._active[ref]
        moment = time.monotonic()
        with self._database.read() as session:
            row = load_row(session, ref)
            if row.state is BisectionState.FINISHED:
                self._drop(ref)
                return
            cancelled = row.cancel_requested_at is not None
            # Without news the plan can only change by the clock and by other processes.
            if not item.dirty and moment - item.looked_at < LOOK_AGAIN and not cancelled:
                return
            elapsed = row.active_seconds + moment - item.renewed_at
            look = item.job.look(session, self._capacity(), elapsed)
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
            if not self._is_too_early(ref, actions):
                self._carry_out(item, look, actions)

    def _is_too_early(self, ref: JobRef, actions: Sequence[Action]) -> bool:
        """Return whether a plan gives up only because there is no room for it at this moment."""
        if self._watch.waiting and _gives_up(actions):
            return True
        others = any(flight.ref != ref for flight in self._in_flight.values())
        return others and any(
            isinstance(action, Finish) and action.code == "nothing_left" for action in actions
        )

    def _capacity(self) -> Capacity:
        hosts = tuple(host.name for host in self._engine.hosts())
        busy = {flight.host for flight in self._in_flight.values() if flight.host}
        builds = sum(not flight.host for flight in self._in_flight.values())
        slots = max(self._engine.build_slots() - builds, 0)
        if not self._watch.may_build(self._active):
            slots = 0
        free_hosts = tuple(host for host in hosts if host not in busy)
        if self._engine.exclusive and builds:
            free_hosts = ()
        if self._engine.exclusive and busy:
            slots = 0
        return Capacity(slots, free_hosts, hosts, self._engine.exclusive)

    def _carry_out(self, item: _Active, look: Look, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Finish):
                self._end(item, look, action)
                return
        started = [self._start(item, look, action) for action in actions]
        if any(started):
            self._recorder.progress(item.job, look)

    def _start(self, item: _Active, look: Look, action: Action) -> bool:
        if isinstance(action, Build):
            return self._start_build(item, action)
        assert isinstance(action, Run)
        return self._start_run(item, look, action)

    def _start_build(self, item: _Active, action: Build) -> bool:
        job = item.job
        tree, commit = job.source_of(action.position)
        with self._database.write() as session:
            row = load_row(session, job.ref)
            build_id = work.start_build(
                session,
                job.ref,
                tree=tree,
                recipe_digest=row.recipe_digest,
                commit=commit,
                owner=self.owner,
            )
            if build_id is None:
                return False
            bisections.add_decision(session, job.ref, action, build_id)
            data = {"build_id": build_id, "position": action.position, "sha": commit}
            bisections.add_event(session, job.ref, "build_started", data)
        self._in_flight[build_id] = _Flight(job.ref)
        try:
            request = self._orders.build_request(row, build_id, tree, commit)
            self._engine.submit_build(request, self._news.put)
        except (OSError, PerfbisectError) as error:
            self._news.put(BuildDone(build_id, failure_of(error)))
        return True

    def _start_run(self, item: _Active, look: Look, action: Run) -> bool:
        job = item.job
        wheel_id = look.wheels[job.representative(action.position)]
        try:
            wheel = self._orders.fetch_wheel(wheel_id)
        except PerfbisectError as error:
            # A store that does not answer has not lost the wheel: it is asked again later.
            away = isinstance(error, TransientError) and not isinstance(error, DamagedError)
            then = "trying again" if away else "it will be built again"
            log.warning("wheel %s: %s; %s", wheel_id, error, then)
            if not away:
                self._orders.forget_wheel(wheel_id)
                item.dirty = True
            return False
        benchmark_digest = job.benchmark_of(action.position)
        with self._database.write() as session:
            row = load_row(session, job.ref)
            run_id = work.start_run(
                session,
                job.ref,
                action,
                wheel_id=wheel_id,
                benchmark_digest=benchmark_digest,
                owner=self.owner,
            )
            bisections.add_decision(session, job.ref, action, run_id)
            data = {
                "run_id": run_id,
                "position": action.position,
                "host": action.host,
                "purpose": action.purpose,
            }
            bisections.add_event(session, job.ref, "run_started", data)
        self._in_flight[run_id] = _Flight(job.ref, action.host)
        try:
            request = self._orders.run_request(row, run_id, wheel, benchmark_digest, action.host)
            self._engine.submit_run(request, self._news.put)
        except (OSError, PerfbisectError) as error:
            self._news.put(RunDone(run_id, failure_of(error)))
        return True

    def _end(self, item: _Active, look: Look, action: Finish) -> None:
        """Close a job; called again once whatever still runs for it is gone."""
        ref = item.job.ref
        if self._cancel_work_of(ref):
            return
        seconds = time.monotonic() - item.renewed_at
        self._recorder.end(item.job, look, action, seconds)
        self._active.pop(ref)


def _gives_up(actions: Sequence[Action]) -> bool:
    """Whether a plan ends without an answer: too early while builds wait for room."""
    return any(
        isinstance(action, Finish) and action.outcome is Outcome.INCONCLUSIVE for action in actions
    )
