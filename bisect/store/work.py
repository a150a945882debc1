"""Writing builds, wheels, runs and points: the facts that only ever grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from perfbisect.core.facts import Run
from perfbisect.core.states import WorkState
from perfbisect.ports import BuildSuccess, Failure, RunSuccess
from perfbisect.store.carried import carried_at, carried_in_experiment
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import JobRef
from perfbisect.store.leases import is_gone, revoke
from perfbisect.store.tables import BuildRow, HostRow, PointRow, RunRow, WheelRow

_Row = TypeVar("_Row", BuildRow, RunRow)

ACTIVE = (WorkState.QUEUED, WorkState.RUNNING)


@dataclass(frozen=True, slots=True)
class Lost:
    """Work whose process is gone: what it left behind has to be cleaned up."""

    builds: tuple[str, ...]
    runs: tuple[str, ...]


def start_build(
    session: Session, job: JobRef, *, tree: str, recipe_digest: str, commit: str, owner: str
) -> str | None:
    """Insert a running build and return its id, or None when somebody is building this tree."""
    previous = session.scalars(
        select(BuildRow.id).where(BuildRow.tree == tree, BuildRow.recipe_digest == recipe_digest)
    ).all()
    row = BuildRow(
        id=new_id(),
        **job.columns,
        tree=tree,
        recipe_digest=recipe_digest,
        commit_sha=commit,
        state=WorkState.RUNNING,
        attempt=len(previous) + 1,
        owner=owner,
        lines=[],
        environment={},
        created_at=now(),
        started_at=now(),
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        return None
    return row.id


def start_run(
    session: Session,
    job: JobRef,
    action: Run,
    *,
    wheel_id: str,
    benchmark_digest: str,
    owner: str,
) -> str:
    """Insert a running run and return its id."""
    row = RunRow(
        id=new_id(),
        **job.columns,
        position=action.position,
        wheel_id=wheel_id,
        benchmark_digest=benchmark_digest,
        host=action.host,
        purpose=action.purpose,
        pair_before=action.pair[0] if action.pair else None,
        pair_after=action.pair[1] if action.pair else None,
        state=WorkState.RUNNING,
        owner=owner,
        lines=[],
        created_at=now(),
        started_at=now(),
    )
    session.add(row)
    session.flush()
    return row.id


def finish_build(
    session: Session,
    build_id: str,
    result: BuildSuccess | Failure | None,
    artifact: str = "",
    *,
    owner: str,
) -> BuildRow | None:
    """Record how a build ended, and its wheel when it succeeded, in the caller's transaction.

    Returns:
        the build; None: it is not ``owner``'s any more, or has ended: nothing is recorded.
    """
    row = session.get_one(BuildRow, build_id)
    if not _is_open(row, owner):
        return None
    _close(row, result)
    if isinstance(result, BuildSuccess):
        row.environment = result.environment
        known = session.scalar(
            select(WheelRow).where(
                WheelRow.tree == row.tree, WheelRow.recipe_digest == row.recipe_digest
            )
        )
        if known is None:
            session.add(
                WheelRow(
                    id=new_id(),
                    tree=row.tree,
                    recipe_digest=row.recipe_digest,
                    commit_sha=row.commit_sha,
                    build_id=row.id,
                    filename=result.path.name,
                    sha256=result.sha256,
                    size=result.size,
                    artifact=artifact,
                    created_at=now(),
                )
            )
    return row


def finish_run(
    session: Session, run_id: str, result: RunSuccess | Failure | None, unit: str, *, owner: str
) -> RunRow | None:
    """Record how a run ended, and its point when it gave a value, in the caller's transaction.

    Returns:
        the run; None: it is not ``owner``'s any more, or has ended: nothing is recorded.
    """
    row = session.get_one(RunRow, run_id)
    if not _is_open(row, owner):
        return None
    _close(row, result)
    if isinstance(result, RunSuccess):
        wheel = session.get_one(WheelRow, row.wheel_id)
        session.add(
            PointRow(
                id=new_id(),
                run_id=row.id,
                bisection_id=row.bisection_id,
                experiment_id=row.experiment_id,
                wheel_id=row.wheel_id,
                tree=wheel.tree,
                recipe_digest=wheel.recipe_digest,
                commit_sha=wheel.commit_sha,
                benchmark_digest=row.benchmark_digest,
                host=row.host,
                purpose=row.purpose,
                pair_before=row.pair_before,
                pair_after=row.pair_after,
                value=result.value,
                unit=unit,
                within=list(result.within),
                measured_at=now(),
                seconds=result.seconds,
                environment=_told(session, row, wheel, result),
                rejected=result.rejected,
            )
        )
    return row


def _told(session: Session, row: RunRow, wheel: WheelRow, result: RunSuccess) -> dict[str, Any]:
    """Return a point's environment; it says what its wheel has on top of the commit."""
    carried: list[str] = []
    if row.bisection_id is not None:
        carried = carried_at(session, row.bisection_id, wheel.tree)
    elif row.experiment_id is not None:
        carried = carried_in_experiment(session, row.experiment_id, wheel.tree)
    return {**result.environment, "carried": carried} if carried else result.environment


def _is_open(row: BuildRow | RunRow, owner: str) -> bool:
    """Whether work is under way, and nobody else took it over."""
    return row.state in ACTIVE and row.owner == owner


def _close(row: BuildRow | RunRow, result: BuildSuccess | RunSuccess | Failure | None) -> None:
    row.finished_at = now()
    if result is None:
        row.state = WorkState.CANCELLED
        return
    row.seconds = result.seconds
    if not isinstance(result, Failure):
        row.state = WorkState.SUCCEEDED
        return
    row.state = WorkState.FAILED
    row.failure_kind = result.kind
    if isinstance(row, RunRow):
        row.certain = result.certain
    row.cause = result.cause
    row.advice = result.advice
    row.lines = list(result.lines)


def any_lost(session: Session) -> bool:
    """Return whether a build or run is under way whose process is gone."""
    return bool(_gone_owners(session))


def mark_lost(session: Session) -> Lost:
    """Close the builds and runs whose process is gone; return what has to be cleaned up."""
    gone = _gone_owners(session)
    builds, runs = _work_of(session, BuildRow, gone), _work_of(session, RunRow, gone)
    lost: list[BuildRow | RunRow] = [*builds, *runs]
    for row in lost:
        row.state = WorkState.LOST
        row.cause = "the process that started it is gone"
        row.finished_at = now()
    revoke(session, gone)
    return Lost(tuple(row.id for row in builds), tuple(row.id for row in runs))


def take_over(session: Session, owner: str) -> tuple[list[BuildRow], list[RunRow]]:
    """Make the work of processes that are gone ``owner``'s: it goes on without them."""
    gone = _gone_owners(session)
    builds, runs = _work_of(session, BuildRow, gone), _work_of(session, RunRow, gone)
    found: list[BuildRow | RunRow] = [*builds, *runs]
    for row in found:
        row.owner = owner
    revoke(session, gone)
    return builds, runs


def _gone_owners(session: Session) -> list[str]:
    owners = {
        *session.scalars(select(BuildRow.owner).where(BuildRow.state.in_(ACTIVE)).distinct()),
        *session.scalars(select(RunRow.owner).where(RunRow.state.in_(ACTIVE)).distinct()),
    }
    return sorted(owner for owner in owners if is_gone(session, owner))


def _work_of(session: Session, kind: type[_Row], owners: Sequence[str]) -> list[_Row]:
    return list(session.scalars(select(kind).where(kind.state.in_(ACTIVE), kind.owner.in_(owners))))


def remember_host(session: Session, name: str, pool: str, facts: dict[str, Any]) -> None:
    """Insert or refresh a host."""
    changed = session.execute(
        update(HostRow)
        .where(HostRow.name == name)
        .values(facts=facts, pool=pool, last_seen_at=now())
    )
    if not getattr(changed, "rowcount", 0):
        session.add(
            HostRow(name=name, pool=pool, facts=facts, created_at=now(), last_seen_at=now())
        )
