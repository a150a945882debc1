"""What the API answers with."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from perfbisect.core.states import (
    BisectionState,
    ChangeKind,
    FailureKind,
    Outcome,
    Purpose,
    WorkState,
)

T = TypeVar("T")

Interval = tuple[float | None, float | None]


class Model(BaseModel):
    """Base of answers: built from rows."""

    model_config = ConfigDict(from_attributes=True)


class Page(Model, Generic[T]):
    """One page of rows; ``next`` goes into ``after`` to get the following one."""

    items: list[T]
    next: str | None = Field(default=None, description="null: this was the last page.")


class End(Model):
    """One end of the axis as measured."""

    model_config = ConfigDict(extra="allow")

    revision: str
    mean: float | None = Field(default=None, description="In the benchmark's unit.")
    ci95: Interval | None = None
    runs: int = 0


class Relation(Model):
    """How a culprit relates to another commit."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(examples=["reverted_by"])
    commit: str


class Culprit(Model):
    """A commit, or a set of commits where some can't be built, behind a step."""

    model_config = ConfigDict(extra="allow")

    commits: list[str]
    subject: str = ""
    kind: ChangeKind
    before: float
    after: float
    change: float = Field(description="Relative: after / before - 1.")
    ci95: Interval
    probability: float
    verified: bool
    relations: list[Relation] = []
    position: int | None = None
    before_position: int | None = None
    confounders: list[str] = Field(
        default=[], description="What else changes with the step: the way of building, in words."
    )


class Explained(Model):
    """How much of the whole change the steps account for, both relative."""

    model_config = ConfigDict(extra="allow")

    total: float | None = None
    steps: float | None = None


_EXAMPLE: dict[str, Any] = {
    "id": "01JZ0Q6W9N3V5C4S7T8R2X1Y0A",
    "state": "finished",
    "outcome": "culprits",
    "good": {"revision": "3e0ad8a004", "mean": 9000.1, "ci95": [8950.0, 9050.0], "runs": 4},
    "bad": {"revision": "3205135ff2", "mean": 2900.4, "ci95": [2850.0, 2950.0], "runs": 4},
    "culprits": [
        {
            "commits": ["19e33b0a3d"],
            "subject": "Disable the fused kernel",
            "kind": "regression",
            "before": 9000.1,
            "after": 2900.4,
            "change": -0.678,
            "ci95": [-0.69, -0.66],
            "probability": 0.998,
            "verified": True,
            "relations": [{"kind": "reverted_by", "commit": "59436c1a7e"}],
        }
    ],
    "explained": {"total": -0.678, "steps": -0.671},
    "builds": 9,
    "runs": 31,
    "points": 31,
    "seconds": 120.5,
}


class Verdict(Model):
    """A bisection and what it found; the same object while it runs and when it is finished."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": _EXAMPLE})

    id: str
    state: BisectionState
    outcome: Outcome | None = Field(description="null until finished.")
    good: End
    bad: End
    culprits: list[Culprit] = []
    explained: Explained | None = None
    builds: int = 0
    runs: int = 0
    points: int = 0
    seconds: float = 0.0
    sentence: str = Field(default="", description="The verdict in words.")
    reason: str = ""
    unit: str = ""
    threshold: float | None = None
    noise: float | None = Field(default=None, description="Of one run, relative.")
    missed: float | None = Field(default=None, description="Expected number of steps not named.")
    confidence: float | None = None
    repository: str = ""
    recipe: str = ""
    benchmark: str = ""
    requested_by: str = ""
    origin: str = ""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    error: dict[str, Any] | None = Field(default=None, description="Problem of a failed one.")


class Summary(Model):
    """A bisection in a list."""

    id: str
    state: BisectionState
    outcome: Outcome | None
    sentence: str
    repository: str
    good: str
    bad: str
    candidates: int | None = Field(description="Commits after the good end; null: not known yet.")
    benchmark: str
    recipe: str
    change: float | None = Field(description="Between the ends, relative.")
    culprits: list[str]
    requested_by: str
    origin: str
    created_at: datetime
    finished_at: datetime | None


class AxisPoint(Model):
    """A point that speaks for an axis, with its place on it."""

    id: str
    position: int
    commit: str
    value: float
    unit: str
    host: str
    purpose: Purpose
    rejected: str = Field(description="Empty, or why the point does not count.")
    measured_at: datetime
    seconds: float
    run_id: str
    bisection_id: str | None = Field(description="The bisection that measured it.")
    experiment_id: str | None = Field(description="Or the experiment.")
    wheel_id: str
    carried: list[str] = Field(
        default=[], description="Changes that its wheel has on top of the commit."
    )


class Point(Model):
    """One measured value with its environment."""

    id: str
    benchmark: str
    benchmark_digest: str
    recipe_digest: str
    commit: str
    tree: str
    value: float
    unit: str
    host: str
    purpose: Purpose
    rejected: str
    measured_at: datetime
    seconds: float
    within: list[Any] = Field(description="Values within the process, warm-up dropped.")
    run_id: str
    bisection_id: str | None
    experiment_id: str | None
    wheel_id: str
    environment: dict[str, Any]


class Decision(Model):
    """One thing the planner chose."""

    id: int
    kind: str = Field(examples=["build"])
    position: int | None
    host: str | None
    purpose: Purpose | None
    reason: str
    work_id: str | None = Field(description="The build or run that carried it out.")
    at: datetime


class BuildView(Model):
    """One attempt to build a tree by a recipe."""

    id: str
    bisection_id: str | None
    experiment_id: str | None
    position: int | None = None
    commit_sha: str
    tree: str
    recipe_digest: str
    state: WorkState
    attempt: int
    failure_kind: FailureKind | None
    cause: str
    advice: str
    lines: list[Any] = Field(description="First telling lines of the log of a failed build.")
    environment: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    progress: dict[str, Any] | None = Field(
        default=None,
        description="While it runs and as far as its log tells: done, total, share, seconds_left.",
    )


class RunView(Model):
    """One process start of a benchmark."""

    id: str
    bisection_id: str | None
    experiment_id: str | None
    position: int = Field(description="On the axis, or among the arms of an experiment.")
    wheel_id: str
    benchmark_digest: str
    host: str
    purpose: Purpose
    state: WorkState
    failure_kind: FailureKind | None
    cause: str
    advice: str
    lines: list[Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None


class RunArtifact(Model):
    """A file that a run left and its benchmark asks to keep."""

    position: int = Field(description="Number of the file in its run.")
    name: str = Field(description="Path relative to where the benchmark ran.")
    size: int = Field(description="Bytes.")
    kept: bool = Field(description="Its content is there; else it was collected.")


class WheelView(Model):
    """A built artifact of (tree, recipe)."""

    id: str
    commit_sha: str
    tree: str
    recipe: str
    recipe_digest: str
    filename: str
    sha256: str
    size: int = Field(description="Bytes.")
    build_id: str | None
    created_at: datetime


class RunningRun(Model):
    """What a host does now."""

    run_id: str
    bisection_id: str | None
    experiment_id: str | None
    started_at: datetime | None


class HostNoise(Model):
    """How much a benchmark's values spread on a host although nothing changed (A/A)."""

    benchmark: str
    scale: float = Field(description="Standard deviation of one run, relative.")
    repeats: int = Field(description="Pairs of values of the same wheel, of the last 30 days.")
    wheels: int
    outliers: float = Field(description="Share of runs further than five scales off.")


class HostHealth(Model):
    """How a host is, by repeats of the same wheels; and whether it may measure."""

    #: 0 to 100; null: too few repeats to tell.
    score: int | None
    #: By how much its values moved, relative, and the standard error of that.
    drift: float | None
    error: float | None
    #: Noise of late over noise before.
    noise: float | None
    #: Share of its latest runs that were rejected.
    rejected: float | None
    #: Late repeats that were compared.
    repeats: int | None
    judged_at: datetime | None
    #: Since when it measures nothing more; null: it does.
    out_since: datetime | None
    out_by: str | None
    #: Why it is out; empty: it is not.
    reason: str


class HostView(Model):
    """A machine that runs benchmarks."""

    name: str
    pool: str
    facts: dict[str, Any]
    last_seen_at: datetime
    points: int
    rejected: int
    running: RunningRun | None
    noise: list[HostNoise] = []
    #: Null: not looked at yet.
    health: HostHealth | None = None


class RepositoryView(Model):
    """A git repository under test."""

    id: str
    name: str
    url: str
    created_at: datetime


class NamedDefinition(Model):
    """A recipe or benchmark: by name where it can be submitted so, by digest where it was used."""

    name: str
    digest: str
    definition: dict[str, Any]
    description: str = ""
    shipped: bool = Field(description="Can be submitted by name to this service.")


class Chart(Model):
    """What the page draws, column by column."""

    unit: str
    better: str
    last: int = Field(description="Position of the later end.")
    finished: bool
    points_left_out: bool = Field(
        description="There are too many: ask for a part of the axis by `from` and `to`."
    )
    #: Columns of equal length.
    points: dict[str, list[Any]]
    levels: dict[str, list[Any]]
    posterior: dict[str, list[Any]]
    hosts: list[str]
    purposes: list[str]
    commits: dict[str, list[Any]]
    unbuildable: list[int]
    threshold: float | None
    steps: list[dict[str, Any]]


class Health(Model):
    """Whether the service is well."""

    status: str = Field(examples=["ok"])
    checks: dict[str, str] = {}
