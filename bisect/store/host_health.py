"""Judging hosts by what they measured, taking them out and putting them back."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from perfbisect.core.host_health import Health, Repeat, judge
from perfbisect.errors import ConflictError, NotFoundError
from perfbisect.store.database import now
from perfbisect.store.host_tables import HostHealthRow
from perfbisect.store.tables import HostRow, PointRow

log = logging.getLogger(__name__)

#: Only what was measured lately: hosts change, and are meant to.
LATELY = timedelta(days=30)
#: The newest points of a host that are looked at.
MOST_POINTS = 2_000
#: The newest runs whose share of rejected ones counts.
_RUNS = 50
#: ``out_by`` of a host whose own repeats tell against it.
BY_DRIFT = "drift"

_Point = Row[str, str, float, datetime, str]


def judge_host(session: Session, name: str) -> HostHealthRow:
    """Look at a host's repeats of the same wheels; one that drifts is taken out.

    Anchors, A/A runs and whatever else was measured again count alike.
    """
    row = _row(session, name)
    health = _health(_points(session, row))
    row.judged_at = now()
    row.health = None if health is None else asdict(health)
    if health is not None and health.drifting and row.out_since is None:
        log.warning("host %s is taken out: %s", name, health.reason)
        row.out_since, row.out_by, row.reason = now(), BY_DRIFT, health.reason
    return row


def _health(points: Sequence[_Point]) -> Health | None:
    repeats = [
        Repeat(f"{wheel} {benchmark}", at.timestamp(), math.log(value))
        for wheel, benchmark, value, at, rejected in points
        if value > 0 and not rejected
    ]
    latest = points[:_RUNS]
    share = sum(bool(point.rejected) for point in latest) / len(latest) if latest else 0.0
    return judge(repeats, share)


def _points(session: Session, row: HostHealthRow) -> Sequence[_Point]:
    """Return the newest points of a host first, from when it was last put back on."""
    since = now() - LATELY
    query = (
        select(
            PointRow.wheel_id,
            PointRow.benchmark_digest,
            PointRow.value,
            PointRow.measured_at,
            PointRow.rejected,
        )
        .where(
            PointRow.host == row.host,
            PointRow.measured_at >= max(since, row.back_at or since),
        )
        # Ids are made in the order of time, and their index leads to the newest.
        .order_by(PointRow.id.desc())
        .limit(MOST_POINTS)
    )
    return session.execute(query).all()


def hosts_out(session: Session) -> dict[str, str]:
    """Return name -> why, of the hosts that were taken out."""
    rows = session.execute(
        select(HostHealthRow.host, HostHealthRow.reason).where(HostHealthRow.out_since.is_not(None))
    )
    return {host: reason for host, reason in rows}  # noqa: C416 - rows are no pairs to mypy


def health_of_hosts(session: Session) -> dict[str, HostHealthRow]:
    """Return what is known of each host that was looked at, by name."""
    return {row.host: row for row in session.scalars(select(HostHealthRow))}


def take_out(session: Session, name: str, *, by: str, reason: str) -> None:
    """Let a host measure nothing more.

    Raises:
        NotFoundError: no such host.
        ConflictError: it is out already.
    """
    row = _row(session, name)
    if row.out_since is not None:
        raise ConflictError(f"host {name} is out already: {row.reason}", field="host", value=name)
    row.out_since, row.out_by, row.reason = now(), by, reason


def put_back(session: Session, name: str) -> None:
    """Let a host measure again; it is judged by what it measures from now on.

    Raises:
        NotFoundError: no such host.
        ConflictError: it is not out.
    """
    row = _row(session, name)
    if row.out_since is None:
        raise ConflictError(f"host {name} is not out", field="host", value=name)
    row.out_since, row.out_by, row.reason = None, None, ""
    row.back_at, row.health, row.judged_at = now(), None, None


def _row(session: Session, name: str) -> HostHealthRow:
    row = session.get(HostHealthRow, name)
    if row is not None:
        return row
    if session.get(HostRow, name) is None:
        raise NotFoundError(f"no host '{name}'", field="host", value=name)
    row = HostHealthRow(host=name, reason="")
    session.add(row)
    return row
