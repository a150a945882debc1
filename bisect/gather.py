"""From rows to facts: what the planner is told about one bisection at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.facts import Facts, FloatArray, Observation, Policy, Run
from perfbisect.core.states import Better, Find, Purpose, WorkState
from perfbisect.store.axis_benchmarks import benchmark_at
from perfbisect.store.jobs import JobRef, bisection
from perfbisect.store.tables import (
    BisectionRow,
    BuildRow,
    CandidateRow,
    PointRow,
    RunRow,
    WheelRow,
)
from perfbisect.store.work import ACTIVE
from perfbisect.worklog import (
    Trouble,
    broken_positions,
    build_ages,
    costs,
    counts,
    find_trouble,
    is_own,
    under_construction,
)

_Fact = TypeVar("_Fact", BuildRow, PointRow)


@dataclass(frozen=True, slots=True)
class Axis:
    """A bisection's candidates; they never change once submitted."""

    shas: tuple[str, ...]
    trees: tuple[str, ...]
    #: Shape (n,): prior weights of positions 1..n.
    weights: FloatArray
    #: position -> smallest position with the same tree and benchmark, where that is another one.
    same_as: dict[int, int]
    #: By position: its own benchmark's digest; None: the bisection's. Empty: the same everywhere.
    benchmarks: tuple[str | None, ...] = ()

    @property
    def n(self) -> int:
        """Last position."""
        return len(self.shas) - 1

    def representative(self, position: int) -> int:
        """Return the smallest position with the same tree and benchmark."""
        return self.same_as.get(position, position)

    def benchmark(self, position: int) -> str | None:
        """Return the digest of a position's own benchmark; None: it has the bisection's."""
        return self.benchmarks[position] if self.benchmarks else None


def load_axis(session: Session, bisection_id: str) -> Axis:
    """Read the candidates of a bisection."""
    rows = session.execute(
        select(
            CandidateRow.sha, CandidateRow.tree, CandidateRow.weight, CandidateRow.benchmark_digest
        )
        .where(CandidateRow.bisection_id == bisection_id)
        .order_by(CandidateRow.position)
    ).all()
    first: dict[tuple[str, str | None], int] = {}
    same_as = {}
    for position, row in enumerate(rows):
        representative = first.setdefault((row.tree, row.benchmark_digest), position)
        if representative != position:
            same_as[position] = representative
    return Axis(
        shas=tuple(row.sha for row in rows),
        trees=tuple(row.tree for row in rows),
        weights=np.array([row.weight for row in rows[1:]], dtype=np.float64),
        same_as=same_as,
        benchmarks=tuple(row.benchmark_digest for row in rows),
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
    own = bisection(row.id)
    builds = _builds(session, row, axis)
    runs = session.scalars(select(RunRow).where(RunRow.bisection_id == row.id)).all()
    points = _points(session, row, axis)
    wheels = _wheels(session, row, axis)
    broken, failures = broken_positions(axis.representative, builds, runs, points, own)
    building = under_construction(builds, own)
    observations = [_observation(axis, own, position, point) for position, point in points]
    facts = Facts(
        n=axis.n,
        policy=policy,
        weights=axis.weights,
        wheels=frozenset(wheels),
        broken=frozenset(broken),
        building=frozenset(building - set(wheels) - broken),
        build_ages=build_ages(builds),
        same_as=axis.same_as,
        observations=tuple(item for item in observations if item is not None),
        running=tuple(running_action(run) for run in runs if run.state in ACTIVE),
        free_build_slots=capacity.free_build_slots,
        free_hosts=capacity.free_hosts,
        hosts=capacity.hosts,
        exclusive=capacity.exclusive,
        costs=costs(session, row),
        builds_done=len({build.id for _, build in builds if counts(build, own)}),
        runs_done=sum(run.state in (WorkState.SUCCEEDED, WorkState.FAILED) for run in runs),
        elapsed=elapsed,
    )
    trouble = find_trouble(builds, runs, points, own)
    return Gathered(facts=facts, wheels=wheels, trouble=trouble, failures=failures)


def _builds(session: Session, row: BisectionRow, axis: Axis) -> list[tuple[int, BuildRow]]:
    """Return the builds of all trees on the axis, oldest first, with the positions they serve."""
    return _first_positions(
        axis,
        session.execute(
            select(CandidateRow.position, BuildRow)
            .join(BuildRow, BuildRow.tree == CandidateRow.tree)
            .where(CandidateRow.bisection_id == row.id, BuildRow.recipe_digest == row.recipe_digest)
            .order_by(BuildRow.id, CandidateRow.position)
        ),
    )


def _points(session: Session, row: BisectionRow, axis: Axis) -> list[tuple[int, PointRow]]:
    """Return every point that speaks about a tree on the axis, whoever measured it."""
    return _first_positions(
        axis,
        session.execute(
            select(CandidateRow.position, PointRow)
            .join(PointRow, PointRow.tree == CandidateRow.tree)
            .where(
                CandidateRow.bisection_id == row.id,
                PointRow.benchmark_digest == benchmark_at(row),
                PointRow.recipe_digest == row.recipe_digest,
            )
            .order_by(PointRow.id, CandidateRow.position)
        ),
    )


def _first_positions(axis: Axis, pairs: Iterable[tuple[int, _Fact]]) -> list[tuple[int, _Fact]]:
    """Keep one position of those that stand for each other: equal trees share their rows."""
    seen: dict[tuple[int, str], tuple[int, _Fact]] = {}
    for position, fact in pairs:
        representative = axis.representative(position)
        seen.setdefault((representative, fact.id), (representative, fact))
    return list(seen.values())


def _wheels(session: Session, row: BisectionRow, axis: Axis) -> dict[int, str]:
    pairs = session.execute(
        select(CandidateRow.position, WheelRow.id)
        .join(WheelRow, WheelRow.tree == CandidateRow.tree)
        .where(CandidateRow.bisection_id == row.id, WheelRow.recipe_digest == row.recipe_digest)
        .order_by(CandidateRow.position)
    )
    found: dict[int, str] = {}
    for position, wheel in pairs:
        found.setdefault(axis.representative(position), wheel)
    return found


def _observation(axis: Axis, own: JobRef, position: int, point: PointRow) -> Observation | None:
    if point.rejected:
        return None
    mine = is_own(point, own)
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


def running_action(run: RunRow) -> Run:
    """Return a run under way as the planner knows it."""
    pair = None
    if run.pair_before is not None and run.pair_after is not None:
        pair = (run.pair_before, run.pair_after)
    return Run(position=run.position, host=run.host, purpose=run.purpose, pair=pair)
