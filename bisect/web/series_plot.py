"""A nightly series as SVG, for readers without JavaScript: coordinates only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from perfbisect.web.plot import Tick, nice_ticks, tick_label

WIDTH, HEIGHT = 960.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 14.0, 262.0
#: Ticks of the axis of nights.
X_TICKS = 6


@dataclass(frozen=True, slots=True)
class Stretch:
    """Nights that are shaded: a change's place, or nights without a value."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True, slots=True)
class SeriesPlot:
    """Everything the template draws, in the view box's units."""

    dots: str
    #: Through neighbouring nights; broken where nights are missing.
    line: str
    changes: list[Stretch]
    missing: list[Stretch]
    x_ticks: list[Tick]
    y_ticks: list[Tick]


def series_plot(chart: Mapping[str, Any]) -> SeriesPlot | None:
    """Return the drawing of a series' columns; None where there is no night."""
    columns = zip(chart["points"]["night"], chart["points"]["value"], strict=True)
    points = [(night, float(value)) for night, value in columns if math.isfinite(value)]
    days = [date.fromisoformat(night).toordinal() for night, _ in points]
    values = [value for _, value in points]
    if not days:
        return None
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    first, last = min(days), max(max(days), min(days) + 1)

    def x_of(day: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (day - first + 0.5) / (last - first + 1), 1)

    def y_of(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low), 1)

    places = [(x_of(day), y_of(value)) for day, value in zip(days, values, strict=True)]
    steps = sorted({round(first + (last - first) * k / (X_TICKS - 1)) for k in range(X_TICKS)})
    return SeriesPlot(
        dots="".join(f"M{x} {y}h0" for x, y in places),
        line=_line(days, places),
        changes=[
            _stretch(each["good"], each["bad"], each["kind"], x_of)
            for each in chart["changes"]
            if each["state"] != "refuted"
        ],
        missing=[
            _stretch(first_, last_, "missing", x_of, 0.5) for first_, last_ in chart["missing"]
        ],
        x_ticks=[Tick(x_of(day), date.fromordinal(day).isoformat()) for day in steps],
        y_ticks=[Tick(y_of(value), tick_label(value)) for value in nice_ticks(low, high, 5)],
    )


def _line(days: Sequence[int], places: Sequence[tuple[float, float]]) -> str:
    parts = []
    for index, (x, y) in enumerate(places):
        near = index > 0 and days[index] - days[index - 1] <= 1
        parts.append(f"{'L' if near else 'M'}{x} {y}")
    return "".join(parts)


def _stretch(first: str, last: str, kind: str, x_of: Any, beyond: float = 0.0) -> Stretch:
    start = x_of(date.fromisoformat(first).toordinal() - beyond)
    end = x_of(date.fromisoformat(last).toordinal() + beyond)
    return Stretch(start, round(max(end - start, 3.0), 1), kind)
