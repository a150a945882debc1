"""What the desk needs of those who submit: bisections and experiments of alerts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sqlalchemy import select

from perfbisect.errors import ConflictError
from perfbisect.request_models import BisectionRequest, ExperimentRequest
from perfbisect.services import Services
from perfbisect.store.tables import BisectionRow, ExperimentRow


class Submitter(Protocol):
    """Submits for alerts. The same key gives the same bisection or experiment."""

    def bisection(self, request: BisectionRequest, key: str, priority: int) -> str:
        """Submit; return the id.

        Raises:
            BadInputError: the request can't be right.
            TransientError: the repository or the package index can't be reached.
        """
        ...

    def experiment(self, request: ExperimentRequest, key: str, priority: int) -> str:
        """Submit; return the id. Raises as ``bisection``."""
        ...


def known_by_key(
    services: Services, table: type[BisectionRow] | type[ExperimentRow], key: str
) -> str | None:
    """Return what was submitted under a key already."""
    with services.database.read() as session:
        found: str | None = session.scalar(select(table.id).where(table.idempotency_key == key))
        return found


def submitted(
    services: Services,
    table: type[BisectionRow] | type[ExperimentRow],
    key: str,
    submit: Callable[[], str],
) -> str:
    """Return what was submitted under this key, by whoever was first, else submit it.

    A process that was killed right after it submitted finds its own; settings that changed since
    then do not matter.
    """
    known = known_by_key(services, table, key)
    if known is not None:
        return known
    try:
        return submit()
    except ConflictError:
        known = known_by_key(services, table, key)
        if known is None:
            raise
        return known
