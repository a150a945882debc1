"""Nightly series: points in, changes found, changes confirmed, alerts raised.

A *series* is the nightly history of one benchmark on one pool: an axis on which every night is
already measured. This is the front; the rooms behind it are in ``perfbisect.nightly``, the
statistics in ``perfbisect.core.series``, the tables in ``perfbisect.store.series_tables``.

    POST points, CSV, own nightly
              |
        record_points ------> series_points          one row per night, version and host
              |
            search            core.series: P(step)   -> series_changes, state ``suspected``
              |
            advance           the server's minute, and after each delivery:
              |                 suspected  -> confirming   re-measure the two nights, interleaved
              |                 confirming -> confirmed | refuted | suspected
              |                 suspected  -> confirmed (by further nights) | refuted
              |                 confirmed  -> closed       a recovery was confirmed
              v
    perfbisect.alerts.raise_alert(services, AlertSignal(...))

Who calls whom: ``advance`` calls ``perfbisect.alerts.raise_alert`` once for each change (regression
or recovery) that reached ``confirmed``; ``series_changes.announced_at`` is set when that returned,
and until then the call is repeated, so ``raise_alert`` must be idempotent on
``("series", change.id)``. It may refuse with any ``PerfbisectError``: that is logged and repeated.

For the alerts' side:

- ``change_of(services, change_id) -> Change``: all that is known of a change, as plain values;
- ``changes_of(services, series, *, states=None) -> list[Change]``, newest first;
- ``policy_of(services, series) -> Mapping[str, Any]``: the table ``[series.NAME.policy]`` of
  ``perfbisect.toml`` as it stands there; empty: the defaults. Its words are the alerts' own.

States (``core.series_states.ChangeState``; drawn in docs/states.md): ``suspected``, ``confirming``,
``confirmed``, ``refuted``, ``closed``. Recoveries have the same states; a confirmed recovery whose
value came back whole sets the regression it takes back (``recovers_id``) to ``closed``; one that
came back in part leaves it ``confirmed`` and says ``remaining`` (``-0.06``: still 6% below).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from perfbisect.core.series_states import ChangeState
from perfbisect.errors import NotFoundError
from perfbisect.nightly.changes import pending_series, search_series
from perfbisect.nightly.confirming import advance_changes
from perfbisect.nightly.definitions import (
    SeriesDefinition,
    check_name,
    define,
    definition_from_dict,
    find_series,
    sync_project,
)
from perfbisect.nightly.own import collect_nights, run_night, start_due_nights
from perfbisect.nightly.points import NightPoint, store_points
from perfbisect.nightly.values import Change, Level, Night
from perfbisect.services import Services
from perfbisect.store.database import now
from perfbisect.store.series_tables import SeriesChangeRow, SeriesPointRow, SeriesRow

__all__ = [
    "Change",
    "NightPoint",
    "SeriesDefinition",
    "advance",
    "change_of",
    "changes_of",
    "definition_from_dict",
    "policy_of",
    "record_points",
    "run_night",
    "search",
    "start_due_nights",
    "sync_project",
]

log = logging.getLogger(__name__)


def record_points(
    services: Services,
    name: str,
    points: Sequence[NightPoint],
    *,
    source: str,
    definition: SeriesDefinition | None = None,
    idempotency_key: str | None = None,
) -> dict[str, Any]:
    """Store points of a series, which their first delivery defines; nothing is searched yet.

    Args:
        source: what they were sent as (``api``, ``csv``, ``perfzero``, ``pytest-benchmark``).
        definition: of a series that is new or was defined in this way; None: as it is.

    Returns:
        ``{"series", "added", "known", "first", "last"}``.

    Raises:
        BadInputError: the name or the definition can't be right.
        ConflictError: a point of that night, version and host is there with another value.
    """
    try:
        return _record(services, name, points, source, definition, idempotency_key)
    except IntegrityError:
        # Somebody sent the same at the same time and was first: now it is there.
        return _record(services, name, points, source, definition, idempotency_key)


def _record(
    services: Services,
    name: str,
    points: Sequence[NightPoint],
    source: str,
    definition: SeriesDefinition | None,
    idempotency_key: str | None,
) -> dict[str, Any]:
    with services.database.read() as session:
        known = session.scalar(select(SeriesRow.id).where(SeriesRow.name == name))
    if definition is not None or known is None:
        define(services, check_name(name), definition or SeriesDefinition())
    with services.database.read() as session:
        series = find_series(session, name)
    return store_points(services, series, points, source=source, idempotency_key=idempotency_key)


def search(services: Services) -> int:
    """Search every series that has new points; return how many there were."""
    with services.database.read() as session:
        pending = pending_series(session)
    for series_id in pending:
        search_series(services, series_id)
    return len(pending)


def advance(services: Services, moment: datetime | None = None) -> int:
    """Do everything that is due: collect and start nights, search, confirm, announce.

    Safe to call at any time and from several processes; what is waited for is looked at again next
    time.

    Returns:
        how many things were done: 0 means that there is nothing to do now.
    """
    done = start_due_nights(services, moment or now())
    done += collect_nights(services)
    done += search(services)
    # What is confirmed now can be announced now.
    while steps := advance_changes(services):
        done += steps
    return done


def change_of(services: Services, change_id: str) -> Change:
    """Return all that is known of a change.

    Raises:
        NotFoundError: no such change.
    """
    with services.database.read() as session:
        row = session.get(SeriesChangeRow, change_id)
        if row is None:
            raise NotFoundError(f"no change '{change_id}'", field="change", value=change_id)
        return _change(session, row)


def changes_of(
    services: Services, series: str, *, states: Collection[ChangeState] | None = None
) -> list[Change]:
    """Return a series' changes, the newest first.

    Raises:
        NotFoundError: no such series.
    """
    with services.database.read() as session:
        query = select(SeriesChangeRow).where(
            SeriesChangeRow.series_id == find_series(session, series).id
        )
        if states is not None:
            query = query.where(SeriesChangeRow.state.in_(states))
        order = (SeriesChangeRow.first_bad_night.desc(), SeriesChangeRow.id.desc())
        return [_change(session, row) for row in session.scalars(query.order_by(*order))]


def policy_of(services: Services, series: str) -> Mapping[str, Any]:
    """Return what the series' alerts do, as written; empty: the defaults.

    Raises:
        NotFoundError: no such series.
    """
    with services.database.read() as session:
        return dict(find_series(session, series).policy)


def _change(session: Session, row: SeriesChangeRow) -> Change:
    series = session.get_one(SeriesRow, row.series_id)
    good, bad = (
        _night(session.get_one(SeriesPointRow, each))
        for each in (row.good_point_id, row.bad_point_id)
    )
    return Change(
        id=row.id,
        series=series.name,
        state=row.state,
        kind=row.kind,
        benchmark=series.benchmark,
        unit=series.unit,
        better=series.better,
        repository=series.repository,
        package=series.package,
        recipe=series.recipe,
        pool=series.pool,
        good=good,
        bad=bad,
        before=Level(row.before, (row.before_low, row.before_high)),
        after=Level(row.after, (row.after_low, row.after_high)),
        change=row.change,
        ci95=(row.change_low, row.change_high),
        probability=row.probability,
        confirmed_by=row.confirmed_by,
        experiment=row.experiment_id,
        recovers=row.recovers_id,
        remaining=row.remaining,
        reason=row.reason,
        suspected_night=row.suspected_night,
        created_at=row.created_at,
        confirmed_at=row.confirmed_at,
        closed_at=row.closed_at,
    )


def _night(point: SeriesPointRow) -> Night:
    return Night(point.night, point.version, point.commits, point.host, point.value)
