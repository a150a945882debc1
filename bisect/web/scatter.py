"""Points over time as SVG: coordinates only, the template draws them. One panel for each unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perfbisect.routers.models import Point
from perfbisect.web.plot import Tick, nice_ticks, tick_label

WIDTH, HEIGHT = 960.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 14.0, 206.0
#: Hosts that are told apart by colour; more share the last one.
COLOURS = 6


@dataclass(frozen=True, slots=True)
class Cloud:
    """The points of one host as one path: strokes of no length with round ends."""

    host: str
    #: Which colour, from 0.
    colour: int
    dots: str
    rejected: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """Everything the template draws, in the view box's units."""

    unit: str
    clouds: list[Cloud]
    x_ticks: list[Tick]
    y_ticks: list[Tick]


def scatter_of(points: Sequence[Point]) -> Scatter | None:
    """Return the drawing; None where the points are of several benchmarks, or too few.

    Values of different benchmarks, like those of different units, have no common scale.
    """
    points = [point for point in points if math.isfinite(point.value)]
    accepted = [point for point in points if not point.rejected]
    if len(accepted) < 2 or len({(point.benchmark_digest, point.unit) for point in points}) != 1:
        return None
    low, high = min(p.value for p in accepted), max(p.value for p in accepted)
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    start = min(point.measured_at for point in points)
    end = max(max(point.measured_at for point in points), start + timedelta(seconds=1))

    def height(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low)

    def place(point: Point) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * _share(point.measured_at, start, end)
        return f"M{x:.1f} {min(max(height(point.value), TOP), BOTTOM):.1f}h0"

    hosts = sorted({point.host for point in points})
    return Scatter(
        unit=points[0].unit,
        clouds=[
            Cloud(
                host,
                min(number, COLOURS - 1),
                "".join(place(p) for p in points if p.host == host and not p.rejected),
                "".join(place(p) for p in points if p.host == host and p.rejected),
            )
            for number, host in enumerate(hosts)
        ],
        x_ticks=_moments(start, end),
        y_ticks=[
            Tick(
                round(BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low), 1), tick_label(value)
            )
            for value in nice_ticks(low, high, 4)
        ],
    )


def _share(moment: datetime, start: datetime, end: datetime) -> float:
    return (moment - start) / (end - start)


def _moments(start: datetime, end: datetime) -> list[Tick]:
    """Return five moments from end to end, as days or, within two days, as hours."""
    form = "%H:%M" if end - start < timedelta(days=2) else "%Y-%m-%d"
    ticks = []
    for number in range(5):
        moment = start + (end - start) * number / 4
        ticks.append(Tick(LEFT + (WIDTH - LEFT - RIGHT) * number / 4, moment.strftime(form)))
    return ticks
