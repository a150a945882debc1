"""Series as the API, the pages and the command line show them: JSON values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect.core.series_states import ChangeState
from perfbisect.nightly.definitions import runs_of, settings_of
from perfbisect.nightly.values import Change
from perfbisect.store.series_tables import (
    SeriesChangeRow,
    SeriesNightRow,
    SeriesPointRow,
    SeriesRow,
)


def series_json(session: Session, row: SeriesRow) -> dict[str, Any]:
    """Return a series with its last value and what is known of its changes."""
    last = session.scalars(
        select(SeriesPointRow)
        .where(SeriesPointRow.series_id == row.id)
        .order_by(SeriesPointRow.night.desc(), SeriesPointRow.id.desc())
        .limit(1)
    ).first()
    counted = session.execute(
        select(SeriesChangeRow.state, func.count())
        .where(SeriesChangeRow.series_id == row.id)
        .group_by(SeriesChangeRow.state)
    )
    nights, first = session.execute(
        select(func.count(SeriesPointRow.night.distinct()), func.min(SeriesPointRow.night)).where(
            SeriesPointRow.series_id == row.id
        )
    ).one()
    settings = settings_of(row)
    return {
        "name": row.name,
        "benchmark": row.benchmark,
        "unit": row.unit,
        "better": row.better.value,
        "repository": row.repository,
        "branch": row.branch,
        "package": row.package,
        "recipe": row.recipe,
        "pool": row.pool,
        "schedule": row.schedule,
        "runs": runs_of(row),
        "min_effect": settings.min_effect,
        "false_alarms": settings.false_alarms,
        "confirm_nights": settings.confirm_nights,
        "policy": row.policy,
        "defined_by": row.defined_by,
        "nights": nights,
        "first_night": first.isoformat() if first else None,
        "last_night": last.night.isoformat() if last else None,
        "last_value": last.value if last else None,
        "changes": {state.value: 0 for state in ChangeState}
        | {state.value: count for state, count in counted},
    }


def all_series(session: Session) -> list[dict[str, Any]]:
    """Return all series by name."""
    return [series_json(session, row) for row in session.scalars(
        select(SeriesRow).order_by(SeriesRow.name)
    )]  # fmt: skip


def change_json(change: Change) -> dict[str, Any]:
    """Return a change as JSON values."""

    def night(each: Any) -> dict[str, Any]:
        return {
            "night": each.night.isoformat(),
            "version": each.version,
            "commits": dict(each.commits),
            "host": each.host,
            "value": each.value,
        }

    return {
        "id": change.id,
        "series": change.series,
        "state": change.state.value,
        "kind": change.kind.value,
        "good": night(change.good),
        "bad": night(change.bad),
        "before": {"mean": change.before.mean, "ci95": list(change.before.ci95)},
        "after": {"mean": change.after.mean, "ci95": list(change.after.ci95)},
        "change": change.change,
        "ci95": list(change.ci95),
        "probability": change.probability,
        "confirmed_by": change.confirmed_by,
        "experiment": change.experiment,
        "recovers": change.recovers,
        "remaining": change.remaining,
        "reason": change.reason,
        "suspected_night": change.suspected_night.isoformat(),
        "created_at": change.created_at.isoformat(),
        "confirmed_at": change.confirmed_at.isoformat() if change.confirmed_at else None,
        "closed_at": change.closed_at.isoformat() if change.closed_at else None,
    }


def missing_nights(nights: Sequence[date]) -> list[tuple[date, date]]:
    """Return the stretches of days without a point between the first night and the last."""
    found: list[tuple[date, date]] = []
    for before, after in itertools.pairwise(nights):
        if (after - before).days > 1:
            found.append(
                (date.fromordinal(before.toordinal() + 1), date.fromordinal(after.toordinal() - 1))
            )
    return found


def nights_json(session: Session, row: SeriesRow) -> list[dict[str, Any]]:
    """Return the nights that were to be measured here, the newest first."""
    query = select(SeriesNightRow).where(SeriesNightRow.series_id == row.id)
    return [
        {
            "night": each.night.isoformat(),
            "state": each.state.value,
            "version": each.version,
            "experiment": each.experiment_id,
            "reason": each.reason,
        }
        for each in session.scalars(query.order_by(SeriesNightRow.night.desc()).limit(60))
    ]


def chart_json(
    points: Sequence[SeriesPointRow],
    changes: Sequence[Mapping[str, Any]],
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the columns of a series' chart."""
    nights = sorted({point.night for point in points})
    return {
        "unit": told["unit"],
        "points": {
            "night": [point.night.isoformat() for point in points],
            "value": [point.value for point in points],
            "host": [point.host for point in points],
        },
        "changes": [
            {
                "id": change["id"],
                "state": change["state"],
                "kind": change["kind"],
                "good": change["good"]["night"],
                "bad": change["bad"]["night"],
            }
            for change in changes
        ],
        "levels": _levels(nights, changes),
        "missing": [
            [first.isoformat(), last.isoformat()] for first, last in missing_nights(nights)
        ],
    }


def _levels(
    nights: Sequence[date], changes: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str, float]]:
    """Return the levels between changes that are real: first night, last night, value."""
    real = sorted(
        (each for each in changes if each["state"] in ("confirmed", "closed")),
        key=lambda each: str(each["good"]["night"]),
    )
    if not real or not nights:
        return []
    found = []
    start = nights[0].isoformat()
    for each in real:
        found.append((start, each["good"]["night"], each["before"]["mean"]))
        start = each["bad"]["night"]
    return [*found, (start, nights[-1].isoformat(), real[-1]["after"]["mean"])]
