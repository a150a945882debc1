"""Simulated nightly series: stable ones, with outliers, with slow drift, and with a drop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt

from perfbisect.core.series import NightValue

#: First night of every series.
FIRST = date(2019, 6, 1)
#: Level before anything happens.
LEVEL = 9000.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What a series is made of. All sizes are relative."""

    name: str
    #: Standard deviation of the log of one night's value.
    noise: float = 0.01
    #: Share of nights that tell nothing, and what they are multiplied with.
    outliers: float = 0.0
    outlier_factor: float = 0.6
    #: Peak to peak of a slow wave with a period of ``DRIFT_PERIOD`` nights, at a random phase.
    drift: float = 0.0
    #: Relative change at night ``at`` (the first that shows it).
    change: float = 0.0
    at: int = 0
    #: Share of nights without a value.
    missing: float = 0.0
    #: Degrees of freedom of the noise; 0: normal.
    freedom: float = 0.0


#: Nights in one wave of the drift.
DRIFT_PERIOD = 120.0

STABLE = Scene("stable")
OUTLIERS = Scene("2% outliers at 0.6", outliers=0.02)
DRIFT = Scene("slow drift of 3%", drift=0.03)
HEAVY = Scene("noise of Student's t, 4 degrees", freedom=4.0)


def values_of(scene: Scene, nights: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the values of all nights, shape (nights,); NaN where one is missing."""
    noise = (
        random.standard_t(scene.freedom, nights) * math.sqrt((scene.freedom - 2) / scene.freedom)
        if scene.freedom
        else random.standard_normal(nights)
    )
    log = scene.noise * noise
    time = np.arange(nights)
    log += 0.5 * scene.drift * np.sin(2 * np.pi * (time / DRIFT_PERIOD + random.random()))
    log = log + np.where(time >= scene.at, math.log1p(scene.change), 0.0)
    log = log + np.where(
        random.random(nights) < scene.outliers, math.log(scene.outlier_factor), 0.0
    )
    values = LEVEL * np.exp(log)
    return np.where(random.random(nights) < scene.missing, np.nan, values)


def nights_of(values: npt.NDArray[np.float64]) -> list[NightValue]:
    """Return the nights that have a value, as the detection takes them."""
    return [
        NightValue(FIRST + timedelta(days=index), float(value))
        for index, value in enumerate(values)
        if not math.isnan(value)
    ]
