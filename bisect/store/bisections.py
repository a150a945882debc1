"""Writing bisections: submission, leases, decisions, events, the end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from perfbisect.core.facts import Action, Build, Finish, Run
from perfbisect.core.states import BisectionState, Outcome
from perfbisect.store.database import now, owner_is_dead
from perfbisect.store.tables import BisectionRow, DecisionRow, EventRow

#: A conductor that has not renewed its lease for this long is taken for dead.
LEASE = timedelta(seconds=60)


def add_event(session: Session, bisection_id: str, kind: str, data: dict[str, Any]) -> None:
    """Tell pages and clients that something happened."""
    session.add(EventRow(bisection_id=bisection_id, kind=kind, data=data, at=now()))


def add_decision(
    session: Session, bisection_id: str, action: Action, work_id: str | None, *, reason: str = ""
) -> None:
    """Store one choice of the planner with its reason, and announce it."""
    kind = {Build: "build", Run: "run", Finish: "finish"}[type(action)]
    row = DecisionRow(
        bisection_id=bisection_id,
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
        bisection_id,
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


def find_unfinished(session: Session, request_digest: str) -> BisectionRow | None:
    """Return the newest unfinished bisection of this very request."""
    return session.scalars(
        select(BisectionRow)
        .where(
            BisectionRow.request_digest == request_digest,
            BisectionRow.state != BisectionState.FINISHED,
        )
        .order_by(BisectionRow.created_at.desc())
        .limit(1)
    ).first()


def acquire_leases(
    session: Session, owner: str, *, only: Iterable[str] | None = None, limit: int = 64
) -> list[str]:
    """Take over unfinished bisections that nobody conducts; return their ids.

    A bisection is free when it has no lease, when its lease ran out, or when its holder is a
    process of this machine that is gone.
    """
    taken: list[str] = []
    for row in _unheld(session, owner, only):
        if len(taken) == limit:
            break
        if not _take(session, row, owner):
            continue
        if row.state is BisectionState.QUEUED:
            row.state = BisectionState.RUNNING
            row.started_at = row.started_at or now()
            add_event(session, row.id, "started", {})
        taken.append(row.id)
    return taken


def any_unheld(session: Session, owner: str, *, only: Iterable[str] | None = None) -> bool:
    """Return whether ``acquire_leases`` would find something: asked often, without a lock."""
    return bool(_unheld(session, owner, only))


def _unheld(session: Session, owner: str, only: Iterable[str] | None) -> list[BisectionRow]:
    query = (
        select(BisectionRow)
        .where(
            BisectionRow.state != BisectionState.FINISHED,
            or_(BisectionRow.lease_owner.is_(None), BisectionRow.lease_owner != owner),
        )
        .order_by(BisectionRow.created_at)
    )
    if only is not None:
        query = query.where(BisectionRow.id.in_(list(only)))
    return [row for row in session.scalars(query) if _is_free(row)]


def _is_free(row: BisectionRow) -> bool:
    return (
        row.lease_owner is None
        or row.lease_expires_at is None
        or row.lease_expires_at < now()
        or owner_is_dead(row.lease_owner)
    )


def _take(session: Session, row: BisectionRow, owner: str) -> bool:
    """Take the lease only if it is still the one that was read: two conductors may race."""
    before = row.lease_owner
    same = (
        BisectionRow.lease_owner.is_(None) if before is None else BisectionRow.lease_owner == before
    )
    taken = session.execute(
        update(BisectionRow)
        .where(BisectionRow.id == row.id, same)
        .values(lease_owner=owner, lease_expires_at=now() + LEASE)
        .execution_options(synchronize_session="fetch")
    )
    return getattr(taken, "rowcount", 0) == 1


def renew_leases(session: Session, owner: str, held: dict[str, float]) -> set[str]:
    """Extend the leases of bisections that ``owner`` conducts; return those still its own.

    Args:
        held: bisection id -> seconds conducted since the last call.
    """
    kept = set()
    for bisection_id, seconds in held.items():
        renewed = session.execute(
            update(BisectionRow)
            .where(BisectionRow.id == bisection_id, BisectionRow.lease_owner == owner)
            .values(
                lease_expires_at=now() + LEASE,
                active_seconds=BisectionRow.active_seconds + seconds,
            )
        )
        if getattr(renewed, "rowcount", 0):
            kept.add(bisection_id)
    return kept


def release_leases(session: Session, owner: str) -> None:
    """Give up all bisections, so that another process can go on with them at once."""
    session.execute(
        update(BisectionRow)
        .where(BisectionRow.lease_owner == owner, BisectionRow.state != BisectionState.FINISHED)
        .values(lease_owner=None, lease_expires_at=None)
    )


def finish(
    session: Session,
    row: BisectionRow,
    *,
    outcome: Outcome,
    verdict: dict[str, Any],
    error: dict[str, Any] | None,
) -> None:
    """Close a bisection for good."""
    row.state = BisectionState.FINISHED
    row.outcome = outcome
    row.verdict = verdict
    row.error = error
    row.finished_at = now()
    row.lease_owner = None
    row.lease_expires_at = None
    add_event(
        session,
        row.id,
        "finished",
        {"outcome": outcome.value, "reason": verdict.get("reason", "")},
    )
