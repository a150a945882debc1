"""The files that runs left: writing and finding their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from perfbisect.errors import NotFoundError
from perfbisect.store.artifact_tables import RunArtifactRow


def add_artifacts(session: Session, run_id: str, artifacts: Sequence[Mapping[str, Any]]) -> None:
    """Store what a run left.

    Args:
        artifacts: ``name``, ``artifact`` (key in the store) and ``size`` of each, in their order.
    """
    for position, columns in enumerate(artifacts):
        session.add(RunArtifactRow(run_id=run_id, position=position, **columns))


def artifacts_of(session: Session, run_id: str) -> list[RunArtifactRow]:
    """Return what a run left, in order."""
    query = select(RunArtifactRow).where(RunArtifactRow.run_id == run_id)
    return list(session.scalars(query.order_by(RunArtifactRow.position)))


def forget_content(session: Session, key: str) -> None:
    """Say of all files with a content that it is no longer kept."""
    gone = update(RunArtifactRow).where(RunArtifactRow.artifact == key)
    session.execute(gone.values(artifact=""))


def get_artifact(session: Session, run_id: str, position: int) -> RunArtifactRow:
    """Return one file of a run.

    Raises:
        NotFoundError: it left none of this number, or it is no longer kept.
    """
    row = session.get(RunArtifactRow, (run_id, position))
    if row is None:
        message = f"run {run_id} left no file {position}"
        raise NotFoundError(message, field="position", value=position)
    if not row.artifact:
        message = f"'{row.name}' of run {run_id} is no longer kept: it was collected"
        raise NotFoundError(message, field="position", value=position)
    return row
