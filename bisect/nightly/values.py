"""What crosses from the series to alerts, pages and the API: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from perfbisect.core.series_states import ChangeState
from perfbisect.core.states import Better, ChangeKind


@dataclass(frozen=True, slots=True)
class Night:
    """One end of a change: a night and what was measured in it."""

    night: date
    #: Version of the wheel; empty: not told.
    version: str
    #: Repository -> commit.
    commits: Mapping[str, str]
    host: str
    #: Median of the runs, in the series' unit.
    value: float


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a series: mean and 95% interval, in its unit."""

    mean: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a series, with all that an alert and a bisection of it need."""

    id: str
    series: str
    state: ChangeState
    kind: ChangeKind
    #: Name of the benchmark; empty: known to the sender alone, so there is nothing to bisect with.
    benchmark: str
    unit: str
    better: Better
    #: What the nights were made of; any of them may be missing.
    repository: str | None
    package: str | None
    recipe: str | None
    pool: str
    #: The change lies after ``good`` and not after ``bad`` (for a recovery the words are of time:
    #: ``good`` is the earlier night).
    good: Night
    bad: Night
    before: Level
    after: Level
    #: Relative change and its 95% interval.
    change: float
    ci95: tuple[float, float]
    probability: float
    #: ``measured`` (interleaved re-measurement), ``nights`` (further nights), or empty.
    confirmed_by: str
    #: Id of the experiment that measures, or measured, its nights again; None: nights decide.
    experiment: str | None
    #: Recovery: id of the change that it takes back, and what is left (``-0.06``: 6% below).
    recovers: str | None
    remaining: float | None
    #: One sentence for people.
    reason: str
    suspected_night: date
    created_at: datetime
    confirmed_at: datetime | None
    closed_at: datetime | None
