"""Reading what is carried along an axis."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.store.tables import ArmRow, CandidateRow


def carried_at(session: Session, bisection_id: str, tree: str) -> list[str]:
    """Return the changes that a tree of an axis has on top of its commit; empty: none."""
    found = session.scalars(
        select(CandidateRow.carried)
        .where(CandidateRow.bisection_id == bisection_id, CandidateRow.tree == tree)
        .order_by(CandidateRow.position)
        .limit(1)
    ).first()
    return [str(change) for change in found or ()]


def carried_in_experiment(session: Session, experiment_id: str, tree: str) -> list[str]:
    """Return the changes that are carried along in an arm's tree; empty: none."""
    roles = session.scalars(
        select(ArmRow.role)
        .where(ArmRow.experiment_id == experiment_id, ArmRow.tree == tree)
        .order_by(ArmRow.position)
    )
    found = next((role["carried"] for role in roles if "carried" in role), ())
    return [str(change) for change in found]


def carried_along(session: Session, bisection_id: str) -> dict[int, list[str]]:
    """Return position -> changes, of those positions that carry some."""
    rows = session.execute(
        select(CandidateRow.position, CandidateRow.carried)
        .where(CandidateRow.bisection_id == bisection_id, CandidateRow.carried.is_not(None))
        .order_by(CandidateRow.position)
    )
    return {position: [str(change) for change in carried] for position, carried in rows if carried}
