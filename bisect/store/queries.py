"""Reading bisections and their evidence. Nothing here writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select
from sqlalchemy.orm import Session

from perfbisect.core.states import FailureKind, Purpose, WorkState
from perfbisect.errors import NotFoundError
from perfbisect.store.axis_benchmarks import benchmark_at
from perfbisect.store.tables import (
    BisectionRow,
    BuildRow,
    CandidateRow,
    DecisionRow,
    EventRow,
    PointRow,
    RepositoryRow,
    RunRow,
    WheelRow,
)

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")

Item = TypeVar("Item")


def known_id(value: str, thing: str, name: str) -> str:
    """Return an identifier that could exist.

    Raises:
        NotFoundError: it can't, so the database need not be asked.
    """
    if not _ULID.fullmatch(value):
        raise NotFoundError(f"no {thing} {value!r}", field=name, value=value)
    return value


def cut(rows: Sequence[Item], limit: int) -> tuple[list[Item], bool]:
    """Return at most ``limit`` rows, and whether the query found one more."""
    return list(rows[:limit]), len(rows) > limit


@dataclass(frozen=True, slots=True)
class Listing:
    """A bisection with what lists show beside it."""

    row: BisectionRow
    #: None: an axis of published wheels alone.
    repository: RepositoryRow | None
    #: The later end's position; None until the axis is stored.
    last_position: int | None

    @property
    def source(self) -> str:
        """Name of the repository, or of the package."""
        if self.repository is not None:
            return self.repository.name
        return str((self.row.published or {}).get("package", ""))

    @property
    def address(self) -> str:
        """Where the source is: the repository's URL, or the package at its index."""
        if self.repository is not None:
            return self.repository.url
        published = self.row.published or {}
        return f"{published.get('package', '')} at {published.get('index', '')}"


_LAST_POSITION = (
    select(func.max(CandidateRow.position))
    .where(CandidateRow.bisection_id == BisectionRow.id)
    .correlate(BisectionRow)
    .scalar_subquery()
)


def get_bisection(session: Session, bisection_id: str) -> Listing:
    """Return one bisection.

    Raises:
        NotFoundError: there is none with this id.
    """
    query = (
        select(BisectionRow, RepositoryRow, _LAST_POSITION)
        .join(RepositoryRow, RepositoryRow.id == BisectionRow.repository_id, isouter=True)
        .where(BisectionRow.id == known_id(bisection_id, "bisection", "bisection_id"))
    )
    found = session.execute(query).one_or_none()
    if found is None:
        raise NotFoundError(
            f"no bisection {bisection_id!r}", field="bisection_id", value=bisection_id
        )
    return Listing(*found)


class Candidate(NamedTuple):
    """A commit of an axis, as far as charts and tables need it."""

    position: int
    sha: str
    tree: str
    subject: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The candidates of a bisection, by position."""

    candidates: list[Candidate]
    #: Tree -> smallest position: equal trees share wheels and points.
    position_of_tree: dict[str, int] = field(default_factory=dict)


def axis_of(session: Session, bisection_id: str) -> Axis:
    """Return all candidates in order."""
    # Columns rather than rows: an axis may hold thousands, and is read for every page.
    rows = session.execute(
        select(CandidateRow.position, CandidateRow.sha, CandidateRow.tree, CandidateRow.subject)
        .where(CandidateRow.bisection_id == bisection_id)
        .order_by(CandidateRow.position)
    )
    candidates = [Candidate(*row) for row in rows]
    position_of_tree: dict[str, int] = {}
    for candidate in candidates:
        position_of_tree.setdefault(candidate.tree, candidate.position)
    return Axis(candidates, position_of_tree)


def candidate_at(session: Session, bisection_id: str, position: int) -> CandidateRow:
    """Return one commit of an axis.

    Raises:
        NotFoundError: the axis has no such position.
    """
    # Beyond 32 bits PostgreSQL refuses the comparison itself.
    row = session.get(CandidateRow, (bisection_id, position)) if position < 2**31 else None
    if row is None:
        raise NotFoundError(
            f"the axis has no position {position}", field="position", value=position
        )
    return row


def axis_trees(bisection_id: str) -> Select[str]:
    """Return a query for the trees of an axis."""
    return select(CandidateRow.tree).where(CandidateRow.bisection_id == bisection_id)


@dataclass(frozen=True, slots=True)
class PointCounts:
    """How many points a tree has."""

    accepted: int = 0
    rejected: int = 0


def count_axis_points(session: Session, row: BisectionRow) -> dict[str, PointCounts]:
    """Return how many points each tree of an axis has, whoever measured them."""
    query = (
        select(PointRow.tree, func.count())
        .where(speaks_for(row), PointRow.tree.in_(axis_trees(row.id)))
        .group_by(PointRow.tree)
    )
    # Apart, so that both are read from indices alone: there may be many points, and few rejected.
    few = session.execute(query.where(PointRow.rejected != ""))
    rejected = {tree: count for tree, count in few}  # noqa: C416 - rows are no pairs to mypy
    return {
        tree: PointCounts(count - rejected.get(tree, 0), rejected.get(tree, 0))
        for tree, count in session.execute(query)
    }


def axis_values(
    session: Session, row: BisectionRow, trees: Sequence[str] | None, limit: int
) -> Sequence[Row[str, float, str, Purpose, str]]:
    """Return (tree, value, host, purpose, rejected) of an axis' points, without the rest of them.

    Args:
        trees: only of these; None: of the whole axis.
    """
    wanted = PointRow.tree.in_(axis_trees(row.id) if trees is None else trees)
    query = (
        select(PointRow.tree, PointRow.value, PointRow.host, PointRow.purpose, PointRow.rejected)
        .where(speaks_for(row), wanted)
        .order_by(PointRow.id)
        .limit(limit)
    )
    return session.execute(query).all()


def speaks_for(row: BisectionRow) -> ColumnElement[bool]:
    """Return what makes a point one of a bisection's benchmark and recipe, whoever measured it."""
    made = PointRow.recipe_digest == row.recipe_digest
    if row.companions is None:
        return and_(PointRow.benchmark_digest == row.benchmark_digest, made)
    stands = select(CandidateRow.position).where(
        CandidateRow.bisection_id == row.id,
        CandidateRow.tree == PointRow.tree,
        PointRow.benchmark_digest == benchmark_at(row),
    )
    return and_(stands.exists(), made)


def axis_points(
    session: Session,
    row: BisectionRow,
    *,
    after: str | None = None,
    limit: int | None = None,
    tree: str | None = None,
) -> list[PointRow]:
    """Return points that speak for a bisection's axis, whoever measured them, in order of id."""
    query = (
        select(PointRow)
        .where(
            speaks_for(row),
            PointRow.tree.in_(axis_trees(row.id)) if tree is None else PointRow.tree == tree,
        )
        .order_by(PointRow.id)
    )
    if after is not None:
        query = query.where(PointRow.id > after)
    if limit is not None:
        query = query.limit(limit)
    return list(session.scalars(query))


def axis_builds(
    session: Session, row: BisectionRow, *, tree: str | None = None, newest: int | None = None
) -> list[BuildRow]:
    """Return builds of the axis' trees by its recipe, oldest first, whoever asked for them.

    Args:
        newest: only so many, the newest ones.
    """
    query = (
        select(BuildRow)
        .where(
            BuildRow.recipe_digest == row.recipe_digest,
            BuildRow.tree.in_(axis_trees(row.id)) if tree is None else BuildRow.tree == tree,
        )
        .order_by(BuildRow.id if newest is None else BuildRow.id.desc())
        .limit(newest)
    )
    return sorted(session.scalars(query), key=lambda build: build.id)


def runs_of(
    session: Session, bisection_id: str, *, position: int | None = None, newest: int | None = None
) -> list[RunRow]:
    """Return the runs of a bisection, oldest first.

    Args:
        newest: only so many, the newest ones.
    """
    query = (
        select(RunRow)
        .where(RunRow.bisection_id == bisection_id)
        .order_by(RunRow.id if newest is None else RunRow.id.desc())
        .limit(newest)
    )
    if position is not None:
        query = query.where(RunRow.position == position)
    return sorted(session.scalars(query), key=lambda run: run.id)


def count_work(session: Session, row: BisectionRow) -> tuple[int, int]:
    """Return how many builds of an axis and how many runs of its bisection there are."""
    builds = select(func.count()).where(
        BuildRow.recipe_digest == row.recipe_digest, BuildRow.tree.in_(axis_trees(row.id))
    )
    runs = select(func.count()).where(RunRow.bisection_id == row.id)
    return session.scalar(builds) or 0, session.scalar(runs) or 0


def broken_positions(session: Session, row: BisectionRow, axis: Axis) -> list[int]:
    """Return positions that do not build, or whose wheel does not run, for good."""
    mine = and_(BuildRow.recipe_digest == row.recipe_digest, BuildRow.tree.in_(axis_trees(row.id)))
    failed = set(
        session.scalars(
            select(BuildRow.tree).where(mine, BuildRow.failure_kind == FailureKind.PERMANENT)
        )
    )
    built = select(BuildRow.tree).where(
        BuildRow.recipe_digest == row.recipe_digest,
        BuildRow.tree.in_(failed),
        BuildRow.state == WorkState.SUCCEEDED,
    )
    if failed:
        failed -= set(session.scalars(built))
    runs = select(RunRow.position).where(
        RunRow.bisection_id == row.id, RunRow.failure_kind == FailureKind.PERMANENT
    )
    return sorted({axis.position_of_tree[tree] for tree in failed} | set(session.scalars(runs)))


def decisions_of(
    session: Session, bisection_id: str, *, after: int = 0, limit: int = 1000
) -> tuple[list[DecisionRow], bool]:
    """Return decisions with an id above ``after`` in order, and whether there are more."""
    rows = session.scalars(
        select(DecisionRow)
        .where(DecisionRow.bisection_id == bisection_id, DecisionRow.id > after)
        .order_by(DecisionRow.id)
        .limit(limit + 1)
    ).all()
    return cut(rows, limit)


def events_after(
    session: Session, bisection_id: str, after: int, limit: int = 500
) -> list[EventRow]:
    """Return the next events of a bisection in order."""
    return list(
        session.scalars(
            select(EventRow)
            .where(EventRow.bisection_id == bisection_id, EventRow.id > after)
            .order_by(EventRow.id)
            .limit(limit)
        )
    )


def last_event_id(session: Session, bisection_id: str) -> int:
    """Return the id of a bisection's newest event; 0 where there is none."""
    return (
        session.scalar(select(func.max(EventRow.id)).where(EventRow.bisection_id == bisection_id))
        or 0
    )


def get_build(session: Session, build_id: str) -> BuildRow:
    """Return one build.

    Raises:
        NotFoundError: there is none with this id.
    """
    row = session.get(BuildRow, known_id(build_id, "build", "build_id"))
    if row is None:
        raise NotFoundError(f"no build {build_id!r}", field="build_id", value=build_id)
    return row


def get_run(session: Session, run_id: str) -> RunRow:
    """Return one run.

    Raises:
        NotFoundError: there is none with this id.
    """
    row = session.get(RunRow, known_id(run_id, "run", "run_id"))
    if row is None:
        raise NotFoundError(f"no run {run_id!r}", field="run_id", value=run_id)
    return row


def count_reused_wheels(session: Session, row: BisectionRow) -> int:
    """Return how many wheels of an axis somebody else had built."""
    query = (
        select(func.count())
        .select_from(WheelRow)
        .join(BuildRow, BuildRow.id == WheelRow.build_id, isouter=True)
        .where(
            WheelRow.recipe_digest == row.recipe_digest,
            WheelRow.tree.in_(axis_trees(row.id)),
            or_(BuildRow.bisection_id.is_(None), BuildRow.bisection_id != row.id),
        )
    )
    return session.scalar(query) or 0
