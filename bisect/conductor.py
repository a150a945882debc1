"""The loop: facts -> plan -> engine -> facts. It keeps no state that is not in the database."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from perfbisect.core.facts import Action, Belief, Build, Finish, Plan, Policy, Run
from perfbisect.core.planner import believe
from perfbisect.core.planner import plan as make_plan
from perfbisect.core.states import BisectionState, FailureKind, Outcome
from perfbisect.engines.failing import failure_of
from perfbisect.errors import PerfbisectError, TransientError
from perfbisect.gather import Axis, Capacity, Gathered, gather, load_axis, load_policy
from perfbisect.ports import BuildDone, Engine, RunDone
from perfbisect.recorder import Recorder
from perfbisect.services import Services
from perfbisect.store import bisections, work
from perfbisect.store.database import process_owner
from perfbisect.store.tables import BisectionRow
from perfbisect.work_orders import WorkOrders

log = logging.getLogger(__name__)

#: Seconds the loop waits for news before it looks at the database by itself.
TICK = 0.5
#: Seconds between two renewals of leases.
RENEW = 5.0


@dataclass(slots=True)
class _Active:
    """A bisection under this conductor: what never changes, and when it was looked at."""

    axis: Axis
    policy: Policy
    #: Something happened since the last plan.
    dirty: bool = True
    looked_at: float = 0.0
    renewed_at: float = 0.0


class Conductor:
    """Conducts the bisections it holds leases on. One thread runs the loop."""

    def __init__(
        self,
        services: Services,
        engine: Engine,
        *,
        only: Collection[str] | None = None,
        clean_containers: Callable[[str], None] | None = None,
    ) -> None:
        """Make a conductor.

        Args:
            only: conduct these bisections and no others; None: whatever is there.
            clean_containers: removes the containers that lost work (by id) left behind.
        """
        self._services = services
        self._database = services.database
        self._engine = engine
        self._only = only
        self.owner = process_owner()
        self._orders = WorkOrders(services, clean_containers)
        self._recorder = Recorder(services)
        self._news: queue.SimpleQueue[BuildDone | RunDone] = queue.SimpleQueue()
        self._active: dict[str, _Active] = {}
        #: Builds and runs under way here: work id -> (bisection id, host; '' for builds).
        self._in_flight: dict[str, tuple[str, str]] = {}
        self._prepared = False
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
        self, bisection_id: str, on_tick: Callable[[], None] | None = None
    ) -> None:
        """Run the loop in this thread until the bisection is finished.

        Args:
            on_tick: called after each round, to show progress.
        """
        while not self._stop.is_set():
            self._repeat(self._round)
            if on_tick is not None:
                on_tick()
            with self._database.read() as session:
                if session.get_one(BisectionRow, bisection_id).state is BisectionState.FINISHED:
                    return

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self._repeat(self._round)
            except Exception:
                log.exception("conductor: unforeseen error; trying again")
                self._stop.wait(1.0)

    def _repeat(self, step: Callable[[], None]) -> None:
        """Do a step of the loop; while the database can't be written, wait and do it again."""
        while not self._stop.is_set():
            try:
                step()
            except TransientError as error:
                log.warning("conductor: %s; trying again", error)
                self._stop.wait(1.0)
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
        self._wait_for_news()
        self._recover()
        self._adopt()
        for bisection_id in sorted(self._active, key=lambda item: self._active[item].looked_at):
            self._advance_safely(bisection_id)

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

    # ------------------------------------------------------------------ whose bisection

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
        """Take over bisections that nobody conducts, renew leases, drop those that were lost."""
        with self._database.read() as session:
            wanted = bisections.any_unheld(session, self.owner, only=self._only)
        if wanted:
            with self._database.write() as session:
                taken = bisections.acquire_leases(session, self.owner, only=self._only)
                for bisection_id in taken:
                    row = session.get_one(BisectionRow, bisection_id)
                    self._active[bisection_id] = _Active(
                        axis=load_axis(session, bisection_id),
                        policy=load_policy(row),
                        renewed_at=time.monotonic(),
                    )
        self._renew()

    def _renew(self) -> None:
        moment = time.monotonic()
        held = {
            key: moment - item.renewed_at
            for key, item in self._active.items()
            if moment - item.renewed_at >= RENEW
        }
        if not held:
            return
        with self._database.write() as session:
            kept = bisections.renew_leases(session, self.owner, held)
        for key in held:
            if key in kept:
                self._active[key].renewed_at = moment
            else:
                self._drop(key)

    def _drop(self, bisection_id: str) -> None:
        """Stop caring about a bisection; whatever runs for it here is cancelled."""
        self._active.pop(bisection_id, None)
        self._cancel_work_of(bisection_id)

    # ------------------------------------------------------------------ one bisection

    def _advance_safely(self, bisection_id: str) -> None:
        """Advance; an unforeseen error ends this bisection, not the service."""
        try:
            self._advance(bisection_id)
        except TransientError:
            raise
        except Exception as error:
            log.exception("bisection %s: unforeseen error", bisection_id)
            self._drop(bisection_id)
            self._recorder.fail(bisection_id, f"{type(error).__name__}: {error}")

    def _advance(self, bisection_id: str) -> None:
        item = self._active[bisection_id]
        moment = time.monotonic()
        with self._database.read() as session:
            row = session.get_one(BisectionRow, bisection_id)
            if row.state is BisectionState.FINISHED:
                self._drop(bisection_id)
                return
            # Without news the plan can only change by the clock and by other processes.
            if not item.dirty and moment - item.looked_at < 2.0 and not row.cancel_requested_at:
                return
            elapsed = row.active_seconds + moment - item.renewed_at
            gathered = gather(session, row, item.axis, item.policy, self._capacity(), elapsed)
        item.dirty = False
        item.looked_at = moment
        if row.cancel_requested_at is not None:
            end = Finish(Outcome.CANCELLED, "cancelled on request", "cancelled")
            self._end(bisection_id, gathered, believe(gathered.facts), end)
        elif gathered.trouble is not None:
            mistake = gathered.trouble.kind is FailureKind.OURS
            code = "bad-input" if mistake else "infrastructure"
            end = Finish(Outcome.FAILED, gathered.trouble.message, code)
            self._end(bisection_id, gathered, believe(gathered.facts), end)
        else:
            self._carry_out(row, item, gathered, make_plan(gathered.facts))

    def _capacity(self) -> Capacity:
        hosts = tuple(host.name for host in self._engine.hosts())
        busy = {host for _, host in self._in_flight.values() if host}
        builds = sum(not host for _, host in self._in_flight.values())
        slots = max(self._engine.build_slots() - builds, 0)
        free_hosts = tuple(host for host in hosts if host not in busy)
        if self._engine.exclusive and builds:
            free_hosts = ()
        if self._engine.exclusive and busy:
            slots = 0
        return Capacity(slots, free_hosts, hosts, self._engine.exclusive)

    def _carry_out(self, row: BisectionRow, item: _Active, gathered: Gathered, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Finish):
                self._end(row.id, gathered, plan.belief, action)
                return
        started = False
        for action in plan.actions:
            started |= self._start(row, item, gathered, action)
        if plan.belief is not None and (started or row.belief is None):
            self._recorder.belief(row.id, item.axis, gathered, plan.belief)

    def _start(self, row: BisectionRow, item: _Active, gathered: Gathered, action: Action) -> bool:
        if isinstance(action, Build):
            return self._start_build(row, item, action)
        assert isinstance(action, Run)
        return self._start_run(row, item, gathered, action)

    def _start_build(self, row: BisectionRow, item: _Active, action: Build) -> bool:
        with self._database.write() as session:
            tree, commit = item.axis.trees[action.position], item.axis.shas[action.position]
            build_id = work.start_build(
                session,
                bisection_id=row.id,
                tree=tree,
                recipe_digest=row.recipe_digest,
                commit=commit,
                owner=self.owner,
            )
            if build_id is None:
                return False
            bisections.add_decision(session, row.id, action, build_id)
            bisections.add_event(
                session,
                row.id,
                "build_started",
                {"build_id": build_id, "position": action.position, "sha": commit},
            )
        self._in_flight[build_id] = (row.id, "")
        try:
            request = self._orders.build_request(row, build_id, tree, commit)
            self._engine.submit_build(request, self._news.put)
        except (OSError, PerfbisectError) as error:
            self._news.put(BuildDone(build_id, failure_of(error)))
        return True

    def _start_run(self, row: BisectionRow, item: _Active, gathered: Gathered, action: Run) -> bool:
        wheel_id = gathered.wheels[item.axis.representative(action.position)]
        try:
            wheel = self._orders.fetch_wheel(wheel_id)
        except PerfbisectError as error:
            log.warning("wheel %s: %s; it will be built again", wheel_id, error)
            self._orders.forget_wheel(wheel_id)
            item.dirty = True
            return False
        with self._database.write() as session:
            run_id = work.start_run(
                session,
                action,
                bisection_id=row.id,
                wheel_id=wheel_id,
                benchmark_digest=row.benchmark_digest,
                owner=self.owner,
            )
            bisections.add_decision(session, row.id, action, run_id)
            bisections.add_event(
                session,
                row.id,
                "run_started",
                {
                    "run_id": run_id,
                    "position": action.position,
                    "host": action.host,
                    "purpose": action.purpose,
                },
            )
        self._in_flight[run_id] = (row.id, action.host)
        try:
            request = self._orders.run_request(row, run_id, wheel, action.host)
            self._engine.submit_run(request, self._news.put)
        except (OSError, PerfbisectError) as error:
            self._news.put(RunDone(run_id, failure_of(error)))
        return True

    # ------------------------------------------------------------------ ends

    def _cancel_work_of(self, bisection_id: str) -> bool:
        """Ask everything that runs for a bisection here to end; return whether there is any."""
        mine = [key for key, (owner, _) in self._in_flight.items() if owner == bisection_id]
        for work_id in mine:
            self._engine.cancel(work_id)
        return bool(mine)

    def _end(
        self, bisection_id: str, gathered: Gathered, belief: Belief | None, action: Finish
    ) -> None:
        """Close a bisection; called again once whatever still runs for it is gone."""
        if self._cancel_work_of(bisection_id):
            return
        item = self._active[bisection_id]
        seconds = time.monotonic() - item.renewed_at
        self._recorder.end(bisection_id, item.axis, gathered, belief, action, seconds)
        self._active.pop(bisection_id)
