"""What the page of a bisection asks the database: columns rather than whole rows, and its age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Row, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from perfbisect.errors import NotFoundError
from perfbisect.store.alert_tables import AlertRow, FeedbackRow
from perfbisect.store.queries import axis_trees, cut, known_id
from perfbisect.store.tables import (
    BisectionRow,
    BuildRow,
    DecisionRow,
    EventRow,
    ExperimentRow,
    RunRow,
)

#: PostgreSQL may commit an event after one of a greater number: so many numbers before the newest
#: are looked at again.
_IN_FLIGHT = 100

#: Some columns of a row, by name.
AnyRow: TypeAlias = Row[*tuple[Any, ...]]
_Columns: TypeAlias = tuple[InstrumentedAttribute[Any], ...]

_BUILD: _Columns = (
    BuildRow.id,
    BuildRow.bisection_id,
    BuildRow.tree,
    BuildRow.commit_sha,
    BuildRow.state,
    BuildRow.failure_kind,
    BuildRow.cause,
    BuildRow.advice,
    BuildRow.started_at,
    BuildRow.finished_at,
    BuildRow.seconds,
)
_RUN: _Columns = (
    RunRow.id,
    RunRow.position,
    RunRow.host,
    RunRow.purpose,
    RunRow.state,
    RunRow.failure_kind,
    RunRow.cause,
    RunRow.advice,
    RunRow.started_at,
    RunRow.finished_at,
    RunRow.seconds,
)
_DECISION: _Columns = (
    DecisionRow.kind,
    DecisionRow.position,
    DecisionRow.host,
    DecisionRow.reason,
    DecisionRow.work_id,
)

#: What a page says of an alert.
_ALERT: _Columns = (
    AlertRow.id,
    AlertRow.state,
    AlertRow.series,
    AlertRow.benchmark,
    AlertRow.pool,
    AlertRow.title,
    AlertRow.change,
    AlertRow.before,
    AlertRow.after,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What the evidence of a bisection is found by; it never changes."""

    bisection_id: str
    recipe_digest: str


@dataclass(frozen=True, slots=True)
class Version:
    """Equal versions of a bisection mean equal pages."""

    #: Events up to this number are not counted: their transactions ended before it was made.
    since: int
    #: Events that may have changed it: how many, and the newest.
    events: int
    newest: int
    #: Words on its verdict: they are only ever added to.
    words: int
    #: What its alerts are, and the state they are in.
    alerts: tuple[tuple[Any, ...], ...]


def identity_of(session: Session, bisection_id: str) -> Identity:
    """Return what the evidence of a bisection is found by.

    Raises:
        NotFoundError: there is none with this id.
    """
    query = select(BisectionRow.recipe_digest).where(
        BisectionRow.id == known_id(bisection_id, "bisection", "bisection_id")
    )
    digest = session.scalar(query)
    if digest is None:
        raise NotFoundError(
            f"no bisection {bisection_id!r}", field="bisection_id", value=bisection_id
        )
    return Identity(bisection_id, digest)


def version_of(session: Session, identity: Identity, since: int | None = None) -> Version:
    """Return the version of a bisection, by indices alone; read it before what it stands for.

    Whatever a conductor writes comes with an event in the same transaction. An event counts if it
    is the bisection's own or of an experiment with it, or of anything that has the same recipe: it
    may have built or measured trees of its axis.

    Args:
        since: of an older version, to compare with it; None: where events stand now.
    """
    if since is None:
        since = max((session.scalar(select(func.max(EventRow.id))) or 0) - _IN_FLIGHT, 0)
    counts = (
        select(func.count(), func.coalesce(func.max(EventRow.id), 0))
        .select_from(EventRow)
        .join(BisectionRow, BisectionRow.id == EventRow.bisection_id, isouter=True)
        .join(ExperimentRow, ExperimentRow.id == EventRow.experiment_id, isouter=True)
        .where(
            EventRow.id > since,
            or_(
                EventRow.bisection_id == identity.bisection_id,
                ExperimentRow.bisection_id == identity.bisection_id,
                BisectionRow.recipe_digest == identity.recipe_digest,
                ExperimentRow.recipe_digest == identity.recipe_digest,
            ),
        )
    )
    events, newest = session.execute(counts).one()
    words = (
        select(func.count())
        .select_from(FeedbackRow)
        .where(FeedbackRow.bisection_id == identity.bisection_id)
    )
    alerts = (
        select(*_ALERT).where(AlertRow.bisection_id == identity.bisection_id).order_by(AlertRow.id)
    )
    return Version(
        since=since,
        events=events,
        newest=newest,
        words=session.scalar(words) or 0,
        alerts=tuple(tuple(row) for row in session.execute(alerts)),
    )


def newest_builds(session: Session, row: BisectionRow, limit: int) -> Sequence[AnyRow]:
    """Return the newest builds of an axis' trees, oldest first, without logs and environments."""
    query = (
        select(*_BUILD)
        .where(
            BuildRow.recipe_digest == row.recipe_digest,
            BuildRow.tree.in_(axis_trees(row.id)),
        )
        .order_by(BuildRow.id.desc())
        .limit(limit)
    )
    return session.execute(query).all()[::-1]


def newest_runs(session: Session, bisection_id: str, limit: int) -> Sequence[AnyRow]:
    """Return the newest runs of a bisection, oldest first, without logs."""
    query = (
        select(*_RUN)
        .where(RunRow.bisection_id == bisection_id)
        .order_by(RunRow.id.desc())
        .limit(limit)
    )
    return session.execute(query).all()[::-1]


def first_decisions(session: Session, bisection_id: str, limit: int) -> tuple[list[AnyRow], bool]:
    """Return a bisection's first decisions in order, and whether there are more."""
    query = (
        select(*_DECISION)
        .where(DecisionRow.bisection_id == bisection_id)
        .order_by(DecisionRow.id)
        .limit(limit + 1)
    )
    return cut(session.execute(query).all(), limit)
