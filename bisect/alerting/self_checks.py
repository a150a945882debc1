"""A/A runs: a wheel against itself, once per pool and week. What differs there is noise.

They measure two things that nobody has to believe otherwise: the noise of one run on a pool, and
how often a difference is claimed where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from sqlalchemy import or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from perfbisect.arms import PreparedArm, insert_arm
from perfbisect.config import recipe_from_dict
from perfbisect.core.recipe import digest_of
from perfbisect.core.revision import Revision
from perfbisect.core.states import BisectionState, ExperimentKind, Outcome
from perfbisect.demo import DIRECTORY as DEMO_DIRECTORY
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import CONDUCTED, experiment
from perfbisect.store.tables import (
    BisectionRow,
    ExperimentRow,
    HostRow,
    PointRow,
    RepositoryRow,
    WheelRow,
)

#: Who asks for them, and how ``origin`` of such experiments reads.
ORIGIN = "a/a"
#: Below everything that somebody waits for.
PRIORITY = -20
#: Fresh runs of both sides.
_RUNS = 8
#: Factor from the median absolute deviation to the standard deviation of a normal distribution.
_MAD = 1.4826
#: A pool in which something was measured since then is in use.
_IN_USE = timedelta(days=8)
#: How long nothing must have gone on.
_IDLE = timedelta(minutes=10)
#: A/A runs that the figures of a pool are made from at most, newest first.
_NEWEST = 52


@dataclass(frozen=True, slots=True)
class PoolNoise:
    """What A/A runs say of a pool."""

    pool: str
    #: Relative standard deviation of one run, robust against single slow ones; None: not known.
    noise: float | None
    #: Accepted runs that ``noise`` is made from.
    runs: int
    #: A/A runs that came to an answer, and those that claimed a difference.
    answered: int
    false_alarms: int
    last_at: datetime | None

    @property
    def false_alarm_rate(self) -> float | None:
        """Share of A/A runs that claimed a difference; None: there were none."""
        return self.false_alarms / self.answered if self.answered else None


def pool_noise(session: Session) -> list[PoolNoise]:
    """Return what A/A runs say of each pool that has had one, by name."""
    rows = session.scalars(
        select(ExperimentRow)
        .where(ExperimentRow.origin == ORIGIN, ExperimentRow.state == BisectionState.FINISHED)
        .order_by(ExperimentRow.id.desc())
    )
    of_pool: dict[str, list[ExperimentRow]] = {}
    for row in rows:
        of_pool.setdefault(str(row.plan.get("pool", "")), []).append(row)
    return [_noise(session, pool, of_pool[pool][:_NEWEST]) for pool in sorted(of_pool)]


def _noise(session: Session, pool: str, rows: Sequence[ExperimentRow]) -> PoolNoise:
    claims = [_claims(row) for row in rows if row.outcome is Outcome.ANSWERED]
    residuals = [each for row in rows for each in _residuals(session, row.id)]
    spread = _MAD * float(np.median(np.abs(residuals))) if residuals else None
    return PoolNoise(
        pool=pool,
        noise=spread,
        runs=len(residuals),
        answered=len(claims),
        false_alarms=sum(claims),
        last_at=max((row.finished_at for row in rows if row.finished_at), default=None),
    )


def _claims(row: ExperimentRow) -> bool:
    """Return whether an A/A run claimed a difference."""
    arms = (row.verdict or {}).get("arms") or ()
    return any(arm.get("difference") in ("better", "worse") for arm in arms)


def _residuals(session: Session, experiment_id: str) -> list[float]:
    """Return how far each run was from the middle of its experiment, in log."""
    values = session.scalars(
        select(PointRow.value).where(
            PointRow.experiment_id == experiment_id, PointRow.rejected == ""
        )
    ).all()
    if len(values) < 4:
        return []
    logs = np.log(np.asarray(values, dtype=float))
    # The middle is estimated from the same runs, which makes them look closer than they are.
    factor = math.sqrt(len(values) / (len(values) - 1))
    return [float(each) * factor for each in logs - np.median(logs)]


def week_of(moment: datetime) -> str:
    """Return the week that a moment lies in: ``2026-W49``."""
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02d}"


def start_due(services: Services, moment: datetime) -> list[str]:
    """Submit this week's A/A run of each pool in use that has none; return their ids.

    It waits until nothing has gone on for a while: nobody shall wait for it.
    """
    with services.database.read() as session:
        if _busy(session, moment):
            return []
        due = [pool for pool in _pools(session, moment) if _is_due(session, moment, pool)]
    started = []
    for pool in due:
        try:
            with services.database.write() as session:
                point, source = _something_to_run(session, pool, moment) or (None, None)
                if point is not None and source is not None:
                    started.append(_insert(session, _key(moment, pool), pool, point, source))
        except IntegrityError:
            # Another process was first.
            continue
    return started


def _key(moment: datetime, pool: str) -> str:
    return f"aa-{week_of(moment)}-{pool}"


def _busy(session: Session, moment: datetime) -> bool:
    """Return whether anything goes on, or ended a moment ago."""
    return any(
        session.scalar(
            select(table.id)
            .where(
                or_(
                    table.state != BisectionState.FINISHED,
                    table.finished_at > moment - _IDLE,
                )
            )
            .limit(1)
        )
        for table in CONDUCTED
    )


def _pools(session: Session, moment: datetime) -> list[str]:
    query = select(HostRow.pool).where(HostRow.last_seen_at > moment - _IN_USE).distinct()
    return sorted(session.scalars(query))


def _is_due(session: Session, moment: datetime, pool: str) -> bool:
    key = _key(moment, pool)
    known = select(ExperimentRow.id).where(ExperimentRow.idempotency_key == key)
    if session.scalar(known) is not None:
        return False
    return _something_to_run(session, pool, moment) is not None


def _something_to_run(
    session: Session, pool: str, moment: datetime
) -> tuple[PointRow, BisectionRow] | None:
    """Return the newest point of a pool whose wheel was built here, and its bisection."""
    query = (
        select(PointRow, BisectionRow)
        .join(HostRow, HostRow.name == PointRow.host)
        .join(BisectionRow, BisectionRow.id == PointRow.bisection_id)
        .join(WheelRow, WheelRow.id == PointRow.wheel_id)
        .join(RepositoryRow, RepositoryRow.id == BisectionRow.repository_id)
        .where(
            # Nobody follows what the demo measures.
            RepositoryRow.url.not_like(f"%/{DEMO_DIRECTORY}"),
            HostRow.pool == pool,
            PointRow.rejected == "",
            PointRow.measured_at > moment - _IN_USE,
            WheelRow.published.is_(None),
        )
        .order_by(PointRow.id.desc())
        .limit(1)
    )
    found = session.execute(query).first()
    return None if found is None else (found[0], found[1])


def _insert(session: Session, key: str, pool: str, point: PointRow, source: BisectionRow) -> str:
    """Store the experiment: the same wheel as reference and as arm."""
    experiment_id = new_id()
    session.add(
        ExperimentRow(
            id=experiment_id,
            kind=ExperimentKind.TRY,
            state=BisectionState.QUEUED,
            request={},
            request_digest=digest_of({"a/a": key}),
            idempotency_key=key,
            repository_id=source.repository_id,
            recipe_digest=recipe_from_dict(source.recipe).digest,
            benchmark_digest=point.benchmark_digest,
            recipe=source.recipe,
            benchmark=source.benchmark,
            policy={
                "better": source.benchmark.get("better", "higher"),
                "min_effect": source.policy.get("min_effect", 0.03),
                "max_runs": None,
                "max_seconds": None,
                "min_runs": _RUNS,
            },
            plan={"pool": pool, "a/a": True},
            requested_by="perfbisect",
            origin=ORIGIN,
            priority=PRIORITY,
            created_at=now(),
            active_seconds=0.0,
        )
    )
    session.flush()
    for position, name in enumerate(("A", "A again")):
        arm = PreparedArm(
            name=name,
            against=0 if position else None,
            revision=Revision(point.commit_sha),
            base_sha=point.commit_sha,
            tree=point.tree,
            role={"kind": "arm" if position else "reference"},
        )
        insert_arm(session, experiment_id, position, arm, point.benchmark_digest)
    bisections.add_event(session, experiment(experiment_id), "submitted", {})
    return experiment_id
