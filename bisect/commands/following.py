"""Following what happens to experiments: those that were asked for, and the proofs of culprits."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select

from perfbisect.progress import experiment_line
from perfbisect.services import Services
from perfbisect.store.tables import ArmRow, EventRow, ExperimentRow


class EventLines:
    """Says what happens to an experiment, a line each."""

    def __init__(
        self, services: Services, experiment_id: str, say: Callable[[str], None], prefix: str = ""
    ) -> None:
        self._services = services
        self._id = experiment_id
        self._say = say
        self._prefix = prefix
        self._last = 0

    def say_new(self) -> None:
        """Say the events since the last call."""
        with self._services.database.read() as session:
            events = session.scalars(
                select(EventRow)
                .where(EventRow.experiment_id == self._id, EventRow.id > self._last)
                .order_by(EventRow.id)
            ).all()
            names = session.scalars(
                select(ArmRow.name)
                .where(ArmRow.experiment_id == self._id)
                .order_by(ArmRow.position)
            ).all()
        for event in events:
            self._last = event.id
            line = experiment_line(event.kind, event.data, names)
            if line:
                self._say(f"{self._prefix}{line}")


class ProofLines:
    """Says what happens to the proofs of a bisection's culprits."""

    def __init__(self, services: Services, bisection_id: str, say: Callable[[str], None]) -> None:
        self._services = services
        self._bisection_id = bisection_id
        self._say = say
        self._proofs: dict[str, EventLines] = {}

    def say_new(self) -> None:
        """Say the events since the last call."""
        with self._services.database.read() as session:
            ids = session.scalars(
                select(ExperimentRow.id).where(ExperimentRow.bisection_id == self._bisection_id)
            ).all()
        for each in ids:
            if each not in self._proofs:
                self._proofs[each] = EventLines(self._services, each, self._say, "proof: ")
            self._proofs[each].say_new()
