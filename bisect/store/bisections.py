"""Writing bisections and experiments: leases, decisions, events, the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from perfbisect.core.facts import Action, Build, Finish, Run
from perfbisect.core.states import BisectionState, Outcome
from perfbisect.store.database import now
from perfbisect.store.jobs import CONDUCTED, JobRef
from perfbisect.store.leases import is_gone, revoke
from perfbisect.store.tables import BisectionRow, DecisionRow, EventRow, ExperimentRow

#: Seconds: a conductor that has not renewed its lease for this long is taken for dead.
LEASE = 60.0


def add_event(session: Session, job: JobRef, kind: str, data: dict[str, Any]) -> None:
    """Tell pages and clients that something happened."""
    session.add(EventRow(**job.columns, kind=kind, data=data, at=now()))


def add_decision(
    session: Session, job: JobRef, action: Action, work_id: str | None, *, reason: str = ""
) -> None:
    """Store one choice of the planner with its reason, and announce it."""
    kind = {Build: "build", Run: "run", Finish: "finish"}[type(action)]
    row = DecisionRow(
        **job.columns,
        kind=kind,
        position=None if isinstance(action, Finish) else action.position,
        host=action.host if isinstance(action, Run) else None,
        purpose=action.purpose if isinstance(action, Run) else None,
        reason=reason or action.reason,
        work_id=work_id,
        at=now(),
    )
    session.add(row)
    session.flush()
    add_event(
        session,
        job,
        "decision",
        {
            "decision_id": row.id,
            "kind": kind,
            "position": row.position,
            "host": row.host,
            "purpose": row.purpose,
            "reason": row.reason,
            "work_id": work_id,
        },
    )


def add_note(session: Session, job: JobRef, reason: str) -> None:
    """Store something that was decided for a job besides what its planner chose."""
    session.add(DecisionRow(**job.columns, kind="note", reason=reason, at=now()))
    add_event(session, job, "note", {"reason": reason})


def acquire_leases(
    session: Session,
    owner: str,
    *,
    only: Collection[str] | None = None,
    limit: int = 64,
    seconds: float = LEASE,
) -> list[JobRef]:
    """Take over what is unfinished and conducted by nobody.

    It is free when it has no lease, or when its holder is gone: a process of this machine that has
    ended, or one whose lease on itself ran out.

    Args:
        only: these bisections with their experiments, and experiments of these ids.
        seconds: until the lease expires.
    """
    taken: list[JobRef] = []
    for row in _unheld(session, owner, only):
        if len(taken) == limit:
            break
        if not _take(session, row, owner, seconds):
            continue
        job = JobRef(type(row), row.id)
        if row.state is BisectionState.QUEUED:
            row.state = BisectionState.RUNNING
            row.started_at = row.started_at or now()
            add_event(session, job, "started", {})
        taken.append(job)
    return taken


def any_unheld(session: Session, owner: str, *, only: Collection[str] | None = None) -> bool:
    """Return whether ``acquire_leases`` would find something: asked often, without a lock."""
    return bool(_unheld(session, owner, only))


def _unheld(
    session: Session, owner: str, only: Collection[str] | None
) -> list[BisectionRow | ExperimentRow]:
    found: list[BisectionRow | ExperimentRow] = []
    for table in CONDUCTED:
        query = (
            select(table)
            .where(
                table.state != BisectionState.FINISHED,
                or_(table.lease_owner.is_(None), table.lease_owner != owner),
            )
            .order_by(table.created_at)
        )
        if only is not None:
            query = query.where(_is_among(table, only))
        rows: Iterable[BisectionRow | ExperimentRow] = session.scalars(query)
        found += [row for row in rows if _is_free(session, row)]
    return found


def _is_among(
    table: type[BisectionRow] | type[ExperimentRow], only: Collection[str]
) -> ColumnElement[bool]:
    if table is ExperimentRow:
        return or_(ExperimentRow.id.in_(only), ExperimentRow.bisection_id.in_(only))
    return table.id.in_(only)


def cancelled(session: Session, owner: str) -> set[JobRef]:
    """Return the jobs of ``owner`` whose end was asked for."""
    return {
        JobRef(table, found)
        for table in CONDUCTED
        for found in session.scalars(
            select(table.id).where(
                table.lease_owner == owner,
                table.state != BisectionState.FINISHED,
                table.cancel_requested_at.is_not(None),
            )
        )
    }


def any_unfinished(session: Session, only: Collection[str]) -> bool:
    """Return whether one of these bisections or experiments, or a proof of theirs, goes on."""
    return any(
        session.scalar(
            select(table.id)
            .where(table.state != BisectionState.FINISHED, _is_among(table, only))
            .limit(1)
        )
        for table in CONDUCTED
    )


def _is_free(session: Session, row: BisectionRow | ExperimentRow) -> bool:
    holder = row.lease_owner
    return (
        holder is None
        or row.lease_expires_at is None
        or is_gone(session, holder, row.lease_expires_at)
    )


def _take(session: Session, row: BisectionRow | ExperimentRow, owner: str, seconds: float) -> bool:
    """Take the lease only if it is still the one that was read: two conductors may race."""
    table, before = type(row), row.lease_owner
    same = table.lease_owner.is_(None) if before is None else table.lease_owner == before
    taken = session.execute(
        update(table)
        .where(table.id == row.id, same)
        .values(lease_owner=owner, lease_expires_at=now() + timedelta(seconds=seconds))
        .execution_options(synchronize_session="fetch")
    )
    if getattr(taken, "rowcount", 0) != 1:
        return False
    if before is not None:
        revoke(session, [before])
    return True


def renew_leases(
    session: Session, owner: str, held: Mapping[JobRef, float], seconds: float = LEASE
) -> set[JobRef]:
    """Extend the leases that ``owner`` holds; return those that are still its own.

    Args:
        held: seconds conducted since the last call.
        seconds: until the leases expire.
    """
    kept = set()
    until = now() + timedelta(seconds=seconds)
    for job, conducted in held.items():
        renewed = session.execute(
            update(job.table)
            .where(job.table.id == job.id, job.table.lease_owner == owner)
            .values(
                lease_expires_at=until,
                active_seconds=job.table.active_seconds + conducted,
            )
        )
        if getattr(renewed, "rowcount", 0):
            kept.add(job)
    return kept


def release_leases(session: Session, owner: str) -> None:
    """Give up everything, so that another process can go on with it at once."""
    for table in CONDUCTED:
        session.execute(
            update(table)
            .where(table.lease_owner == owner, table.state != BisectionState.FINISHED)
            .values(lease_owner=None, lease_expires_at=None)
        )


def finish(
    session: Session,
    row: BisectionRow | ExperimentRow,
    *,
    outcome: Outcome,
    verdict: dict[str, Any],
    error: dict[str, Any] | None,
) -> None:
    """Close a bisection or experiment for good."""
    row.state = BisectionState.FINISHED
    row.outcome = outcome
    row.verdict = verdict
    row.error = error
    row.finished_at = now()
    row.lease_owner = None
    row.lease_expires_at = None
    add_event(
        session,
        JobRef(type(row), row.id),
        "finished",
        {"outcome": outcome.value, "reason": verdict.get("reason", "")},
    )
