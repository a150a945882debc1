"""A series' changes in words, for alerts, pages and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from perfbisect.core.states import ChangeKind
from perfbisect.report import format_change, format_probability, format_value
from perfbisect.store.series_tables import SeriesChangeRow, SeriesRow


def change_sentence(
    row: SeriesChangeRow, series: SeriesRow, losses: Sequence[SeriesChangeRow] = ()
) -> str:
    """Return a change in one sentence, with its numbers and its doubt.

    Args:
        losses: what a recovery takes back, whole or in part.
    """
    unit = f" {series.unit}" if series.unit else ""
    span = (
        f"since {row.first_bad_night}"
        if (row.first_bad_night - row.last_good_night).days == 1
        else f"between {row.last_good_night} and {row.first_bad_night}"
    )
    told = (
        f"{format_value(row.before)} → {format_value(row.after)}{unit} "
        f"({format_change(row.change)}) {span}"
    )
    if row.kind is ChangeKind.REGRESSION:
        return f"{told}, {format_probability(row.probability)} likely"
    return f"{told}: {recovery_words(row, losses)}"


def recovery_words(row: SeriesChangeRow, losses: Sequence[SeriesChangeRow] = ()) -> str:
    """Return what came back: ``back since 09-22``, or ``8,400, still 6% below July``."""
    if row.remaining is not None:
        when = f"{losses[0].last_good_night:%B}" if losses else "what it was"
        return f"{format_value(row.after)}, still {-row.remaining:.0%} below {when}"
    if row.recovers_id is not None:
        return f"back since {row.first_bad_night:%m-%d}"
    return "better than before"
