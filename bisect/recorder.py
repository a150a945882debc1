"""Writes what came back, and how bisections end. One transaction each: whole or not at all."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.core.facts import Belief, Finish
from perfbisect.core.states import FailureKind, Outcome
from perfbisect.errors import PerfbisectError, TransientError
from perfbisect.gather import Axis, Gathered
from perfbisect.history import Mirror
from perfbisect.ports import BuildDone, BuildSuccess, Failure, RunDone, RunSuccess
from perfbisect.services import Services
from perfbisect.store import bisections, work
from perfbisect.store.tables import BenchmarkRow, BisectionRow, RepositoryRow, RunRow
from perfbisect.verdicts import Relations, assemble, belief_json
from perfbisect.work_orders import mirror_path

log = logging.getLogger(__name__)

#: Which part of the request a planner's code blames.
FIELD_OF_CODE = {
    "threshold_outside_ends": "threshold",
    "ends_swapped": "good",
    "end_unbuildable": "recipe",
}


class Recorder:
    """Turns news and endings into rows and events."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._database = services.database
        self._artifacts = services.artifacts

    def build(self, news: BuildDone) -> None:
        """Record how a build ended; its wheel is stored before anything refers to it."""
        result = news.result
        artifact = ""
        if isinstance(result, BuildSuccess):
            try:
                artifact = self._artifacts.put(result.path)
            except TransientError as error:
                result = Failure(FailureKind.TRANSIENT, error.message, seconds=result.seconds)
        with self._database.write() as session:
            row = work.finish_build(session, news.id, result, artifact)
            if row.bisection_id is None:
                return
            data = {
                "build_id": row.id,
                "sha": row.commit_sha,
                "state": row.state,
                "seconds": row.seconds,
                "cause": row.cause,
                "failure_kind": row.failure_kind,
            }
            bisections.add_event(session, row.bisection_id, "build_finished", data)

    def run(self, news: RunDone) -> None:
        """Record how a run ended, with its point if it gave one."""
        success = news.result if isinstance(news.result, RunSuccess) else None
        with self._database.write() as session:
            run = session.get_one(RunRow, news.id)
            benchmark = session.get_one(BenchmarkRow, run.benchmark_digest)
            unit = str(benchmark.definition["unit"])
            row = work.finish_run(session, news.id, news.result, unit)
            data = {
                "run_id": row.id,
                "position": row.position,
                "state": row.state,
                "value": success.value if success else None,
                "unit": unit,
                "seconds": row.seconds,
                "cause": row.cause,
                "rejected": success.rejected if success else "",
            }
            bisections.add_event(session, row.bisection_id, "run_finished", data)

    def belief(self, bisection_id: str, axis: Axis, gathered: Gathered, belief: Belief) -> None:
        """Store what the points say now, for pages and progress."""
        with self._database.write() as session:
            row = session.get_one(BisectionRow, bisection_id)
            row.verdict = assemble(session, row, axis, gathered, belief, None)
            row.belief = belief_json(belief)
            bisections.add_event(session, row.id, "belief", _summary(row.verdict))

    def end(
        self,
        bisection_id: str,
        axis: Axis,
        gathered: Gathered,
        belief: Belief | None,
        action: Finish,
        seconds: float,
    ) -> None:
        """Close a bisection with its verdict.

        Args:
            seconds: conducted since the lease was last renewed.
        """
        error = _error(action, axis, gathered) if action.outcome is Outcome.FAILED else None
        with self._database.write() as session:
            row = session.get_one(BisectionRow, bisection_id)
            row.active_seconds += seconds
            bisections.add_decision(session, bisection_id, action, None)
            relations = self._relations_of(session, row)
            verdict = assemble(session, row, axis, gathered, belief, action, relations)
            if belief is not None:
                row.belief = belief_json(belief)
            bisections.finish(session, row, outcome=action.outcome, verdict=verdict, error=error)

    def _relations_of(self, session: Session, row: BisectionRow) -> Relations:
        """Return who knows relations; trouble with git must not keep an end from being stored."""
        mirror = Mirror(
            mirror_path(self._services, session.get_one(RepositoryRow, row.repository_id).url)
        )

        def relations(sha: str) -> list[dict[str, Any]]:
            try:
                return [asdict(relation) for relation in mirror.relations(sha)]
            except PerfbisectError as error:
                log.warning("relations of %s: %s", sha, error)
                return []

        return relations

    def fail(self, bisection_id: str, message: str) -> None:
        """Close a bisection after an unforeseen error of ours."""
        with self._database.write() as session:
            row = session.get_one(BisectionRow, bisection_id)
            verdict = {**(row.verdict or {}), "id": row.id, "state": "finished"}
            verdict |= {"outcome": Outcome.FAILED, "reason": message, "code": "internal"}
            error = {"message": message, "kind": FailureKind.OURS, "code": "internal"}
            bisections.finish(session, row, outcome=Outcome.FAILED, verdict=verdict, error=error)


def _error(action: Finish, axis: Axis, gathered: Gathered) -> dict[str, Any]:
    """Return the problem of a failed bisection: what to tell, which field, which log."""
    cause = gathered.trouble
    if action.code == "end_unbuildable":
        ends = (0, axis.representative(axis.n))
        cause = next((gathered.failures[end] for end in ends if end in gathered.failures), None)
    error: dict[str, Any] = {
        "message": action.reason,
        "kind": FailureKind.OURS if action.code else FailureKind.TRANSIENT,
        "code": action.code,
        "field": FIELD_OF_CODE.get(action.code, ""),
        "lines": [],
        "work_id": "",
    }
    if cause is None:
        return error
    if cause.message not in action.reason:
        error["message"] = f"{action.reason}: {cause.message}"
    return error | {
        "kind": cause.kind,
        "field": cause.field,
        "lines": list(cause.lines),
        "work_id": cause.work_id,
    }


def _summary(verdict: dict[str, Any]) -> dict[str, Any]:
    keys = ("culprits", "explained", "noise", "confidence", "missed", "builds", "runs")
    return {key: verdict.get(key) for key in keys}
