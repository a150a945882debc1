"""Writes what came back, and how bisections end. One transaction each: whole or not at all."""

from __future__ import annotations

from typing import Any

from perfbisect import report
from perfbisect.core.facts import Finish
from perfbisect.core.states import FailureKind, Outcome
from perfbisect.errors import TransientError
from perfbisect.host_watch import HostWatch
from perfbisect.jobs import Job, Look
from perfbisect.ports import BuildDone, BuildSuccess, Failure, RunDone, RunSuccess
from perfbisect.services import Services
from perfbisect.store import bisections, work
from perfbisect.store.jobs import JobRef, asked_by, load_row
from perfbisect.store.run_artifacts import add_artifacts
from perfbisect.store.tables import BenchmarkRow, RunRow
from perfbisect.stored_logs import store_log

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
        self._hosts = HostWatch(services.database)

    def build(self, news: BuildDone, owner: str) -> bool:
        """Record how a build ended; its wheel is stored before anything refers to it.

        Returns:
            whether it was ``owner``'s to record; if not, somebody else took it over.
        """
        result = news.result
        artifact = ""
        if isinstance(result, BuildSuccess):
            try:
                artifact = self._artifacts.put(result.path)
            except TransientError as error:
                result = Failure(FailureKind.TRANSIENT, error.message, seconds=result.seconds)
        stored_log = store_log(self._services, news.id)
        with self._database.write() as session:
            row = work.finish_build(session, news.id, result, artifact, owner=owner)
            if row is None:
                return False
            row.log_artifact = stored_log
            job = asked_by(row)
            if job is None:
                return True
            data = {
                "build_id": row.id,
                "sha": row.commit_sha,
                "state": row.state,
                "seconds": row.seconds,
                "cause": row.cause,
                "failure_kind": row.failure_kind,
            }
            bisections.add_event(session, job, "build_finished", data)
        return True

    def run(self, news: RunDone, owner: str) -> bool:
        """Record how a run ended, with its point if it gave one.

        Returns:
            whether it was ``owner``'s to record; if not, somebody else took it over.
        """
        result = news.result
        artifacts: list[dict[str, Any]] = []
        if isinstance(result, RunSuccess):
            try:
                artifacts = self._put_all(result)
            except TransientError as error:
                result = Failure(FailureKind.TRANSIENT, error.message, seconds=result.seconds)
        success = result if isinstance(result, RunSuccess) else None
        stored_log = store_log(self._services, news.id)
        with self._database.write() as session:
            run = session.get_one(RunRow, news.id)
            benchmark = session.get_one(BenchmarkRow, run.benchmark_digest)
            unit = str(benchmark.definition["unit"])
            row = work.finish_run(session, news.id, result, unit, owner=owner)
            if row is None:
                return False
            row.log_artifact = stored_log
            add_artifacts(session, news.id, artifacts)
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
            job = asked_by(row)
            assert job is not None
            bisections.add_event(session, job, "run_finished", data)
        self._hosts.look(run.host)
        return True

    def _put_all(self, success: RunSuccess) -> list[dict[str, Any]]:
        """Store the files that a run left, before anything refers to them."""
        return [
            {
                "name": name,
                "artifact": self._artifacts.put(path, keep_copy=False),
                "size": path.stat().st_size,
            }
            for name, path in success.artifacts.items()
        ]

    def progress(self, job: Job, look: Look) -> None:
        """Store what the points say now, for pages and progress."""
        with self._database.write() as session:
            bisections.add_event(session, job.ref, "belief", job.progress(session, look))

    def end(self, job: Job, look: Look, action: Finish, seconds: float) -> None:
        """Close a job with its verdict.

        Args:
            seconds: conducted since the lease was last renewed.
        """
        error = _error(action, job, look) if action.outcome is Outcome.FAILED else None
        prepared = job.prepare_end(look, action)
        with self._database.write() as session:
            row = load_row(session, job.ref)
            row.active_seconds += seconds
            bisections.add_decision(session, job.ref, action, None)
            verdict = job.end(session, look, action, prepared)
            if error is not None and error["message"] != verdict.get("reason"):
                # The build's or the run's own words: an end that is broken must say why.
                verdict["reason"] = error["message"]
                verdict["sentence"] = report.sentence(verdict)
            bisections.finish(session, row, outcome=action.outcome, verdict=verdict, error=error)

    def fail(self, ref: JobRef, message: str) -> None:
        """Close a job after an unforeseen error of ours."""
        with self._database.write() as session:
            row = load_row(session, ref)
            verdict = {**(row.verdict or {}), "id": row.id, "state": "finished"}
            verdict |= {"outcome": Outcome.FAILED, "reason": message, "code": "internal"}
            verdict["sentence"] = report.sentence(verdict)
            error = {"message": message, "kind": FailureKind.OURS, "code": "internal"}
            bisections.finish(session, row, outcome=Outcome.FAILED, verdict=verdict, error=error)


def _error(action: Finish, job: Job, look: Look) -> dict[str, Any]:
    """Return the problem of a failed job: what to tell, which field, which log."""
    cause = look.trouble
    if action.code == "end_unbuildable":
        ends = (0, job.representative(look.facts.n))
        cause = next((look.failures[end] for end in ends if end in look.failures), None)
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
