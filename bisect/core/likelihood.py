"""How probable a value is, given the level of its wheel: heavy tails, noise scale on a grid.

Values are compared as *goodness*: the natural logarithm of the metric, negated where lower is
better, so that a regression always goes down and differences are relative changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from scipy.special import gammaincinv

from perfbisect.core.axis import Axis, IntArray
from perfbisect.core.facts import Facts, FloatArray
from perfbisect.core.states import Better, Purpose

#: Share of runs that tell nothing, and the width (log units) over which they spread.
CONTAMINATION = 0.03
OUTLIER_WIDTH = 1.5
#: Before any repeat is seen: median of the noise scale and standard deviation of its logarithm.
NOISE_MEDIAN = 0.015
NOISE_LOG_SD = 1.0
#: Levels on the grid, at most: keeps a decision fast when the change dwarfs the noise.
MAX_LEVELS = 512


@dataclass(frozen=True, slots=True)
class Samples:
    """Accepted points in the order they were measured. Arrays have shape (K,)."""

    #: Representative position of the wheel.
    wheel: IntArray
    #: Goodness.
    value: FloatArray
    #: Index into ``hosts``.
    host: IntArray
    #: Seconds.
    at: FloatArray
    #: (before, after) of a verification, or (-1, -1); shape (K, 2).
    pair: IntArray
    history: IntArray
    hosts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.value)


def samples_of(facts: Facts, axis: Axis) -> Samples:
    """Read the observations; equal facts in any order of arrival give equal samples."""
    ordered = sorted(facts.observations, key=_order)
    names = {host: index for index, host in enumerate(facts.hosts)}
    for observation in ordered:
        names.setdefault(observation.host, len(names))
    positions = np.array([o.position for o in ordered], dtype=np.int64)
    sign = 1.0 if facts.policy.better is Better.HIGHER else -1.0
    pairs = [o.pair if o.purpose is Purpose.VERIFY and o.pair else (-1, -1) for o in ordered]
    return Samples(
        wheel=axis.representative_of[positions],
        value=sign * np.log(np.array([o.value for o in ordered], dtype=np.float64)),
        host=np.array([names[o.host] for o in ordered], dtype=np.int64),
        at=np.array([o.at for o in ordered], dtype=np.float64),
        pair=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        history=np.array([o.purpose is Purpose.HISTORY for o in ordered], dtype=np.int64),
        hosts=tuple(names),
    )


_order = attrgetter("at", "host", "position", "value")


@dataclass(frozen=True, slots=True)
class Grid:
    """Levels (evenly spaced, ascending) and noise scales over which the search marginalises."""

    levels: FloatArray
    sigmas: FloatArray
    #: Log prior of each noise scale.
    log_prior: FloatArray
    #: Noise scale estimated from repeats alone.
    scale: float

    @property
    def spacing(self) -> float:
        """Distance of neighbouring levels."""
        return float(self.levels[1] - self.levels[0])


def group_medians(values: FloatArray, index: IntArray) -> FloatArray:
    """Return the median of each group; ``index`` holds group numbers 0, 1, … without gaps."""
    order = np.lexsort((values, index))
    counts = np.bincount(index)
    starts = np.cumsum(counts) - counts
    ranked = values[order]
    return np.asarray(0.5 * (ranked[starts + (counts - 1) // 2] + ranked[starts + counts // 2]))


def noise_estimate(values: FloatArray, groups: IntArray) -> tuple[float, float]:
    """Estimate the noise scale from repeats of the same wheel.

    Args:
        values: Goodness, shape (K,).
        groups: Which wheel each value belongs to, shape (K,).

    Returns:
        The scale, shrunk to the prior, and its degrees of freedom.
    """
    _, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    medians = group_medians(values, index)
    repeats = counts[index] > 1
    if not np.any(repeats):
        return NOISE_MEDIAN, 0.0
    size = counts[index][repeats].astype(np.float64)
    residuals = (values - medians[index])[repeats] * np.sqrt(size / np.maximum(size - 1.0, 1.0))
    # A value's share of the degrees of freedom: r values around their own centre carry r - 1.
    share = (size - 1.0) / size
    scale = max(float(np.median(np.abs(residuals))) * 1.4826, 1e-4)
    prior_weight = 1.0 / (2.0 * NOISE_LOG_SD**2)
    for _ in range(6):
        inlier = (1 - CONTAMINATION) * np.exp(-0.5 * (residuals / scale) ** 2) / (scale * 2.5066)
        trust = inlier / (inlier + CONTAMINATION / OUTLIER_WIDTH) * share
        freedom = float(trust.sum())
        found = np.sqrt(float((trust * residuals**2).sum()) / max(freedom, 1e-9))
        total = freedom + prior_weight
        pooled = (freedom * np.log(max(found, 1e-5)) + prior_weight * np.log(NOISE_MEDIAN)) / total
        scale = float(np.exp(pooled))
    return scale, freedom


def grid_for(values: FloatArray, groups: IntArray) -> Grid:
    """Lay out levels and noise scales so that they cover what was measured."""
    scale, freedom = noise_estimate(values, groups)
    low, high = _level_range(values, groups, scale)
    # The more runs share a level the sharper it is known, and the finer the grid has to be.
    finest = 0.3 if len(values) < 40 else 0.2 if len(values) < 160 else 0.16
    count = int(np.clip((high - low) / (finest * scale), 48, MAX_LEVELS))
    levels = np.linspace(low, high, count)
    # Below this a level would fall between the grid's points and fit none of them.
    sigmas = np.maximum(_noise_scales(scale, freedom), 0.7 * (levels[1] - levels[0]))
    return Grid(levels, sigmas, noise_prior(sigmas), scale)


def noise_prior(sigmas: FloatArray) -> FloatArray:
    """Return the log prior of noise scales."""
    return np.asarray(-0.5 * (np.log(sigmas / NOISE_MEDIAN) / NOISE_LOG_SD) ** 2)


def _noise_scales(scale: float, freedom: float) -> FloatArray:
    """Spread noise scales over what an estimate with so many degrees of freedom leaves open."""
    freedom = max(freedom, 0.5)
    few, many = 2.0 * gammaincinv(freedom / 2.0, np.array([0.004, 0.98]))
    low, high = scale * np.sqrt(freedom / many), scale * np.sqrt(freedom / max(few, 1e-6))
    low = max(low, min(scale, NOISE_MEDIAN * np.exp(-2.5 * NOISE_LOG_SD)))
    high = min(high, max(scale, NOISE_MEDIAN * np.exp(2.5 * NOISE_LOG_SD)))
    count = int(np.clip(np.ceil(np.log(high / low) / 0.35), 4, 8))
    return np.geomspace(low, high, count)


def _level_range(values: FloatArray, groups: IntArray, scale: float) -> tuple[float, float]:
    """Return a range that holds every level, with room for levels not seen yet."""
    _, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    centres = group_medians(values, index)
    # A lone value far from every other wheel may be an outlier: it does not stretch the grid by
    # itself, unless it is repeated.
    firm = centres[counts > 1] if np.any(counts > 1) else centres
    low, high = float(firm.min()), float(firm.max())
    inside = centres[(centres > low - 0.35) & (centres < high + 0.35)]
    low, high = min(low, float(inside.min())), max(high, float(inside.max()))
    margin = max(0.03, 4.0 * scale, 0.15 * (high - low))
    return low - margin, high + margin


def log_likelihood(values: FloatArray, slots: IntArray, count: int, grid: Grid) -> FloatArray:
    """Sum the log likelihood of all values of each slot.

    Args:
        values: Goodness, shape (K,).
        slots: Which measured node each value speaks for, 0 … count - 1, shape (K,).
        count: Number of slots.
        grid: Levels G and noise scales S.

    Returns:
        Shape (count, S, G).
    """
    out = np.zeros((count, len(grid.sigmas), len(grid.levels)))
    if not len(values):
        return out
    order = np.argsort(slots, kind="stable")
    # Taken from the middle, single precision is good to a millionth of the range.
    middle = float(grid.levels.mean())
    distance = (values[order, None] - middle).astype(np.float32)
    distance = (distance - (grid.levels - middle).astype(np.float32)) ** 2
    inverse = (-0.5 / grid.sigmas**2).astype(np.float32)
    density = np.exp(distance[:, None, :] * inverse[None, :, None])
    density *= ((1 - CONTAMINATION) / (grid.sigmas * np.sqrt(2 * np.pi))).astype(np.float32)[
        :, None
    ]
    density += np.float32(CONTAMINATION / OUTLIER_WIDTH)
    np.log(density, out=density)
    ranked = slots[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    out[ranked[starts]] = np.add.reduceat(density, starts, axis=0)
    return out
