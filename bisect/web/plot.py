"""The chart as SVG, for readers without JavaScript: coordinates only, the template draws them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Place = Callable[[float], float]

WIDTH, HEIGHT = 960.0, 340.0
LEFT, RIGHT, TOP = 64.0, 16.0, 14.0
#: Bottom of the chart proper, and top and bottom of the posterior strip under it.
BOTTOM, STRIP_TOP, STRIP_BOTTOM = 250.0, 274.0, 318.0

#: Measured commits that can be told apart on a drawing of this width.
MAX_LEVELS = 600


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
class Plot:
    """Everything the template draws, in the view box's units.

    Marks of one kind are one path: thousands of elements would make the page slow and heavy.
    """

    #: Strokes of no length with round ends.
    dots: str
    rejected: str
    #: Vertical strokes over the 95% intervals, horizontal ones at the means, a line through them.
    intervals: str
    means: str
    line: str
    broken: str
    #: Vertical strokes of the posterior strip.
    bars: str
    bands: list[Band]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    threshold: float | None


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round numbers within an interval."""
    if not high > low:
        return [low]
    raw = (high - low) / max(count, 1)
    power: float = 10.0 ** math.floor(math.log10(raw))
    step: float = next(unit * power for unit in (1, 2, 5, 10) if unit * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_label(value: float) -> str:
    """Return a value as axes show it."""
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
        **_levels(levels, x_of, y_of),
        dots=_dots(points, x_of, y_of, rejected=False),
        rejected=_dots(points, x_of, y_of, rejected=True),
        broken="".join(
            f"M{x_of(position) - 3:.1f} {BOTTOM - 6}l6 6m0-6l-6 6"
            for position in chart["unbuildable"]
        ),
        bars=_bars(chart["posterior"], x_of),
        bands=_bands(chart["steps"], x_of),
        x_ticks=[
            Tick(x_of(position), f"{position:.0f}")
            for position in nice_ticks(0, last, 10)
            if position == int(position)
        ],
        y_ticks=[Tick(y_of(value), tick_label(value)) for value in nice_ticks(low, high, 5)],
        threshold=y_of(threshold) if shown else None,
    )


def _levels(levels: dict[str, list[Any]], x_of: Place, y_of: Place) -> dict[str, str]:
    """Return the paths of the measured commits; of more than can be told apart, some."""
    stride = -(-len(levels["position"]) // MAX_LEVELS) or 1
    names = ("position", "mean", "low", "high")
    rows = list(zip(*(levels[name] for name in names), strict=True))[::stride]
    places = [(x_of(at), y_of(mean), y_of(low), y_of(high)) for at, mean, low, high in rows]
    return {
        "intervals": "".join(f"M{x} {bottom}V{top}" for x, _, bottom, top in places),
        "means": "".join(f"M{x - 5:.1f} {y}h10" for x, y, _, _ in places),
        "line": "M" + "L".join(f"{x} {y}" for x, y, _, _ in places) if places else "",
    }


def _dots(points: dict[str, list[Any]], x_of: Place, y_of: Place, *, rejected: bool) -> str:
    columns = zip(points["position"], points["value"], points["rejected"], strict=True)
    return "".join(
        f"M{x_of(position)} {min(max(y_of(value), TOP), BOTTOM)}h0"
        for position, value, was_rejected in columns
        if bool(was_rejected) == rejected
    )


def _bands(steps: list[dict[str, Any]], x_of: Place) -> list[Band]:
    bands = []
    for step in steps:
        if step["position"] is None or step["before_position"] is None:
            continue
        start, end = x_of(step["before_position"]), x_of(step["position"])
        bands.append(Band(start, round(max(end - start, 2.0), 1), str(step["kind"])))
    return bands


def _bars(posterior: dict[str, list[Any]], x_of: Place) -> str:
    height = STRIP_BOTTOM - STRIP_TOP
    columns = zip(posterior["position"], posterior["probability"], strict=True)
    return "".join(
        f"M{x_of(position)} {STRIP_BOTTOM}v-{height * min(share, 1.0):.1f}"
        for position, share in columns
    )
