"""The kinds of jobs that a conductor knows."""

from __future__ import annotations

from collections.abc import Callable

from perfbisect.bisection_job import BisectionJob
from perfbisect.experiment_job import ExperimentJob
from perfbisect.jobs import Job
from perfbisect.services import Services
from perfbisect.store.jobs import JobRef
from perfbisect.store.tables import BisectionRow, ExperimentRow

_KINDS: dict[type[BisectionRow] | type[ExperimentRow], Callable[[Services, str], Job]] = {
    BisectionRow: BisectionJob,
    ExperimentRow: ExperimentJob,
}


def load_job(services: Services, ref: JobRef) -> Job:
    """Return a job that is in the database."""
    return _KINDS[ref.table](services, ref.id)
