"""What the conductor needs to know of a bisection or an experiment, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy.orm import Session

from perfbisect.core.facts import Action, Finish
from perfbisect.gather import Capacity
from perfbisect.store.jobs import JobRef
from perfbisect.worklog import Trouble


@dataclass(slots=True)
class Look:
    """A job at one moment, as read from the database."""

    #: Facts for the planner of this kind of job.
    facts: Any
    #: position -> id of the wheel that is there.
    wheels: Mapping[int, str]
    #: A reason to stop that no planner judges.
    trouble: Trouble | None = None
    #: Why positions can't be built or run.
    failures: Mapping[int, Trouble] = field(default_factory=dict)
    #: What the points say, once the job has decided.
    belief: Any = None
    #: Deciding changed the facts (an arm was added): they are to be looked at again at once.
    outdated: bool = False


class Job(Protocol):
    """One bisection or experiment under a conductor. It keeps nothing that can change."""

    ref: JobRef

    def look(self, session: Session, capacity: Capacity, elapsed: float) -> Look:
        """Read the facts.

        Args:
            elapsed: wall seconds it has been conducted for.
        """
        ...

    def decide(self, look: Look) -> Sequence[Action]:
        """Ask the planner; leave what the points say in ``look.belief``."""
        ...

    def representative(self, position: int) -> int:
        """Return the position whose wheel serves this one."""
        ...

    def source_of(self, position: int) -> tuple[str, str]:
        """Return the tree to build and the commit that it is, or is based on."""
        ...

    def benchmark_of(self, position: int) -> str:
        """Return the digest of the benchmark that runs on a position's wheel."""
        ...

    def progress(self, session: Session, look: Look) -> dict[str, Any]:
        """Store what the points say now; return the summary for the event."""
        ...

    def prepare_end(self, look: Look, action: Finish) -> Any:
        """Do what an end needs and takes long (git), before it is stored in one transaction."""
        ...

    def end(self, session: Session, look: Look, action: Finish, prepared: Any) -> dict[str, Any]:
        """Store the last belief and whatever follows from the end; return the verdict."""
        ...
