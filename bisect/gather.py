"""From rows to facts: what the planner is told about one bisection at one moment."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.facts import Costs, Facts, FloatArray, Observation, Policy, Run
from perfbisect.core.recipe import RecipeKind
from perfbisect.core.states import Better, FailureKind, Find, Purpose, WorkState
from perfbisect.store.database import now
from perfbisect.store.tables import (
    BisectionRow,
    BuildRow,
    CandidateRow,
    PointRow,
    RunRow,
    WheelRow,
)
from perfbisect.store.work import ACTIVE

_Fact = TypeVar("_Fact", BuildRow, PointRow)

#: Transient failures in a row of one build or one position's runs before a bisection gives up.
MAX_TRANSIENT = 4
#: Rejected points in a row before a host is called unfit.
MAX_REJECTED = 20
#: Permanent failures of a position's runs before it counts as broken: one crash may be chance.
MAX_CRASHES = 2
#: Guesses of a build's seconds until one was seen.
FIRST_BUILD_SECONDS = {
    RecipeKind.BAZEL: 3600.0,
    RecipeKind.PIP_WHEEL: 60.0,
    RecipeKind.COMMAND: 60.0,
}
#: Guess of a run's seconds until one was seen, as a share of the benchmark's timeout.
FIRST_RUN_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Axis:
    """A bisection's candidates; they never change once submitted."""

    shas: tuple[str, ...]
    trees: tuple[str, ...]
    #: Shape (n,): prior weights of positions 1..n.
    weights: FloatArray
    #: position -> smallest position with the same tree, where that is another one.
    same_as: dict[int, int]

    @property
    def n(self) -> int:
        """Last position."""
        return len(self.shas) - 1

    def representative(self, position: int) -> int:
        """Return the smallest position with the same tree."""
        return self.same_as.get(position, position)


def load_axis(session: Session, bisection_id: str) -> Axis:
    """Read the candidates of a bisection."""
    rows = session.execute(
        select(CandidateRow.sha, CandidateRow.tree, CandidateRow.weight)
        .where(CandidateRow.bisection_id == bisection_id)
        .order_by(CandidateRow.position)
    ).all()
    first: dict[str, int] = {}
    same_as = {}
    for position, row in enumerate(rows):
        representative = first.setdefault(row.tree, position)
        if representative != position:
            same_as[position] = representative
    return Axis(
        shas=tuple(row.sha for row in rows),
        trees=tuple(row.tree for row in rows),
        weights=np.array([row.weight for row in rows[1:]], dtype=np.float64),
        same_as=same_as,
    )


def load_policy(row: BisectionRow) -> Policy:
    """Read what was asked for."""
    stored = dict(row.policy)
    return Policy(**{**stored, "better": Better(stored["better"]), "find": Find(stored["find"])})


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine could start now, and what it has."""

    free_build_slots: int
    free_hosts: tuple[str, ...]
    hosts: tuple[str, ...]
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason to stop that the planner does not judge: mistakes and infrastructure."""

    message: str
    kind: FailureKind
    #: ``recipe`` or ``benchmark``.
    field: str
    lines: tuple[str, ...] = ()
    work_id: str = ""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Facts, and what is needed to act on a plan."""

    facts: Facts
    #: position (representative) -> wheel id.
    wheels: dict[int, str]
    trouble: Trouble | None = None
    #: Failed builds and runs by position: what to say when an end is broken.
    failures: dict[int, Trouble] = field(default_factory=dict)


def gather(
    session: Session,
    row: BisectionRow,
    axis: Axis,
    policy: Policy,
    capacity: Capacity,
    elapsed: float,
) -> Gathered:
    """Read everything that bears on a bisection.

    Args:
        elapsed: wall seconds it has been conducted for.
    """
    builds = _builds(session, row)
    runs = session.scalars(select(RunRow).where(RunRow.bisection_id == row.id)).all()
    points = _points(session, row)
    wheels = _wheels(session, row)
    broken, failures = _broken(axis, builds, runs, points, row.id)
    building = _building(axis, builds, row.id)
    observations = [_observation(axis, row.id, position, point) for position, point in points]
    facts = Facts(
        n=axis.n,
        policy=policy,
        weights=axis.weights,
        wheels=frozenset(wheels),
        broken=frozenset(broken),
        building=frozenset(building - set(wheels) - broken),
        same_as=axis.same_as,
        observations=tuple(item for item in observations if item is not None),
        running=tuple(_running(run) for run in runs if run.state in ACTIVE),
        free_build_slots=capacity.free_build_slots,
        free_hosts=capacity.free_hosts,
        hosts=capacity.hosts,
        exclusive=capacity.exclusive,
        costs=_costs(session, row),
        builds_done=sum(_counts(build, row.id) for _, build in builds),
        runs_done=sum(run.state in (WorkState.SUCCEEDED, WorkState.FAILED) for run in runs),
        elapsed=elapsed,
    )
    trouble = _trouble(builds, runs, points, row.id)
    return Gathered(facts=facts, wheels=wheels, trouble=trouble, failures=failures)


def _builds(session: Session, row: BisectionRow) -> list[tuple[int, BuildRow]]:
    """Return the builds of all trees on the axis, oldest first, with their smallest position."""
    return _first_positions(
        session.execute(
            select(CandidateRow.position, BuildRow)
            .join(BuildRow, BuildRow.tree == CandidateRow.tree)
            .where(CandidateRow.bisection_id == row.id, BuildRow.recipe_digest == row.recipe_digest)
            .order_by(BuildRow.id, CandidateRow.position)
        )
    )


def _points(session: Session, row: BisectionRow) -> list[tuple[int, PointRow]]:
    """Return every point that speaks about a tree on the axis, whoever measured it."""
    return _first_positions(
        session.execute(
            select(CandidateRow.position, PointRow)
            .join(PointRow, PointRow.tree == CandidateRow.tree)
            .where(
                CandidateRow.bisection_id == row.id,
                PointRow.benchmark_digest == row.benchmark_digest,
                PointRow.recipe_digest == row.recipe_digest,
            )
            .order_by(PointRow.id, CandidateRow.position)
        )
    )


def _first_positions(pairs: Iterable[tuple[int, _Fact]]) -> list[tuple[int, _Fact]]:
    """Keep the smallest position of each row: equal trees put one row on several positions."""
    seen: dict[str, tuple[int, _Fact]] = {}
    for position, fact in pairs:
        seen.setdefault(fact.id, (position, fact))
    return list(seen.values())


def _wheels(session: Session, row: BisectionRow) -> dict[int, str]:
    pairs = session.execute(
        select(CandidateRow.position, WheelRow.id)
        .join(WheelRow, WheelRow.tree == CandidateRow.tree)
        .where(CandidateRow.bisection_id == row.id, WheelRow.recipe_digest == row.recipe_digest)
        .order_by(CandidateRow.position)
    )
    first: dict[str, int] = {}
    for position, wheel in pairs:
        first.setdefault(wheel, position)
    return {position: wheel for wheel, position in first.items()}


def _observation(axis: Axis, own: str, position: int, point: PointRow) -> Observation | None:
    if point.rejected:
        return None
    mine = point.bisection_id == own
    pair = None
    if mine and point.pair_before is not None and point.pair_after is not None:
        pair = (point.pair_before, point.pair_after)
    return Observation(
        position=axis.representative(position),
        value=point.value,
        host=point.host,
        at=point.measured_at.timestamp(),
        purpose=point.purpose if mine else Purpose.HISTORY,
        pair=pair,
    )


def _running(run: RunRow) -> Run:
    pair = None
    if run.pair_before is not None and run.pair_after is not None:
        pair = (run.pair_before, run.pair_after)
    return Run(position=run.position, host=run.host, purpose=run.purpose, pair=pair)


def _counts(build: BuildRow, own: str) -> bool:
    """Whether a build was this bisection's own and came to an end."""
    return build.bisection_id == own and build.state in (WorkState.SUCCEEDED, WorkState.FAILED)


def _broken(
    axis: Axis,
    builds: Sequence[tuple[int, BuildRow]],
    runs: Sequence[RunRow],
    points: Sequence[tuple[int, PointRow]],
    own: str,
) -> tuple[set[int], dict[int, Trouble]]:
    """Return the positions that can't be built or run, and why."""
    broken: set[int] = set()
    failures: dict[int, Trouble] = {}
    for position, build in builds:
        if build.failure_kind is FailureKind.PERMANENT:
            broken.add(position)
            failures[position] = _as_trouble(build, "recipe")
    measured: dict[int, int] = defaultdict(int)
    for position, point in points:
        measured[position] += point.bisection_id == own
    crashes: dict[int, list[RunRow]] = defaultdict(list)
    for run in runs:
        if run.failure_kind is FailureKind.PERMANENT:
            crashes[axis.representative(run.position)].append(run)
    for position, failed in crashes.items():
        if len(failed) >= MAX_CRASHES and len(failed) > measured[position]:
            broken.add(position)
            failures[position] = _as_trouble(failed[-1], "benchmark")
    return broken, failures


def _building(axis: Axis, builds: Sequence[tuple[int, BuildRow]], own: str) -> set[int]:
    """Return the positions being built, or waiting to be tried again after a transient failure."""
    building = {position for position, build in builds if build.state in ACTIVE}
    for position, failed in _transient(builds, own).items():
        last = failed[-1].finished_at
        if last is not None and now() < last + retry_delay(len(failed)):
            building.add(position)
    return building


def retry_delay(failures: int) -> timedelta:
    """Return how long to wait after this many transient failures in a row."""
    return timedelta(seconds=min(2.0**failures, 300.0))


def _transient(builds: Sequence[tuple[int, BuildRow]], own: str) -> dict[int, list[BuildRow]]:
    """Return the unbroken run of transient failures at the end of each position's builds."""
    streaks: dict[int, list[BuildRow]] = defaultdict(list)
    for position, build in builds:
        if build.failure_kind is FailureKind.TRANSIENT and build.bisection_id == own:
            streaks[position].append(build)
        elif build.state is WorkState.SUCCEEDED:
            streaks.pop(position, None)
    return streaks


def _trouble(
    builds: Sequence[tuple[int, BuildRow]],
    runs: Sequence[RunRow],
    points: Sequence[tuple[int, PointRow]],
    own: str,
) -> Trouble | None:
    """Return why the bisection must stop, if it must: a mistake, or lasting trouble outside."""
    mistaken: list[tuple[BuildRow | RunRow, str]] = [
        *((build, "recipe") for _, build in builds if build.bisection_id == own),
        *((run, "benchmark") for run in runs),
    ]
    for work, what in mistaken:
        if work.failure_kind is FailureKind.OURS:
            return _as_trouble(work, what)
    for failed in _transient(builds, own).values():
        if len(failed) >= MAX_TRANSIENT:
            return _as_trouble(failed[-1], "recipe")
    finished = sorted((run for run in runs if run.finished_at), key=_finished_at)
    streak = 0
    for run in finished:
        streak = streak + 1 if run.failure_kind is FailureKind.TRANSIENT else 0
        if streak >= MAX_TRANSIENT:
            return _as_trouble(run, "benchmark")
    return _too_many_rejected(points, own)


def _finished_at(run: RunRow) -> datetime:
    assert run.finished_at is not None
    return run.finished_at


def _too_many_rejected(points: Sequence[tuple[int, PointRow]], own: str) -> Trouble | None:
    streak = 0
    for _, point in points:
        if point.bisection_id != own:
            continue
        streak = streak + 1 if point.rejected else 0
        if streak >= MAX_REJECTED:
            return Trouble(
                f"host {point.host} is unfit to measure: {streak} points in a row were rejected, "
                f"the last because {point.rejected}",
                FailureKind.TRANSIENT,
                "host",
            )
    return None


def _as_trouble(work: BuildRow | RunRow, what: str) -> Trouble:
    kind = work.failure_kind or FailureKind.OURS
    message = work.cause + (f" ({work.advice})" if work.advice else "")
    return Trouble(message, kind, what, tuple(work.lines), work.id)


def _costs(session: Session, row: BisectionRow) -> Costs:
    """Return the median seconds of the last builds and runs of this recipe and benchmark."""
    builds = session.scalars(
        select(BuildRow.seconds)
        .where(BuildRow.recipe_digest == row.recipe_digest, BuildRow.state == WorkState.SUCCEEDED)
        .order_by(BuildRow.id.desc())
        .limit(20)
    ).all()
    runs = session.scalars(
        select(RunRow.seconds)
        .where(RunRow.benchmark_digest == row.benchmark_digest, RunRow.state == WorkState.SUCCEEDED)
        .order_by(RunRow.id.desc())
        .limit(20)
    ).all()
    first_build = FIRST_BUILD_SECONDS[RecipeKind(row.recipe["kind"])]
    first_run = FIRST_RUN_SHARE * float(row.benchmark.get("timeout", 900.0))
    return Costs(build_seconds=_median(builds, first_build), run_seconds=_median(runs, first_run))


def _median(seconds: Sequence[float | None], default: float) -> float:
    known = [value for value in seconds if value is not None]
    return max(statistics.median(known), 1e-3) if known else default
