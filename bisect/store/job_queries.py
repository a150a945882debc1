"""Finding bisections and experiments, and following what happens to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, String, cast, exists, func, or_, select
from sqlalchemy.orm import Session, defer

from perfbisect.core.states import BisectionState, Outcome
from perfbisect.store.jobs import JobRef
from perfbisect.store.queries import Listing
from perfbisect.store.tables import (
    ArmRow,
    BenchmarkRow,
    BisectionRow,
    CandidateRow,
    EventRow,
    ExperimentRow,
    RepositoryRow,
    RunRow,
)

#: The later end's position.
LAST_POSITION = (
    select(func.max(CandidateRow.position))
    .where(CandidateRow.bisection_id == BisectionRow.id)
    .correlate(BisectionRow)
    .scalar_subquery()
)

Job = type[BisectionRow] | type[ExperimentRow]

#: Rows read at a time where not all of a filter can be said in SQL.
_BATCH = 200


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which bisections or experiments are wanted; empty fields do not filter."""

    state: BisectionState | None = None
    outcome: Outcome | None = None
    #: Name or URL.
    repository: str | None = None
    #: A commit that is a culprit, or the beginning of its name.
    culprit: str | None = None
    #: A commit of the axis or of an arm, or the beginning of its name.
    commit: str | None = None
    #: Name or digest.
    benchmark: str | None = None
    #: Where something was run for it.
    host: str | None = None
    requested_by: str | None = None
    #: Submitted at or after, and before.
    since: datetime | None = None
    until: datetime | None = None
    #: Words found in ends, benchmark, recipe, requester, repository or verdict.
    q: str | None = None
    #: Of experiments: the bisection they belong to.
    bisection: str | None = None


def _conditions(table: Job, wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    """Yield what can be said in SQL of both kinds."""
    if wanted.state is not None:
        yield table.state == wanted.state
    if wanted.outcome is not None:
        yield table.outcome == wanted.outcome
    if wanted.repository:
        yield or_(RepositoryRow.name == wanted.repository, RepositoryRow.url == wanted.repository)
    if wanted.requested_by:
        yield table.requested_by == wanted.requested_by
    if wanted.since is not None:
        yield table.created_at >= wanted.since
    if wanted.until is not None:
        yield table.created_at < wanted.until
    if wanted.benchmark:
        named = select(BenchmarkRow.digest).where(BenchmarkRow.name == wanted.benchmark)
        yield or_(table.benchmark_digest == wanted.benchmark, table.benchmark_digest.in_(named))
    if wanted.host:
        owner = RunRow.bisection_id if table is BisectionRow else RunRow.experiment_id
        yield exists().where(owner == table.id, RunRow.host == wanted.host)
    for word in (wanted.q or "").split():
        yield or_(*(column.icontains(word, autoescape=True) for column in _texts(table)))


def _texts(table: Job) -> Sequence[ColumnElement[str]]:
    """Return what is searched for words."""
    ends = (BisectionRow.good_sha, BisectionRow.bad_sha) if table is BisectionRow else ()
    return (
        table.id,
        *ends,
        table.requested_by,
        func.coalesce(RepositoryRow.name, ""),
        cast(table.request, String),
        cast(table.verdict, String),
    )


def list_bisections(
    session: Session, wanted: JobFilter, *, before: str | None, limit: int
) -> tuple[list[Listing], bool]:
    """Return the newest bisections with an id below ``before``, and whether there are more."""
    query = (
        select(BisectionRow, RepositoryRow, LAST_POSITION)
        .join(RepositoryRow, RepositoryRow.id == BisectionRow.repository_id, isouter=True)
        .where(*_conditions(BisectionRow, wanted))
        # Lists show verdicts; what charts draw is large.
        .options(defer(BisectionRow.belief))
        .order_by(BisectionRow.id.desc())
    )
    if wanted.commit:
        named = CandidateRow.sha.startswith(wanted.commit, autoescape=True)
        query = query.where(exists().where(CandidateRow.bisection_id == BisectionRow.id, named))

    def read(older_than: str | None, count: int) -> list[Listing]:
        narrowed = query if older_than is None else query.where(BisectionRow.id < older_than)
        return [Listing(*row) for row in session.execute(narrowed.limit(count))]

    if not wanted.culprit:
        rows = read(before, limit + 1)
        return rows[:limit], len(rows) > limit
    # Culprits stand within the verdict's JSON, which databases search in different ways.
    query = query.where(BisectionRow.outcome == Outcome.CULPRITS)
    return _with_culprit(read, wanted.culprit, before, limit)


def _with_culprit(
    read: Callable[[str | None, int], list[Listing]], culprit: str, before: str | None, limit: int
) -> tuple[list[Listing], bool]:
    found: list[Listing] = []
    while len(found) <= limit:
        batch = read(before, _BATCH)
        found += [listing for listing in batch if _names(listing, culprit)]
        if len(batch) < _BATCH:
            break
        before = batch[-1].row.id
    return found[:limit], len(found) > limit


def _names(listing: Listing, culprit: str) -> bool:
    culprits = (listing.row.verdict or {}).get("culprits") or []
    return any(sha.startswith(culprit) for each in culprits for sha in each.get("commits") or [])


def list_experiments(
    session: Session, wanted: JobFilter, *, before: str | None, limit: int
) -> tuple[list[ExperimentRow], bool]:
    """Return the newest experiments with an id below ``before``, and whether there are more."""
    query: Select[ExperimentRow] = (
        select(ExperimentRow)
        .join(RepositoryRow, RepositoryRow.id == ExperimentRow.repository_id, isouter=True)
        .where(*_conditions(ExperimentRow, wanted), *_of_experiments(wanted))
        .order_by(ExperimentRow.id.desc())
        .limit(limit + 1)
    )
    if before is not None:
        query = query.where(ExperimentRow.id < before)
    rows = list(session.scalars(query))
    return rows[:limit], len(rows) > limit


def _of_experiments(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.bisection:
        yield ExperimentRow.bisection_id == wanted.bisection
    if wanted.culprit:
        yield exists().where(
            CandidateRow.bisection_id == ExperimentRow.bisection_id,
            CandidateRow.position == ExperimentRow.culprit_position,
            CandidateRow.sha.startswith(wanted.culprit, autoescape=True),
        )
    if wanted.commit:
        yield exists().where(
            ArmRow.experiment_id == ExperimentRow.id,
            or_(
                ArmRow.base_sha.startswith(wanted.commit, autoescape=True),
                ArmRow.revision.contains(wanted.commit, autoescape=True),
            ),
        )


def _mine(job: JobRef) -> ColumnElement[bool]:
    if job.table is BisectionRow:
        return EventRow.bisection_id == job.id
    return EventRow.experiment_id == job.id


def events_after(session: Session, job: JobRef, after: int, limit: int = 500) -> list[EventRow]:
    """Return the next events in order."""
    query = select(EventRow).where(_mine(job), EventRow.id > after)
    return list(session.scalars(query.order_by(EventRow.id).limit(limit)))


def last_event_id(session: Session, job: JobRef) -> int:
    """Return the id of the newest event; 0 where there is none."""
    return session.scalar(select(func.max(EventRow.id)).where(_mine(job))) or 0


def is_finished(session: Session, job: JobRef) -> bool:
    """Return whether it has its final answer (or does not exist any more)."""
    state = session.scalar(select(job.table.state).where(job.table.id == job.id))
    return state is None or state is BisectionState.FINISHED
