"""What hosts do to values: offsets between hosts and slow drift, estimated and removed.

A robust ridge regression on the deviations within groups of points that share a level. Groups are
wheels at first, and stretches without a step once the search knows them, so that a step is never
mistaken for drift. How much drift there is, is averaged over by its evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfbisect.core.axis import IntArray
from perfbisect.core.facts import FloatArray
from perfbisect.core.likelihood import CONTAMINATION, OUTLIER_WIDTH, Samples

#: Prior standard deviation of a host's offset: like machines of one pool, and machines elsewhere.
POOL_OFFSET_SD = 0.03
FOREIGN_OFFSET_SD = 0.3
#: Runs per knot of the drift curve, and knots at most.
RUNS_PER_KNOT = 8
MAX_KNOTS = 10
#: Step sizes of the drift's random walk that are averaged over, in noise scales; 0: no drift.
DRIFT_SCALES = (0.0, 0.3, 1.0)
DRIFT_PRIOR = (0.7, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class Correction:
    """What to subtract from each value, and what it is made of."""

    #: Shape (K,).
    shift: FloatArray
    #: Shape (H,): offset of each host, mean zero over the pool's hosts.
    offsets: FloatArray
    #: Largest minus smallest drift over the search.
    drift: float


def no_correction(samples: Samples) -> Correction:
    """Return a correction of nothing."""
    return Correction(np.zeros(len(samples)), np.zeros(len(samples.hosts)), 0.0)


def estimate(samples: Samples, groups: IntArray, sigma: float, pool: int) -> Correction:
    """Estimate offsets and drift.

    Args:
        samples: Points.
        groups: Shape (K,): points of one group share their level.
        sigma: Noise scale of one run.
        pool: The first ``pool`` hosts belong to the pool.
    """
    hosts = _host_columns(samples, pool)
    drift, knots = _drift_columns(samples, pool)
    if not hosts.columns.shape[1] and not drift.shape[1]:
        return no_correction(samples)
    trust = np.ones(len(samples))
    shift = np.zeros(len(samples))
    fitted = (np.zeros(hosts.columns.shape[1]), np.zeros(drift.shape[1]))
    for _ in range(4):
        fitted = _average(samples.value, groups, trust, sigma, hosts, drift, knots)
        updated = hosts.columns @ fitted[0] + drift @ fitted[1]
        trust = _trust(samples.value - updated, groups, sigma)
        settled = bool(np.max(np.abs(updated - shift), initial=0.0) < 0.02 * sigma)
        shift = updated
        if settled:
            break
    offsets = np.zeros(len(samples.hosts))
    offsets[hosts.which] = fitted[0]
    curve = drift @ fitted[1]
    middle = float(offsets[:pool].mean())
    span = float(curve.max() - curve.min()) if len(curve) else 0.0
    return Correction(shift - middle, offsets - middle, span)


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Indicator columns of the hosts that have points, and their prior precision."""

    which: IntArray
    columns: FloatArray
    precision: FloatArray


def _host_columns(samples: Samples, pool: int) -> _Hosts:
    which = np.unique(samples.host)
    if len(which) < 2:
        which = which[:0]
    columns = (samples.host[:, None] == which).astype(np.float64)
    sd = np.where(which < pool, POOL_OFFSET_SD, FOREIGN_OFFSET_SD)
    return _Hosts(which, columns, 1.0 / sd**2)


def _drift_columns(samples: Samples, pool: int) -> tuple[FloatArray, FloatArray]:
    """Return hat functions over time for each host of the pool, and the walk's penalty matrix."""
    columns: list[FloatArray] = []
    sizes: list[int] = []
    for host in range(pool):
        mine = (samples.host == host) & (samples.history == 0)
        count = int(mine.sum())
        knots = min(MAX_KNOTS, count // RUNS_PER_KNOT + 1)
        if knots < 2:
            continue
        times = samples.at[mine]
        places = np.unique(np.quantile(times, np.linspace(0.0, 1.0, knots)))
        if len(places) < 2:
            continue
        hats = np.zeros((len(samples), len(places)))
        for column in range(len(places)):
            unit = np.zeros(len(places))
            unit[column] = 1.0
            hats[mine, column] = np.interp(times, places, unit)
        columns.append(hats)
        sizes.append(len(places))
    if not columns:
        return np.zeros((len(samples), 0)), np.zeros((0, 0))
    total = sum(sizes)
    penalty = np.zeros((total, total))
    start = 0
    for size in sizes:
        difference = np.diff(np.eye(size), axis=0)
        block = difference.T @ difference
        # Only differences are penalised; the constant is the host's offset or the groups' level.
        block += 0.05 * np.eye(size)
        penalty[start : start + size, start : start + size] = block
        start += size
    return np.hstack(columns), penalty


def _average(
    values: FloatArray,
    groups: IntArray,
    trust: FloatArray,
    sigma: float,
    hosts: _Hosts,
    drift: FloatArray,
    penalty: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Fit for each drift scale and average by evidence; return host and drift coefficients."""
    design = np.hstack([hosts.columns, drift])
    centred = _within(np.column_stack([design, values]), groups, trust)
    weighted = centred[:, :-1] * (trust / sigma**2)[:, None]
    gram = weighted.T @ centred[:, :-1]
    moment = weighted.T @ centred[:, -1]
    split = hosts.columns.shape[1]
    scores: list[float] = []
    fits: list[FloatArray] = []
    scales = DRIFT_SCALES if drift.shape[1] else DRIFT_SCALES[:1]
    for scale, prior in zip(scales, DRIFT_PRIOR, strict=False):
        size = split if scale == 0.0 else len(moment)
        precision = np.zeros((size, size))
        precision[:split, :split] = np.diag(hosts.precision)
        if scale > 0.0:
            precision[split:, split:] = penalty / (scale * sigma) ** 2
        fit = np.zeros(len(moment))
        score = float(np.log(prior))
        if size:
            total = gram[:size, :size] + precision
            fit[:size] = np.linalg.solve(total, moment[:size])
            score += 0.5 * float(moment[:size] @ fit[:size])
            score -= 0.5 * (np.linalg.slogdet(total)[1] - np.linalg.slogdet(precision)[1])
        scores.append(score)
        fits.append(fit)
    weights = np.exp(np.array(scores) - max(scores))
    mean = np.average(np.array(fits), axis=0, weights=weights)
    return mean[:split], mean[split:]


def _within(columns: FloatArray, groups: IntArray, trust: FloatArray) -> FloatArray:
    """Subtract each group's trusted mean from every column."""
    _, index = np.unique(groups, return_inverse=True)
    total = np.bincount(index, weights=trust) + 1e-12
    sums = np.zeros((len(total), columns.shape[1]))
    np.add.at(sums, index, columns * trust[:, None])
    return columns - (sums / total[:, None])[index]


def _trust(values: FloatArray, groups: IntArray, sigma: float) -> FloatArray:
    """Return how probable it is that each value is not an outlier of its group."""
    order = np.lexsort((values, groups))
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ranked = values[order]
    medians = 0.5 * (ranked[starts + (counts - 1) // 2] + ranked[starts + counts // 2])
    centre = np.empty(len(values))
    centre[order] = np.repeat(medians, counts)
    inlier = (1 - CONTAMINATION) * np.exp(-0.5 * ((values - centre) / sigma) ** 2)
    inlier = inlier / (sigma * np.sqrt(2 * np.pi))
    return np.asarray(inlier / (inlier + CONTAMINATION / OUTLIER_WIDTH))
