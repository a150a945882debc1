"""Starting what a job chose: its row and the reason first, then the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable

from perfbisect.core.facts import Action, Build, Run
from perfbisect.engines.failing import failure_of
from perfbisect.errors import DamagedError, PerfbisectError, TransientError
from perfbisect.hosting import Flight
from perfbisect.jobs import Job, Look
from perfbisect.ports import BuildDone, Engine, RunDone
from perfbisect.store import bisections, work
from perfbisect.store.database import Database
from perfbisect.store.jobs import load_row
from perfbisect.work_orders import WorkOrders

log = logging.getLogger(__name__)


class Starter:
    """Starts builds and runs for one conductor, in one round."""

    def __init__(
        self,
        database: Database,
        engine: Engine,
        orders: WorkOrders,
        owner: str,
        flights: dict[str, Flight],
        tell: Callable[[BuildDone | RunDone], None],
    ) -> None:
        """Make one.

        Args:
            owner: name under which the conductor writes.
            flights: what is under way, by id; what starts is added.
            tell: takes the news of an end.
        """
        self._database = database
        self._engine = engine
        self._orders = orders
        self._owner = owner
        self._flights = flights
        self._tell = tell
        #: A wheel that was wanted is gone: there is something new to decide.
        self.wheel_lost = False

    def start(self, job: Job, look: Look, action: Action) -> bool:
        """Start a build or run; return whether it could be started now."""
        if isinstance(action, Build):
            return self._start_build(job, action)
        assert isinstance(action, Run)
        return self._start_run(job, look, action)

    def _start_build(self, job: Job, action: Build) -> bool:
        tree, commit = job.source_of(action.position)
        with self._database.read() as session:
            row = load_row(session, job.ref)
        if not self._orders.is_mirrored(row):
            return False
        with self._database.write() as session:
            build_id = work.start_build(
                session,
                job.ref,
                tree=tree,
                recipe_digest=row.recipe_digest,
                commit=commit,
                owner=self._owner,
            )
            if build_id is None:
                return False
            bisections.add_decision(session, job.ref, action, build_id)
            data = {"build_id": build_id, "position": action.position, "sha": commit}
            bisections.add_event(session, job.ref, "build_started", data)
        self._flights[build_id] = Flight(job.ref)
        try:
            request = self._orders.build_request(row, build_id, tree, commit)
            self._engine.submit_build(request, self._tell)
        except (OSError, PerfbisectError) as error:
            self._tell(BuildDone(build_id, failure_of(error)))
        return True

    def _start_run(self, job: Job, look: Look, action: Run) -> bool:
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
                self.wheel_lost = True
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
                owner=self._owner,
            )
            bisections.add_decision(session, job.ref, action, run_id)
            data = {
                "run_id": run_id,
                "position": action.position,
                "host": action.host,
                "purpose": action.purpose,
            }
            bisections.add_event(session, job.ref, "run_started", data)
        self._flights[run_id] = Flight(job.ref, action.host)
        try:
            request = self._orders.run_request(row, run_id, wheel, benchmark_digest, action.host)
            self._engine.submit_run(request, self._tell)
        except (OSError, PerfbisectError) as error:
            self._tell(RunDone(run_id, failure_of(error)))
        return True
