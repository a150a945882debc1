"""What is conducted: bisections and experiments, by one reference for both."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from perfbisect.store.tables import BisectionRow, ExperimentRow

#: Everything that takes a lease.
CONDUCTED: tuple[type[BisectionRow] | type[ExperimentRow], ...] = (BisectionRow, ExperimentRow)


@dataclass(frozen=True, slots=True)
class JobRef:
    """Names a bisection or an experiment."""

    table: type[BisectionRow] | type[ExperimentRow]
    id: str

    @property
    def bisection_id(self) -> str | None:
        """Id, if it is a bisection."""
        return self.id if self.table is BisectionRow else None

    @property
    def experiment_id(self) -> str | None:
        """Id, if it is an experiment."""
        return self.id if self.table is ExperimentRow else None

    @property
    def columns(self) -> dict[str, str | None]:
        """Values of the two columns by which rows refer to it."""
        return {"bisection_id": self.bisection_id, "experiment_id": self.experiment_id}


def load_row(session: Session, ref: JobRef) -> BisectionRow | ExperimentRow:
    """Return the row of a bisection or experiment."""
    if ref.table is BisectionRow:
        return session.get_one(BisectionRow, ref.id)
    return session.get_one(ExperimentRow, ref.id)


def bisection(bisection_id: str) -> JobRef:
    """Return the reference of a bisection."""
    return JobRef(BisectionRow, bisection_id)


def experiment(experiment_id: str) -> JobRef:
    """Return the reference of an experiment."""
    return JobRef(ExperimentRow, experiment_id)


def asked_by(row: object) -> JobRef | None:
    """Return who asked for a build, run, point, decision or event."""
    bisection_id = getattr(row, "bisection_id", None)
    if bisection_id is not None:
        return bisection(bisection_id)
    experiment_id = getattr(row, "experiment_id", None)
    return None if experiment_id is None else experiment(experiment_id)
