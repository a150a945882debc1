"""Following a simulated series night by night: what a detector says, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from benchmarks.series.scenes import Scene, nights_of, values_of

from perfbisect.core.series import LOOKBACK, SeriesSettings, log_odds_of_change

FloatArray = npt.NDArray[np.float64]

#: Nights that every detector has seen before it is asked.
FIRST = 10
#: Nights after a drop in which it has to be noticed.
SOON = 10
#: Stable nights before the drop.
BEFORE = 30


def odds_of(values: FloatArray, settings: SeriesSettings, first: int) -> FloatArray:
    """Return perfbisect's log odds in each night from the ``first``-th on."""
    nights = nights_of(values)
    return np.array(
        [log_odds_of_change(nights[:seen], settings) for seen in range(first, len(nights) + 1)]
    )


def alarms_in(odds: FloatArray, bound: float) -> int:
    """Return how often the odds pass a bound; one that lasts is one alarm."""
    count, night = 0, 0
    while night < len(odds):
        if odds[night] >= bound:
            count += 1
            night += LOOKBACK
        else:
            night += 1
    return count


def stable_values(scene: Scene, nights: int, number: int) -> FloatArray:
    """Return the values of a stable series; the number is its seed."""
    return values_of(scene, nights, np.random.default_rng(1000 + number))


def dropping_values(scene: Scene, change: float, number: int) -> FloatArray:
    """Return the values of a series that drops after ``BEFORE`` nights."""
    dropping = replace(scene, change=change, at=BEFORE)
    return values_of(dropping, BEFORE + SOON, np.random.default_rng(5000 + number))


def first_night(found: Sequence[bool]) -> int | None:
    """Return after how many nights (from 1) something was said; None: not soon."""
    return next((night for night, said in enumerate(found, 1) if said), None)
