"""Reading bisections and their evidence. Nothing here writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Select, String, cast, func, or_, select
from sqlalchemy.orm import Session

from perfbisect.core.states import BisectionState, Outcome
from perfbisect.errors import NotFoundError
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
    repository: RepositoryRow
    #: The later end's position; None until the axis is stored.
    last_position: int | None


@dataclass(frozen=True, slots=True)
class BisectionFilter:
    """Which bisections are wanted; empty fields do not filter."""

    state: BisectionState | None = None
    outcome: Outcome | None = None
    #: Name of the repository.
    repository: str | None = None
    #: Words found in ends, benchmark, recipe, requester, repository or verdict.
    q: str | None = None


_LAST_POSITION = (
    select(func.max(CandidateRow.position))
    .where(CandidateRow.bisection_id == BisectionRow.id)
    .correlate(BisectionRow)
    .scalar_subquery()
)


def list_bisections(
    session: Session, wanted: BisectionFilter, *, before: str | None, limit: int
) -> tuple[list[Listing], bool]:
    """Return the newest bisections with an id below ``before``, and whether there are more."""
    query = (
        select(BisectionRow, RepositoryRow, _LAST_POSITION)
        .join(RepositoryRow, RepositoryRow.id == BisectionRow.repository_id)
        .order_by(BisectionRow.id.desc())
        .limit(limit + 1)
    )
    if before is not None:
        query = query.where(BisectionRow.id < before)
    if wanted.state is not None:
        query = query.where(BisectionRow.state == wanted.state)
    if wanted.outcome is not None:
        query = query.where(BisectionRow.outcome == wanted.outcome)
    if wanted.repository:
        query = query.where(RepositoryRow.name == wanted.repository)
    for word in (wanted.q or "").split():
        columns = (
            BisectionRow.id,
            BisectionRow.good_sha,
            BisectionRow.bad_sha,
            BisectionRow.requested_by,
            RepositoryRow.name,
            cast(BisectionRow.request, String),
            cast(BisectionRow.verdict, String),
        )
        query = query.where(or_(*(column.icontains(word, autoescape=True) for column in columns)))
    rows = [Listing(*row) for row in session.execute(query)]
    return cut(rows, limit)


def get_bisection(session: Session, bisection_id: str) -> Listing:
    """Return one bisection.

    Raises:
        NotFoundError: there is none with this id.
    """
    query = (
        select(BisectionRow, RepositoryRow, _LAST_POSITION)
        .join(RepositoryRow, RepositoryRow.id == BisectionRow.repository_id)
        .where(BisectionRow.id == known_id(bisection_id, "bisection", "bisection_id"))
    )
    found = session.execute(query).one_or_none()
    if found is None:
        raise NotFoundError(
            f"no bisection {bisection_id!r}", field="bisection_id", value=bisection_id
        )
    return Listing(*found)


@dataclass(frozen=True, slots=True)
class Axis:
    """The candidates of a bisection, by position."""

    candidates: list[CandidateRow]
    #: Tree -> smallest position: equal trees share wheels and points.
    position_of_tree: dict[str, int] = field(default_factory=dict)


def axis_of(session: Session, bisection_id: str) -> Axis:
    """Return all candidates in order."""
    rows = session.scalars(
        select(CandidateRow)
        .where(CandidateRow.bisection_id == bisection_id)
        .order_by(CandidateRow.position)
    ).all()
    position_of_tree: dict[str, int] = {}
    for row in rows:
        position_of_tree.setdefault(row.tree, row.position)
    return Axis(list(rows), position_of_tree)


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


def _trees(bisection_id: str) -> Select[str]:
    return select(CandidateRow.tree).where(CandidateRow.bisection_id == bisection_id)


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
            PointRow.benchmark_digest == row.benchmark_digest,
            PointRow.recipe_digest == row.recipe_digest,
            PointRow.tree.in_(_trees(row.id)) if tree is None else PointRow.tree == tree,
        )
        .order_by(PointRow.id)
    )
    if after is not None:
        query = query.where(PointRow.id > after)
    if limit is not None:
        query = query.limit(limit)
    return list(session.scalars(query))


def axis_builds(session: Session, row: BisectionRow, *, tree: str | None = None) -> list[BuildRow]:
    """Return builds of the axis' trees by its recipe, oldest first, whoever asked for them."""
    query = (
        select(BuildRow)
        .where(
            BuildRow.recipe_digest == row.recipe_digest,
            BuildRow.tree.in_(_trees(row.id)) if tree is None else BuildRow.tree == tree,
        )
        .order_by(BuildRow.id)
    )
    return list(session.scalars(query))


def runs_of(session: Session, bisection_id: str, *, position: int | None = None) -> list[RunRow]:
    """Return the runs of a bisection, oldest first."""
    query = select(RunRow).where(RunRow.bisection_id == bisection_id).order_by(RunRow.id)
    if position is not None:
        query = query.where(RunRow.position == position)
    return list(session.scalars(query))


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


def is_finished(session: Session, bisection_id: str) -> bool:
    """Return whether a bisection has its final verdict (or does not exist any more)."""
    state = session.scalar(select(BisectionRow.state).where(BisectionRow.id == bisection_id))
    return state is None or state == BisectionState.FINISHED


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


def wheels_of_axis(session: Session, row: BisectionRow) -> list[WheelRow]:
    """Return the wheels that stand on a bisection's axis."""
    query = select(WheelRow).where(
        WheelRow.recipe_digest == row.recipe_digest, WheelRow.tree.in_(_trees(row.id))
    )
    return list(session.scalars(query))
