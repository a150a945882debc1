"""States and kinds of rows, actions and verdicts. Each machine is drawn in docs/states.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class BisectionState(StrEnum):
    """Life of a bisection."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a finished bisection ended."""

    CULPRITS = "culprits"
    #: Experiments: every arm was compared.
    ANSWERED = "answered"
    NOT_REPRODUCED = "not_reproduced"
    INCONCLUSIVE = "inconclusive"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"
    FAILED = "failed"


class WorkState(StrEnum):
    """Life of one build or one run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class FailureKind(StrEnum):
    """Who is to blame for a failed build or run, which decides what happens next."""

    #: Infrastructure: network, disk, a lost host. Repeated, elsewhere if possible.
    TRANSIENT = "transient"
    #: This revision does not build or does not run. Skipped for good.
    PERMANENT = "permanent"
    #: A mistake of the request or of the service. Stops the bisection and says so.
    OURS = "ours"


class Purpose(StrEnum):
    """Why a point was measured."""

    ANCHOR = "anchor"
    SEARCH = "search"
    VERIFY = "verify"
    EXPERIMENT = "experiment"
    HISTORY = "history"


class Find(StrEnum):
    """Which steps a bisection is asked to name."""

    #: The first crossing of the threshold.
    FIRST = "first"
    #: Every step of at least the minimum effect, recoveries included.
    ALL = "all"
    #: The step that made it good again; the good end is the later one.
    FIX = "fix"


class ExperimentKind(StrEnum):
    """What an experiment is for."""

    #: Arms as requested, each against the reference.
    TRY = "try"
    #: A culprit's proof: revert it on the bad end, pick it onto the good end.
    PROVE = "prove"
    #: The good end with the companions of the bad end: do they explain the change alone?
    COMPANION = "companion"
    #: The smallest set of commits whose revert restores the value.
    MINIMISE_REVERTS = "minimise_reverts"


class Better(StrEnum):
    """Direction of a benchmark's metric."""

    HIGHER = "higher"
    LOWER = "lower"


class ChangeKind(StrEnum):
    """Whether a step made the metric worse or better."""

    REGRESSION = "regression"
    RECOVERY = "recovery"


BISECTION_TRANSITIONS: Mapping[BisectionState, frozenset[BisectionState]] = {
    BisectionState.QUEUED: frozenset({BisectionState.RUNNING, BisectionState.FINISHED}),
    # Back to QUEUED when the process that conducted it was lost.
    BisectionState.RUNNING: frozenset({BisectionState.QUEUED, BisectionState.FINISHED}),
    BisectionState.FINISHED: frozenset(),
}

WORK_TRANSITIONS: Mapping[WorkState, frozenset[WorkState]] = {
    WorkState.QUEUED: frozenset({WorkState.RUNNING, WorkState.CANCELLED, WorkState.LOST}),
    WorkState.RUNNING: frozenset(
        {WorkState.SUCCEEDED, WorkState.FAILED, WorkState.CANCELLED, WorkState.LOST}
    ),
    WorkState.SUCCEEDED: frozenset(),
    WorkState.FAILED: frozenset(),
    WorkState.CANCELLED: frozenset(),
    WorkState.LOST: frozenset(),
}
