"""Searching a series: each new night is looked at as if it had just come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from perfbisect.core.series import (
    HISTORY,
    LOOKBACK,
    FoundChange,
    KnownChange,
    NightValue,
    SeriesSettings,
    find_change,
    is_suspicious,
)
from perfbisect.core.series_hosts import HostValue, nights_of_points
from perfbisect.core.series_states import ChangeState
from perfbisect.core.states import Better, ChangeKind
from perfbisect.nightly.definitions import settings_of
from perfbisect.nightly.measuring import can_compare
from perfbisect.nightly.points import points_of
from perfbisect.nightly.words import change_sentence
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.series_tables import SeriesChangeRow, SeriesPointRow, SeriesRow

#: Why a change that is old when its points come is neither measured again nor told to anybody.
HISTORY_WORDS = "it was history when its points came: nights decide, and nobody is told"
#: States in which a change waits for more to be known.
OPEN = (ChangeState.SUSPECTED, ChangeState.CONFIRMING)


def pending_series(session: Session) -> list[str]:
    """Return the ids of series with points that were not searched yet."""
    newest = (
        select(SeriesPointRow.series_id, func.max(SeriesPointRow.received_at).label("at"))
        .group_by(SeriesPointRow.series_id)
        .subquery()
    )
    query = (
        select(SeriesRow.id)
        .join(newest, newest.c.series_id == SeriesRow.id)
        .where(or_(SeriesRow.searched_at.is_(None), SeriesRow.searched_at < newest.c.at))
        .order_by(SeriesRow.name)
    )
    return list(session.scalars(query))


@dataclass(frozen=True, slots=True)
class _Read:
    """A series as it was when its search began."""

    series: SeriesRow
    settings: SeriesSettings
    points: Sequence[SeriesPointRow]
    nights: Sequence[NightValue]
    #: Nights to look at, in order.
    due: Sequence[date]


def search_series(services: Services, series_id: str) -> None:
    """Look at every night that has not been looked at yet, in order, and store what is found."""
    began = now()
    with services.database.read() as session:
        read = _read(session, series_id)
    by_night = {each.night: index for index, each in enumerate(read.nights)}
    for night in read.due:
        seen = read.nights[max(0, by_night[night] + 1 - HISTORY) : by_night[night] + 1]
        with services.database.read() as session:
            rows = _changes(session, series_id)
        judged = [_judged_by_nights(row, seen, rows, read.settings) for row in rows]
        found = is_suspicious(seen, read.settings, _known(rows)) and find_change(
            seen, read.settings, _known(rows)
        )
        with services.database.write() as session:
            for row, again in zip(rows, judged, strict=True):
                if again is not None:
                    _update(session, row.id, again, read)
            if found and found.suspected:
                _insert(session, read, found, night)
            session.get_one(SeriesRow, series_id).searched_night = night
    with services.database.write() as session:
        session.get_one(SeriesRow, series_id).searched_at = began


def _read(session: Session, series_id: str) -> _Read:
    series = session.get_one(SeriesRow, series_id)
    points = points_of(session, series_id)
    nights = nights_of_points([HostValue(row.night, row.host, row.value) for row in points])
    searched = series.searched_night
    due = [each.night for each in nights if searched is None or each.night > searched]
    if not due and nights:
        # Late points of nights that were looked at: what is known now is looked at once more.
        due = [nights[-1].night]
    return _Read(series, settings_of(series), points, nights, due)


def _changes(session: Session, series_id: str) -> list[SeriesChangeRow]:
    query = select(SeriesChangeRow).where(SeriesChangeRow.series_id == series_id)
    return list(session.scalars(query.order_by(SeriesChangeRow.first_bad_night)))


def _known(
    rows: Iterable[SeriesChangeRow], without: SeriesChangeRow | None = None
) -> list[KnownChange]:
    return [
        KnownChange(
            row.last_good_night,
            row.first_bad_night,
            real=row.state is not ChangeState.REFUTED,
            measured=row.confirmed_by == "measured",
        )
        for row in rows
        if row is not without
    ]


def _judged_by_nights(
    row: SeriesChangeRow,
    nights: Sequence[NightValue],
    rows: Sequence[SeriesChangeRow],
    settings: SeriesSettings,
) -> FoundChange | None:
    """Return what the nights say now of a suspicion that waits for them."""
    if row.state not in OPEN:
        return None
    return find_change(nights, settings, _known(rows, row))


def _update(session: Session, change_id: str, again: FoundChange, read: _Read) -> None:
    """Let further nights sharpen, confirm or refute a suspicion."""
    row = session.get_one(SeriesChangeRow, change_id, with_for_update=True)
    if row.state is not ChangeState.SUSPECTED:
        return
    overlaps = again.last_good < row.first_bad_night and row.last_good_night < again.first_bad
    if again.log_odds < 0.0 or not overlaps or again.kind is not row.kind:
        if again.log_odds < again.bound:
            row.state = ChangeState.REFUTED
            row.refuted_at = now()
            row.reason = f"taken back by later nights: now {again.probability:.0%} likely"
        return
    if again.first_bad == row.first_bad_night or not _is_taken(session, read.series.id, again):
        _describe(row, again, read)
    enough = again.suspected and again.nights > read.settings.confirm_nights
    if enough and not _waits_for_measurement(session, row, read.series):
        row.state = ChangeState.CONFIRMED
        row.confirmed_by = "nights"
        row.confirmed_at = now()
        losses = relate(session, row, read.settings)
        row.reason = change_sentence(row, read.series, losses)


def _waits_for_measurement(session: Session, row: SeriesChangeRow, series: SeriesRow) -> bool:
    """Return whether its nights can be measured again, which tells more than further nights do."""
    good, bad = (
        session.get_one(SeriesPointRow, each) for each in (row.good_point_id, row.bad_point_id)
    )
    return not row.cant_measure and can_compare(series, good, bad)


def _is_taken(session: Session, series_id: str, found: FoundChange) -> bool:
    """Return whether a change of this kind that ends in this night is there already."""
    query = select(SeriesChangeRow.id).where(
        SeriesChangeRow.series_id == series_id,
        SeriesChangeRow.first_bad_night == found.first_bad,
        SeriesChangeRow.kind == found.kind,
    )
    return session.scalar(query) is not None


def _is_history(read: _Read, night: date) -> bool:
    """Return whether so many nights were known already that this one is no news."""
    return sum(each.night > night for each in read.nights) > LOOKBACK


def _insert(session: Session, read: _Read, found: FoundChange, night: date) -> None:
    if _is_taken(session, read.series.id, found):
        return
    row = SeriesChangeRow(
        id=new_id(),
        series_id=read.series.id,
        state=ChangeState.SUSPECTED,
        kind=found.kind,
        suspected_night=night,
        cant_measure=HISTORY_WORDS if _is_history(read, night) else "",
        confirmed_by="",
        created_at=now(),
    )
    _describe(row, found, read)
    losses = relate(session, row, read.settings)
    row.reason = change_sentence(row, read.series, losses)
    session.add(row)


def _describe(row: SeriesChangeRow, found: FoundChange, read: _Read) -> None:
    by_night = {point.night: point for point in reversed(read.points)}
    row.last_good_night, row.first_bad_night = found.last_good, found.first_bad
    row.good_point_id = by_night[found.last_good].id
    row.bad_point_id = by_night[found.first_bad].id
    row.probability = found.probability
    row.before, (row.before_low, row.before_high) = found.before, found.before_ci95
    row.after, (row.after_low, row.after_high) = found.after, found.after_ci95
    row.change, (row.change_low, row.change_high) = found.change, found.ci95


def relate(
    session: Session, row: SeriesChangeRow, settings: SeriesSettings
) -> list[SeriesChangeRow]:
    """Say which loss a recovery takes back, and how much of all losses is left.

    Returns:
        the losses, the one with the most left first.
    """
    if row.kind is not ChangeKind.RECOVERY:
        return []
    losses = open_losses(session, row.series_id, row.first_bad_night)
    row.recovers_id = losses[-1].id if losses else None
    losses.sort(key=lambda loss: shortfall(row.after, loss.before, settings.better))
    left = shortfall(row.after, losses[0].before, settings.better) if losses else 0.0
    row.remaining = left if left <= -settings.min_effect else None
    return losses


def open_losses(session: Session, series_id: str, before: date) -> list[SeriesChangeRow]:
    """Return the regressions that nothing has taken back whole, in the order of nights."""
    query = select(SeriesChangeRow).where(
        SeriesChangeRow.series_id == series_id,
        SeriesChangeRow.kind == ChangeKind.REGRESSION,
        SeriesChangeRow.state.in_((*OPEN, ChangeState.CONFIRMED)),
        SeriesChangeRow.last_good_night < before,
    )
    return list(session.scalars(query.order_by(SeriesChangeRow.first_bad_night)))


def shortfall(after: float, before: float, better: Better) -> float:
    """Return by how much a level is worse than one before (``-0.06``), or better (positive)."""
    return after / before - 1.0 if better is Better.HIGHER else before / after - 1.0
