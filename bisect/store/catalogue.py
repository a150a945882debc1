"""Reading what is known beside bisections: points of all times, wheels, hosts, names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, union_all
from sqlalchemy.orm import InstrumentedAttribute, Session

from perfbisect.core.states import WorkState
from perfbisect.store.database import Database
from perfbisect.store.queries import cut
from perfbisect.store.tables import (
    BenchmarkRow,
    BisectionRow,
    BuildRow,
    ExperimentRow,
    HostRow,
    PointRow,
    RecipeRow,
    RepositoryRow,
    RunRow,
    WheelRow,
)

#: The beginning of a commit's name.
_PART_OF_NAME = re.compile(r"[0-9a-f]+")
#: Rows fetched at a time while a table is exported.
EXPORT_BATCH = 1000


@dataclass(frozen=True, slots=True)
class PointFilter:
    """Which points are wanted; empty fields do not filter."""

    #: Name or digest.
    benchmark: str | None = None
    host: str | None = None
    #: Commit, or the beginning of its name.
    commit: str | None = None
    bisection: str | None = None
    rejected: bool | None = None
    since: datetime | None = None
    until: datetime | None = None


def _conditions(wanted: PointFilter) -> list[ColumnElement[bool]]:
    """Return what points must fulfil, besides being of a benchmark."""
    found: list[ColumnElement[bool]] = []
    if wanted.host:
        found.append(PointRow.host == wanted.host)
    if wanted.commit:
        found.append(begins_with(PointRow.commit_sha, wanted.commit))
    if wanted.bisection:
        found.append(PointRow.bisection_id == wanted.bisection)
    if wanted.rejected is not None:
        found.append(PointRow.rejected != "" if wanted.rejected else PointRow.rejected == "")
    if wanted.since is not None:
        found.append(PointRow.measured_at >= wanted.since)
    if wanted.until is not None:
        found.append(PointRow.measured_at < wanted.until)
    return found


def begins_with(column: InstrumentedAttribute[str], start: str) -> ColumnElement[bool]:
    """Return the condition that a commit's name, or a version, begins so.

    A pattern alone finds no index: where it is part of a commit's name, neither database knows
    that its bounds, which are added here, are bounds.
    """
    pattern = column.startswith(start, autoescape=True)
    if not _PART_OF_NAME.fullmatch(start):
        return pattern
    # Behind every letter and digit, by any collation.
    return and_(pattern, column >= start, column <= f"{start}zz")


def _newest(wanted: PointFilter, digests: Sequence[str], before: str | None, limit: int) -> Any:
    """Return the query of the ids of the newest points, of any benchmark or of some."""
    conditions = _conditions(wanted)
    if before is not None:
        conditions.append(PointRow.id < before)
    query = select(PointRow.id).where(*conditions).order_by(PointRow.id.desc()).limit(limit)
    if not wanted.benchmark:
        return query
    # One by one: an index has the points of each benchmark in their order, not those of several.
    each = [query.where(PointRow.benchmark_digest == digest).subquery() for digest in digests]
    return union_all(*(select(one.c.id) for one in each))


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """A point and the name of its benchmark."""

    row: PointRow
    benchmark: str


def list_points(
    session: Session, wanted: PointFilter, *, before: str | None, limit: int
) -> tuple[list[NamedPoint], bool]:
    """Return the newest points with an id below ``before``, and whether there are more."""
    digests = _digests(session, wanted.benchmark) if wanted.benchmark else []
    if wanted.benchmark and not digests:
        return [], False
    ids = session.scalars(_newest(wanted, digests, before, limit + 1)).all()
    ids = sorted(ids, reverse=True)[: limit + 1]
    query = (
        select(PointRow, func.coalesce(BenchmarkRow.name, ""))
        .join(BenchmarkRow, BenchmarkRow.digest == PointRow.benchmark_digest, isouter=True)
        .where(PointRow.id.in_(ids))
        .order_by(PointRow.id.desc())
    )
    rows = [NamedPoint(*row) for row in session.execute(query)]
    return cut(rows, limit)


def _digests(session: Session, name_or_digest: str) -> list[str]:
    """Return the digests of the benchmarks of this name, or with this digest."""
    named = or_(BenchmarkRow.digest == name_or_digest, BenchmarkRow.name == name_or_digest)
    return list(session.scalars(select(BenchmarkRow.digest).where(named)))


def export_points(database: Database, wanted: PointFilter) -> Iterator[list[NamedPoint]]:
    """Yield all points, newest first, in batches: memory does not grow with their number."""
    before: str | None = None
    more = True
    while more:
        with database.read() as session:
            batch, more = list_points(session, wanted, before=before, limit=EXPORT_BATCH)
        if batch:
            before = batch[-1].row.id
            yield batch


def list_repositories(session: Session) -> list[RepositoryRow]:
    """Return all known repositories by name."""
    return list(session.scalars(select(RepositoryRow).order_by(RepositoryRow.name)))


def find_repository(session: Session, name_or_url: str) -> RepositoryRow | None:
    """Return a known repository by its name or its URL."""
    return session.scalars(
        select(RepositoryRow)
        .where(or_(RepositoryRow.name == name_or_url, RepositoryRow.url == name_or_url))
        .limit(1)
    ).first()


def list_recipes(session: Session) -> list[RecipeRow]:
    """Return every recipe ever used, by name, newest first."""
    return list(
        session.scalars(select(RecipeRow).order_by(RecipeRow.name, RecipeRow.created_at.desc()))
    )


def list_benchmarks(session: Session) -> list[BenchmarkRow]:
    """Return every benchmark ever used, by name, newest first."""
    return list(
        session.scalars(
            select(BenchmarkRow).order_by(BenchmarkRow.name, BenchmarkRow.created_at.desc())
        )
    )


def benchmark_names(session: Session) -> list[str]:
    """Return the names of every benchmark ever used: fewer than there are definitions."""
    return list(session.scalars(select(BenchmarkRow.name).distinct().order_by(BenchmarkRow.name)))


def recipe_names(session: Session) -> list[str]:
    """Return the names of every recipe ever used."""
    return list(session.scalars(select(RecipeRow.name).distinct().order_by(RecipeRow.name)))


def host_names(session: Session) -> list[str]:
    """Return the names of all hosts."""
    return list(session.scalars(select(HostRow.name).order_by(HostRow.name)))


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host, what it did and what it does."""

    row: HostRow
    points: int
    rejected: int
    running: RunRow | None


def list_hosts(session: Session) -> list[HostStatus]:
    """Return all hosts by name."""
    counts = select(PointRow.host, func.count()).group_by(PointRow.host)
    # Apart, so that both are read from indices alone: there may be many points, and few rejected.
    few = session.execute(counts.where(PointRow.rejected != ""))
    rejected = {host: count for host, count in few}  # noqa: C416 - rows are no pairs to mypy
    points = {host: (count, rejected.get(host, 0)) for host, count in session.execute(counts)}
    running = {
        row.host: row
        for row in session.scalars(select(RunRow).where(RunRow.state == WorkState.RUNNING))
    }
    hosts = session.scalars(select(HostRow).order_by(HostRow.name))
    return [HostStatus(row, *points.get(row.name, (0, 0)), running.get(row.name)) for row in hosts]


def running_builds(session: Session) -> list[BuildRow]:
    """Return the builds that are under way, the oldest first."""
    query = select(BuildRow).where(BuildRow.state == WorkState.RUNNING)
    return list(session.scalars(query.order_by(BuildRow.id)))


@dataclass(frozen=True, slots=True)
class NamedWheel:
    """A wheel and the name of its recipe."""

    row: WheelRow
    recipe: str


def list_wheels(
    session: Session, *, commit: str | None, recipe: str | None, before: str | None, limit: int
) -> tuple[list[NamedWheel], bool]:
    """Return the newest wheels with an id below ``before``, and whether there are more."""
    query = (
        select(WheelRow, func.coalesce(RecipeRow.name, ""))
        .join(RecipeRow, RecipeRow.digest == WheelRow.recipe_digest, isouter=True)
        .order_by(WheelRow.id.desc())
        .limit(limit + 1)
    )
    if commit:
        query = query.where(begins_with(WheelRow.commit_sha, commit))
    if recipe:
        query = query.where(or_(RecipeRow.name == recipe, WheelRow.recipe_digest == recipe))
    if before is not None:
        query = query.where(WheelRow.id < before)
    rows = [NamedWheel(*row) for row in session.execute(query)]
    return cut(rows, limit)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows there are in each state, for metrics."""

    bisections: dict[str, int]
    experiments: dict[str, int]
    builds: dict[str, int]
    runs: dict[str, int]
    failures: dict[str, int]
    points: int
    wheel_bytes: int
    #: ``build`` or ``run`` -> how many succeeded, and their seconds together.
    durations: dict[str, tuple[int, float]]


def count_all(session: Session) -> Counts:
    """Count bisections, builds and runs by state, failures by kind, and points."""

    def by_state(
        model: type[BisectionRow] | type[ExperimentRow] | type[BuildRow] | type[RunRow],
    ) -> dict[str, int]:
        rows = session.execute(select(model.state, func.count()).group_by(model.state))
        return {str(state): count for state, count in rows}

    failures: dict[str, int] = {}
    for model in (BuildRow, RunRow):
        query = (
            select(model.failure_kind, func.count())
            .where(model.failure_kind.is_not(None))
            .group_by(model.failure_kind)
        )
        for kind, count in session.execute(query):
            failures[str(kind)] = failures.get(str(kind), 0) + count
    return Counts(
        bisections=by_state(BisectionRow),
        experiments=by_state(ExperimentRow),
        builds=by_state(BuildRow),
        runs=by_state(RunRow),
        failures=failures,
        points=session.scalar(select(func.count()).select_from(PointRow)) or 0,
        wheel_bytes=int(
            # Published wheels are no property of ours: they come and go in a cache.
            session.scalar(select(func.sum(WheelRow.size)).where(WheelRow.published.is_(None))) or 0
        ),
        durations={"build": _durations(session, BuildRow), "run": _durations(session, RunRow)},
    )


def _durations(session: Session, model: type[BuildRow] | type[RunRow]) -> tuple[int, float]:
    query = select(func.count(model.seconds), func.coalesce(func.sum(model.seconds), 0.0))
    count, seconds = session.execute(query.where(model.state == WorkState.SUCCEEDED)).one()
    return int(count), float(seconds or 0.0)
