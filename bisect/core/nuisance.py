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
from perfbisect.core.likelihood import CONTAMINATION, OUTLIER_WIDTH, Samples, group_medians

#: Prior standard deviation of a host's offset: like machines of one pool, and machines elsewhere.
POOL_OFFSET_SD = 0.03
FOREIGN_OFFSET_SD = 0.3
#: Runs per knot of the drift curve, and knots at most.
RUNS_PER_KNOT = 5
MAX_KNOTS = 16
#: Step sizes of the drift's random walk that are averaged over, in noise scales; 0: no drift.
DRIFT_SCALES = (0.0, 0.3, 1.0)
DRIFT_PRIOR = (0.8, 0.1, 0.1)


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


def moved(correction: Correction, samples: Samples, host: int, move: float) -> Correction:
    """Return a correction with one host's offset larger by ``move``."""
    offsets = correction.offsets.copy()
    offsets[host] += move
    shift = correction.shift + np.where(samples.host == host, move, 0.0)
    return Correction(shift, offsets, correction.drift)


def estimate(
    samples: Samples, groups: IntArray, sigma: float, pool: int, expected: FloatArray
) -> Correction:
    """Estimate offsets and drift.

    Args:
        samples: Points.
        groups: Shape (K,): points of one group share their level.
        sigma: Noise scale of one run.
        pool: The first ``pool`` hosts belong to the pool.
        expected: Shape (H,): offsets of the hosts, towards which the estimates are shrunk.
    """
    hosts = _host_columns(samples, pool)
    drift, penalty = _drift_columns(samples, pool)
    if not hosts.columns.shape[1] and not drift.shape[1]:
        return no_correction(samples)
    _, index = np.unique(groups, return_inverse=True)
    design = np.hstack([hosts.columns, drift])
    values = samples.value - expected[samples.host]
    shift = np.zeros(len(samples))
    fit = np.zeros(design.shape[1])
    for _ in range(4):
        trust = _trust(values - shift, index, sigma)
        fit = _average(values, index, trust, sigma, design, hosts, penalty)
        updated = design @ fit
        moved = float(np.max(np.abs(updated - shift)))
        shift = updated
        if moved < 0.05 * sigma:
            break
    offsets = expected.copy()
    offsets[hosts.which] += fit[: len(hosts.which)]
    curve = drift @ fit[len(hosts.which) :]
    middle = float(offsets[:pool].mean())
    span = float(curve.max() - curve.min()) if len(curve) else 0.0
    return Correction(shift + expected[samples.host] - middle, offsets - middle, span)


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
    for host in range(pool):
        mine = np.flatnonzero((samples.host == host) & (samples.history == 0))
        knots = min(MAX_KNOTS, len(mine) // RUNS_PER_KNOT + 1)
        if knots < 2:
            continue
        times = samples.at[mine]
        places = np.unique(times[np.linspace(0, len(mine) - 1, knots).astype(np.int64)])
        if len(places) < 2:
            continue
        left = np.clip(np.searchsorted(places, times, side="right") - 1, 0, len(places) - 2)
        share = (times - places[left]) / (places[left + 1] - places[left])
        hats = np.zeros((len(samples), len(places)))
        hats[mine, left] = 1.0 - share
        hats[mine, left + 1] = share
        columns.append(hats)
    total = sum(hats.shape[1] for hats in columns)
    penalty = np.zeros((total, total))
    start = 0
    for hats in columns:
        end = start + hats.shape[1]
        difference = np.diff(np.eye(end - start), axis=0)
        # Only differences are penalised; the constant is the host's offset or the groups' level.
        penalty[start:end, start:end] = difference.T @ difference + 0.05 * np.eye(end - start)
        start = end
    return np.hstack(columns) if columns else np.zeros((len(samples), 0)), penalty


def _average(
    values: FloatArray,
    index: IntArray,
    trust: FloatArray,
    sigma: float,
    design: FloatArray,
    hosts: _Hosts,
    penalty: FloatArray,
) -> FloatArray:
    """Fit for each drift scale and average by evidence; return the coefficients."""
    centred = _within(np.column_stack([design, values]), index, trust)
    weighted = centred[:, :-1] * (trust / sigma**2)[:, None]
    gram = weighted.T @ centred[:, :-1]
    moment = weighted.T @ centred[:, -1]
    split, whole = len(hosts.which), len(moment)
    scores: list[float] = []
    fits: list[FloatArray] = []
    scales = DRIFT_SCALES if whole > split else DRIFT_SCALES[:1]
    for scale, prior in zip(scales, DRIFT_PRIOR, strict=False):
        size = split if scale == 0.0 else whole
        precision = np.zeros((size, size))
        precision[:split, :split] = np.diag(hosts.precision)
        if scale > 0.0:
            precision[split:, split:] = penalty / (scale * sigma) ** 2
        fit = np.zeros(whole)
        score = float(np.log(prior))
        if size:
            total = gram[:size, :size] + precision
            fit[:size] = np.linalg.solve(total, moment[:size])
            score += 0.5 * float(moment[:size] @ fit[:size])
            score -= 0.5 * float(np.linalg.slogdet(total)[1] - np.linalg.slogdet(precision)[1])
        scores.append(score)
        fits.append(fit)
    weights = np.exp(np.array(scores) - max(scores))
    return np.asarray(np.average(np.array(fits), axis=0, weights=weights))


def _within(columns: FloatArray, index: IntArray, trust: FloatArray) -> FloatArray:
    """Subtract each group's trusted mean from every column."""
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    sums = np.add.reduceat((columns * trust[:, None])[order], starts, axis=0)
    total = np.add.reduceat(trust[order], starts) + 1e-12
    return np.asarray(columns - (sums / total[:, None])[index])


def _trust(values: FloatArray, index: IntArray, sigma: float) -> FloatArray:
    """Return how probable it is that each value is not an outlier of its group."""
    centre = group_medians(values, index)[index]
    inlier = (1 - CONTAMINATION) * np.exp(-0.5 * ((values - centre) / sigma) ** 2)
    inlier = inlier / (sigma * np.sqrt(2 * np.pi))
    return np.asarray(inlier / (inlier + CONTAMINATION / OUTLIER_WIDTH))
