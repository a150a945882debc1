"""The chart as SVG, for readers without JavaScript: coordinates only, the template draws them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Place = Callable[[float], float]

WIDTH, HEIGHT = 960.0, 340.0
LEFT, RIGHT, TOP = 64.0, 16.0, 14.0
#: Bottom of the chart proper, and top and bottom of the posterior strip under it.
BOTTOM, STRIP_TOP, STRIP_BOTTOM = 250.0, 274.0, 318.0

#: Circles that are drawn one by one at most; beyond that, means have to do.
MAX_POINTS = 3000


@dataclass(frozen=True, slots=True)
class Dot:
    """A point."""

    x: float
    y: float
    rejected: bool


@dataclass(frozen=True, slots=True)
class Level:
    """A measured commit: its mean and the ends of its 95% interval."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Band:
    """A step's place: from the last commit before to the first after."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True, slots=True)
class Bar:
    """Probability of a step at a position."""

    x: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything the template draws, in the view box's units."""

    dots: list[Dot] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    unbuildable: list[float] = field(default_factory=list)
    x_ticks: list[Tick] = field(default_factory=list)
    y_ticks: list[Tick] = field(default_factory=list)
    threshold: float | None = None


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round numbers within an interval."""
    if not high > low:
        return [low]
    raw = (high - low) / max(count, 1)
    power: float = 10.0 ** math.floor(math.log10(raw))
    step: float = next(unit * power for unit in (1, 2, 5, 10) if unit * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _tick_label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def plot_of(chart: dict[str, Any]) -> Plot | None:
    """Return the drawing of a chart's columns; None where nothing is measured yet."""
    points, levels = chart["points"], chart["levels"]
    # A rejected point may lie far off; it must not set the scale.
    columns = zip(points["value"], points["rejected"], strict=True)
    accepted = [value for value, rejected in columns if not rejected]
    values = [*(accepted or points["value"]), *levels["low"], *levels["high"]]
    if not values:
        return None
    low, high = float(min(values)), float(max(values))
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    last = max(int(chart["last"]), 1)

    def x_of(position: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (position + 0.5) / (last + 1), 1)

    def y_of(value: float) -> float:
        share = (value - low) / (high - low)
        return round(BOTTOM - (BOTTOM - TOP) * share, 1)

    threshold = chart["threshold"]
    shown = threshold is not None and low <= threshold <= high
    return Plot(
        dots=_dots(points, x_of, y_of),
        levels=[
            Level(x_of(position), y_of(mean), y_of(bottom), y_of(top))
            for position, mean, bottom, top in zip(
                levels["position"], levels["mean"], levels["low"], levels["high"], strict=True
            )
        ],
        bands=_bands(chart["steps"], x_of),
        bars=_bars(chart["posterior"], x_of),
        unbuildable=[x_of(position) for position in chart["unbuildable"]],
        x_ticks=[
            Tick(x_of(position), f"{position:.0f}")
            for position in nice_ticks(0, last, 10)
            if position == int(position)
        ],
        y_ticks=[Tick(y_of(value), _tick_label(value)) for value in nice_ticks(low, high, 5)],
        threshold=y_of(threshold) if shown else None,
    )


def _dots(points: dict[str, list[Any]], x_of: Place, y_of: Place) -> list[Dot]:
    columns = zip(points["position"], points["value"], points["rejected"], strict=True)
    return [
        Dot(x_of(position), min(max(y_of(value), TOP), BOTTOM), bool(rejected))
        for position, value, rejected in list(columns)[:MAX_POINTS]
    ]


def _bands(steps: list[dict[str, Any]], x_of: Place) -> list[Band]:
    bands = []
    for step in steps:
        if step["position"] is None or step["before_position"] is None:
            continue
        start, end = x_of(step["before_position"]), x_of(step["position"])
        bands.append(Band(start, round(end - start, 1), str(step["kind"])))
    return bands


def _bars(posterior: dict[str, list[Any]], x_of: Place) -> list[Bar]:
    bars = []
    for position, share in zip(posterior["position"], posterior["probability"], strict=True):
        height = round((STRIP_BOTTOM - STRIP_TOP) * min(share, 1.0), 1)
        bars.append(Bar(x_of(position), round(STRIP_BOTTOM - height, 1), height))
    return bars
