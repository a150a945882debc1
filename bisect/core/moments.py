"""Moments as others write them, put into UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def in_utc(moment: datetime) -> datetime:
    """Return a moment in UTC, which is what one without a time zone is taken for.

    Raises:
        ValueError: there it lies before the year 1 or after the year 9999.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("should be a moment of the years 1 to 9999 in UTC") from error


def from_epoch(seconds: float) -> datetime:
    """Return the moment that lies so many seconds after the beginning of 1970.

    Raises:
        ValueError: it is none of the years 1 to 9999, or no number.
    """
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError("should be seconds since 1970, of the years 1 to 9999") from error
