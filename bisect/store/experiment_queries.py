"""Reading experiments for the API and the pages."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.states import BisectionState
from perfbisect.errors import NotFoundError
from perfbisect.store.queries import cut
from perfbisect.store.tables import ArmRow, DecisionRow, ExperimentRow, RepositoryRow, RunRow


def get_experiment(session: Session, experiment_id: str) -> ExperimentRow:
    """Return one experiment.

    Raises:
        NotFoundError: there is none with this id.
    """
    row = session.get(ExperimentRow, experiment_id)
    if row is None:
        raise NotFoundError(
            f"no experiment {experiment_id!r}", field="experiment_id", value=experiment_id
        )
    return row


def list_experiments(
    session: Session,
    *,
    bisection_id: str | None = None,
    state: BisectionState | None = None,
    before: str | None,
    limit: int,
) -> tuple[list[ExperimentRow], bool]:
    """Return the newest experiments with an id below ``before``, and whether there are more."""
    query = select(ExperimentRow).order_by(ExperimentRow.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(ExperimentRow.id < before)
    if bisection_id is not None:
        query = query.where(ExperimentRow.bisection_id == bisection_id)
    if state is not None:
        query = query.where(ExperimentRow.state == state)
    return cut(session.scalars(query).all(), limit)


def answer_of(session: Session, row: ExperimentRow) -> dict[str, Any]:
    """Return an experiment's answer as JSON; before the first one, its arms."""
    answer = dict(row.verdict or {})
    answer.setdefault("arms", [_waiting_arm(arm) for arm in _arms(session, row.id)])
    for key in ("builds", "runs", "points"):
        answer.setdefault(key, 0)
    repository = session.get(RepositoryRow, row.repository_id) if row.repository_id else None
    answer |= {
        "id": row.id,
        "kind": row.kind,
        "bisection": row.bisection_id,
        "state": row.state,
        "outcome": row.outcome,
        "repository": repository.name if repository else "",
        "recipe": row.recipe.get("name", ""),
        "benchmark": row.benchmark.get("name", ""),
        "unit": row.benchmark["unit"],
        "requested_by": row.requested_by,
        "origin": row.origin,
        "created_at": row.created_at.isoformat(),
        "finished_at": row.finished_at.isoformat() if row.finished_at else None,
        "error": row.error,
    }
    answer.setdefault("sentence", "Waiting to start.")
    return answer


def _arms(session: Session, experiment_id: str) -> list[ArmRow]:
    query = select(ArmRow).where(ArmRow.experiment_id == experiment_id).order_by(ArmRow.position)
    return list(session.scalars(query))


def _waiting_arm(arm: ArmRow) -> dict[str, Any]:
    return {
        "position": arm.position,
        "name": arm.name,
        "against": arm.against,
        "revision": arm.revision,
        "tree": arm.tree,
        "env": arm.env,
        "role": arm.role,
        "problem": arm.problem,
        "runs": 0,
    }


def decisions_of(session: Session, experiment_id: str) -> list[DecisionRow]:
    """Return the decisions of an experiment in their order."""
    query = select(DecisionRow).where(DecisionRow.experiment_id == experiment_id)
    return list(session.scalars(query.order_by(DecisionRow.id)))


def runs_of(session: Session, experiment_id: str) -> list[RunRow]:
    """Return the runs of an experiment in their order."""
    query = select(RunRow).where(RunRow.experiment_id == experiment_id).order_by(RunRow.id)
    return list(session.scalars(query))
