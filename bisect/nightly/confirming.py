"""From a suspicion to an alert: measure the two nights again, interleaved, before anything else."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect import alerts
from perfbisect.core.series_states import ChangeState
from perfbisect.core.states import BisectionState, ChangeKind
from perfbisect.errors import PerfbisectError, TransientError
from perfbisect.nightly.changes import HISTORY_WORDS, open_losses, relate, shortfall
from perfbisect.nightly.definitions import settings_of
from perfbisect.nightly.measuring import NightBuild, can_compare, revision_of, start_measuring
from perfbisect.nightly.words import change_sentence
from perfbisect.report import format_value
from perfbisect.services import Services
from perfbisect.store.database import now
from perfbisect.store.series_tables import SeriesChangeRow, SeriesPointRow, SeriesRow
from perfbisect.store.tables import ExperimentRow

log = logging.getLogger(__name__)

#: Source of the alerts that series raise.
SOURCE = "series"


def advance_changes(services: Services) -> int:
    """Do whatever is next for every change; return how many changed state or were announced."""
    with services.database.read() as session:
        rows = list(
            session.scalars(
                select(SeriesChangeRow)
                .where(
                    SeriesChangeRow.state.in_((ChangeState.SUSPECTED, ChangeState.CONFIRMING))
                    | (
                        SeriesChangeRow.state.in_((ChangeState.CONFIRMED, ChangeState.CLOSED))
                        & SeriesChangeRow.announced_at.is_(None)
                    )
                )
                .order_by(SeriesChangeRow.first_bad_night, SeriesChangeRow.id)
            )
        )
    return sum(_advance_one(services, row) for row in rows)


def _advance_one(services: Services, row: SeriesChangeRow) -> bool:
    try:
        if row.state is ChangeState.SUSPECTED:
            return _start_confirming(services, row)
        if row.state is ChangeState.CONFIRMING:
            return _finish_confirming(services, row)
        return _announce(services, row)
    except TransientError as error:
        log.warning("change %s: %s; trying again", row.id, error)
    except PerfbisectError as error:
        log.error("change %s: %s", row.id, error)
        if row.state is ChangeState.SUSPECTED:
            _leave_to_nights(services, row.id, f"its nights can't be measured again: {error}")
    return False


# ---------------------------------------------------------------------- measuring again


def _start_confirming(services: Services, row: SeriesChangeRow) -> bool:
    with services.database.read() as session:
        series = session.get_one(SeriesRow, row.series_id)
        ends = [
            session.get_one(SeriesPointRow, each) for each in (row.good_point_id, row.bad_point_id)
        ]
    if row.cant_measure or row.experiment_id is not None:
        return False
    if not can_compare(series, *ends):
        return False
    builds = [NightBuild(f"night {end.night}", str(revision_of(series, end))) for end in ends]
    asked = {"series": series.name, "change": row.id, "nights": [str(end.night) for end in ends]}
    experiment_id = start_measuring(services, series, builds, compare=True, request=asked)
    with services.database.write() as session:
        locked = session.get_one(SeriesChangeRow, row.id, with_for_update=True)
        if locked.state is not ChangeState.SUSPECTED:
            return False
        locked.state = ChangeState.CONFIRMING
        locked.experiment_id = experiment_id
    return True


def _finish_confirming(services: Services, row: SeriesChangeRow) -> bool:
    with services.database.write() as session:
        locked = session.get_one(SeriesChangeRow, row.id, with_for_update=True)
        experiment = session.get(ExperimentRow, row.experiment_id)
        if locked.state is not ChangeState.CONFIRMING or experiment is None:
            return False
        if experiment.state is not BisectionState.FINISHED:
            return False
        _conclude(session, locked, experiment)
    return True


def _conclude(session: Session, row: SeriesChangeRow, experiment: ExperimentRow) -> None:
    """Let the measurement decide; where it could not, nights do."""
    series = session.get_one(SeriesRow, row.series_id)
    arm = _compared(experiment.verdict)
    expected = "worse" if row.kind is ChangeKind.REGRESSION else "better"
    difference = arm.get("difference")
    if difference == expected:
        row.state = ChangeState.CONFIRMED
        row.confirmed_by = "measured"
        row.confirmed_at = now()
        losses = relate(session, row, settings_of(series))
        row.reason = (
            f"{change_sentence(row, series, losses)}; measured again: {arm['change']:+.1%} "
            f"({arm['ci95'][0]:+.1%} to {arm['ci95'][1]:+.1%})"
        )
    elif difference in ("worse", "better", "alike"):
        row.state = ChangeState.REFUTED
        row.refuted_at = now()
        row.reason = f"measured again, the two nights are {difference}: {arm['change']:+.1%}"
    else:
        row.state = ChangeState.SUSPECTED
        row.cant_measure = (
            f"the re-measurement ended without an answer ({experiment.outcome}): nights decide"
        )


def _compared(verdict: Mapping[str, Any] | None) -> Mapping[str, Any]:
    arms = (verdict or {}).get("arms") or []
    found: Mapping[str, Any] = arms[1] if len(arms) > 1 else {}
    return found


def _leave_to_nights(services: Services, change_id: str, why: str) -> None:
    with services.database.write() as session:
        row = session.get_one(SeriesChangeRow, change_id, with_for_update=True)
        if row.state is ChangeState.SUSPECTED:
            row.cant_measure = why


# ---------------------------------------------------------------------- telling


def _announce(services: Services, row: SeriesChangeRow) -> bool:
    with services.database.read() as session:
        series = session.get_one(SeriesRow, row.series_id)
        good = session.get_one(SeriesPointRow, row.good_point_id)
        bad = session.get_one(SeriesPointRow, row.bad_point_id)
    # A value that is better than it ever was is worth a line on its page, and no bisection.
    gain = row.kind is ChangeKind.RECOVERY and row.recovers_id is None
    if not gain and row.cant_measure != HISTORY_WORDS:
        alerts.raise_alert(services, signal_of(row, series, good, bad))
    if row.kind is ChangeKind.RECOVERY:
        _close_losses(services, row, series)
    with services.database.write() as session:
        session.get_one(SeriesChangeRow, row.id).announced_at = now()
    return True


def started_at(night: date) -> datetime:
    """Return the moment an alert of a night starts."""
    return datetime.combine(night, time(), UTC)


def signal_of(
    row: SeriesChangeRow, series: SeriesRow, good: SeriesPointRow, bad: SeriesPointRow
) -> alerts.AlertSignal:
    """Return what the alerts are told of a change. Of a recovery, the good end is the later one."""
    ends = [revision_of(series, point) or str(point.night) for point in (good, bad)]
    if row.kind is ChangeKind.RECOVERY:
        ends.reverse()
    by_commit = bool(series.repository and series.recipe)
    return alerts.AlertSignal(
        source=SOURCE,
        fingerprint=row.id,
        started_at=started_at(row.first_bad_night),
        title=f"{series.name}: {row.reason}",
        series=series.name,
        benchmark=series.benchmark or None,
        pool=series.pool or None,
        repository=series.repository,
        recipe=series.recipe,
        package=None if by_commit else series.package,
        kind=row.kind,
        good=ends[0],
        bad=ends[1],
        before=row.before,
        after=row.after,
        change=row.change,
        probability=row.probability,
        labels={"series": series.name, "confirmed_by": row.confirmed_by},
        url=f"/series/{series.name}#change-{row.id}",
    )


def _close_losses(services: Services, row: SeriesChangeRow, series: SeriesRow) -> None:
    """Tell every loss before a recovery what came back; those taken back whole are closed."""
    settings = settings_of(series)
    with services.database.read() as session:
        losses = open_losses(session, series.id, row.first_bad_night)
    for loss in losses:
        left = shortfall(row.after, loss.before, settings.better)
        whole = left > -settings.min_effect
        words = (
            f"back since {row.first_bad_night:%m-%d}"
            if whole
            else f"{format_value(row.after)}, still {-left:.0%} below {loss.last_good_night:%B}"
        )
        alerts.resolve_alert(
            services, SOURCE, loss.id, started_at(loss.first_bad_night), words, whole=whole
        )
        with services.database.write() as session:
            locked = session.get_one(SeriesChangeRow, loss.id, with_for_update=True)
            locked.remaining = None if whole else left
            if whole and locked.state is ChangeState.CONFIRMED:
                locked.state = ChangeState.CLOSED
                locked.closed_at = now()
