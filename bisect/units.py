"""Durations, shares, thresholds and sizes as people write them: read and written here only."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise

from perfbisect.errors import BadInputError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[smhd])\s*)+", re.IGNORECASE)
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[smhd])", re.IGNORECASE)
_PLAIN = re.compile(rf"{_NUMBER}(?:e[+-]?\d+)?", re.IGNORECASE)
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def _wrong(field: str, value: object, right: str) -> BadInputError:
    return BadInputError(f"{field}: {value!r} is not {right}", field=field, value=value)


def _number(value: object) -> float | None:
    """Return a finite number that is not a bool, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def parse_duration(value: object, field: str = "duration") -> float:
    """Return seconds, greater than zero, of ``90``, ``"90"``, ``"90s"``, ``"15m"`` or ``"1h30m"``.

    Raises:
        BadInputError: anything else; the message names ``field``.
    """
    right = "a duration greater than zero like '90s', '15m', '4h', '1h30m' or a number of seconds"
    seconds = _number(value)
    if isinstance(value, str):
        text = value.strip()
        if _PLAIN.fullmatch(text):
            seconds = float(text)
        elif _DURATION.fullmatch(text):
            parts = _DURATION_PART.findall(text)
            seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise _wrong(field, value, right)
    return seconds


def format_duration(seconds: float) -> str:
    """Return seconds for people: ``0.25s``, ``45s``, ``15m``, ``1h30m``, ``2d4h``.

    Two units at most. `parse_duration` reads it back.
    """
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 10:
        return f"{round(seconds, 2):g}s"
    rest = round(seconds)
    for (large, size), (small, part) in pairwise((("d", 86400), ("h", 3600), ("m", 60), ("s", 1))):
        rounded = round(rest / part) * part
        # From just below a full unit, rounding to the next smaller one reaches it: 23h59m59s is 1d.
        if rest >= size or (rounded >= size and rest > size - part // 60):
            count, left = divmod(rounded, size)
            return f"{count}{large}" + (f"{left // part}{small}" if left else "")
    return f"{rest}s"


def parse_percent(value: object, field: str = "share") -> float:
    """Return ``"3%"`` or ``0.03`` as 0.03: greater than zero and less than one.

    Raises:
        BadInputError: anything else; a number from 1 on most likely lacks its ``%``.
    """
    share = _number(value)
    if isinstance(value, str):
        text = value.strip()
        if percent := _PERCENT.fullmatch(text):
            share = float(percent.group(1)) / 100
        elif _PLAIN.fullmatch(text):
            share = float(text)
    if share is None or not 0 < share < 1:
        hint = f" (did you mean '{share:g}%'?)" if share is not None and 1 <= share < 100 else ""
        raise _wrong(field, value, f"a share between 0 and 1 like '3%' or 0.03{hint}")
    return share


@dataclass(frozen=True, slots=True)
class Threshold:
    """Where good ends and bad begins: exactly one of the two is set."""

    #: In the benchmark's unit.
    absolute: float | None = None
    #: Of the good end's mean, e.g. 0.7.
    share: float | None = None


def parse_threshold(value: object, field: str = "threshold") -> Threshold:
    """Return ``"6000"`` or ``6000`` as an absolute value, ``"70%"`` as a share of the good end.

    A share may pass 100%: where lower is better, bad is more than good.

    Raises:
        BadInputError: anything else, or not greater than zero.
    """
    right = "a threshold greater than zero like '6000' (in the benchmark's unit) or '70%'"
    absolute = _number(value)
    share = None
    if isinstance(value, str):
        text = value.strip()
        if percent := _PERCENT.fullmatch(text):
            share = float(percent.group(1)) / 100
        elif _PLAIN.fullmatch(text):
            absolute = float(text)
    chosen = absolute if share is None else share
    if chosen is None or not math.isfinite(chosen) or chosen <= 0:
        raise _wrong(field, value, right)
    return Threshold(absolute=absolute, share=share)


def parse_size(value: object, field: str = "size") -> int:
    """Return bytes, greater than zero, of ``"512m"``, ``"8g"``, ``"1.5GiB"`` or a number of bytes.

    Units are powers of 1024, as Docker reads them.

    Raises:
        BadInputError: anything else; the message names ``field``.
    """
    size = _number(value)
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        size = float(match.group(1)) * _BYTES[match.group(2).lower()]
    if size is None or not math.isfinite(size) or size < 1:
        raise _wrong(field, value, "a size like '512m', '8g' or a number of bytes")
    return int(size)


def format_size(size: float) -> str:
    """Return bytes for people, in powers of 1024: ``512 B``, ``1.5 MiB``, ``12 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
