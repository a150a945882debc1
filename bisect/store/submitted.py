"""What was submitted before: by its key, and by what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.states import BisectionState
from perfbisect.errors import ConflictError
from perfbisect.store.tables import BisectionRow, ExperimentRow

_Job = TypeVar("_Job", BisectionRow, ExperimentRow)


def find_by_key(
    session: Session, table: type[_Job], key: str | None, request: Mapping[str, Any]
) -> _Job | None:
    """Return what was submitted with an idempotency key; None if nothing was, or there is no key.

    Args:
        request: as JSON.

    Raises:
        ConflictError: the key was used for another request.
    """
    if key is None:
        return None
    row = session.scalar(select(table).where(table.idempotency_key == key))
    if row is not None and row.request != request:
        raise ConflictError(
            "this Idempotency-Key was used for another request; send a new key",
            field="Idempotency-Key",
            value=key,
        )
    return row


def find_unfinished(session: Session, table: type[_Job], request_digest: str) -> _Job | None:
    """Return the newest unfinished one that asks the same."""
    return session.scalars(
        select(table)
        .where(table.request_digest == request_digest, table.state != BisectionState.FINISHED)
        .order_by(table.created_at.desc())
    ).first()
