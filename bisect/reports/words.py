"""Numbers, names and text as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

#: Characters of a commit's name that people see.
SHORT = 10


def short(sha: str) -> str:
    """Return the first characters of a commit's full name; other revisions stay as they are."""
    return sha[:SHORT] if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", sha) else sha


def format_value(value: float | None) -> str:
    """Return a value with four digits: ``9,000``, ``12.35``, ``0.001235``."""
    if value is None or math.isnan(value):
        return "?"
    if math.isinf(value):
        return _infinite(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _infinite(value: float) -> str:
    """Return what old rows may hold, as such."""
    return "\N{INFINITY}" if value > 0 else "-\N{INFINITY}"


def format_change(change: float | None) -> str:
    """Return a relative change as a signed percentage: ``-67.8%``."""
    if change is None or math.isnan(change):
        return "?"
    return (
        f"{change:+.1%}"
        if math.isfinite(change)
        else f"{'+' if change > 0 else ''}{_infinite(change)}"
    )


def format_interval(interval: Sequence[float | None] | None) -> str:
    """Return an interval of relative changes: ``-69.0% to -66.0%``."""
    if not interval or any(end is None for end in interval):
        return "?"
    low, high = sorted(end for end in interval if end is not None)
    return f"{low:+.1%} to {high:+.1%}"


def format_probability(probability: float | None) -> str:
    """Return a probability without ever claiming certainty: ``99.2%``, ``>99.9%``, ``<0.1%``."""
    if probability is None:
        return "?"
    if probability > 0.9994:
        return ">99.9%"
    if probability < 0.0006:
        return "<0.1%"
    return f"{probability:.1%}"


def printable(text: object) -> str:
    """Return text from commits and logs on one line, without what a terminal would obey."""
    flat = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "?" for c in flat)


def plural(count: int, noun: str) -> str:
    """Return ``1 run``, ``2 runs``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_span(ends: Sequence[float | None] | None) -> str:
    """Return an interval of values: ``8,950 to 9,050``; empty where it is not known."""
    if not ends or any(end is None for end in ends):
        return ""
    low, high = sorted(end for end in ends if end is not None)
    return f"{format_value(low)} to {format_value(high)}"
