"""Two wheels on one host: do they differ, which way, and by how much?

The same inference as for the two ends of an axis: a wheel and its reference are an axis of length
one, so that robust likelihood, learnt noise and the drift of the host are treated alike everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from perfbisect.core.anchors import Ends, compare_ends
from perfbisect.core.facts import EndStat, Facts, Observation, Policy
from perfbisect.core.inference import Inference, infer
from perfbisect.core.posterior import TINY
from perfbisect.core.states import Better, Purpose
from perfbisect.core.threshold import to_unit

#: 97.5% point of the normal distribution: half the width of a 95% interval in standard errors.
_Z = 1.96
#: Confidence of the interval that is told as one of 95%. The runs end when it seems to be decided,
#: which is sooner where chance exaggerates: that costs some two per cent.
TOLD_CONFIDENCE = 0.97
#: A difference is called too small to name where an interval of this confidence excludes it. The
#: runs end as soon as that is so, and it is asked after every run: a 95% interval would, sooner or
#: later, exclude a change that is there in one experiment of five.
ALIKE_CONFIDENCE = 0.995


class Difference(StrEnum):
    """What is known of an arm compared with its reference."""

    UNKNOWN = "unknown"
    BETTER = "better"
    WORSE = "worse"
    #: A difference of the smallest size worth naming is excluded.
    ALIKE = "alike"


@dataclass(frozen=True, slots=True)
class Measured:
    """One accepted value of an arm."""

    #: In the benchmark's unit, greater than zero.
    value: float
    host: str
    #: Seconds; only order and differences matter.
    at: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against its reference. The means are in the benchmark's unit."""

    difference: Difference
    reference: EndStat
    arm: EndStat
    #: Relative change from the reference to the arm, and its 95% interval.
    change: float
    ci95: tuple[float, float]
    #: Noise of one run, relative.
    noise: float


def compare(
    reference: Sequence[Measured],
    arm: Sequence[Measured],
    *,
    better: Better,
    min_effect: float,
) -> Comparison | None:
    """Compare an arm with its reference; None while one of them has not been measured.

    Args:
        min_effect: smallest relative change worth naming, e.g. 0.03.
    """
    if not reference or not arm:
        return None
    inference = infer(_as_axis(reference, arm, Policy(better=better, min_effect=min_effect)))
    if inference is None:
        return None
    ends = compare_ends(inference)
    apart = _apart(inference)
    means = []
    for (level, sd), runs in zip(apart, (len(reference), len(arm)), strict=True):
        low, high = sorted(to_unit(level + k * sd, better) for k in (-_Z, _Z))
        means.append(EndStat(to_unit(level, better), (low, high), runs))
    # Goodness is negated where lower is better; a relative change of the metric is not.
    sign = 1.0 if better is Better.HIGHER else -1.0
    change = sign * (apart[1][0] - apart[0][0])
    error = math.hypot(apart[0][1], apart[1][1])
    counts = (len(reference), len(arm))
    bounds = _interval(change, inference.sigma, error, counts, TOLD_CONFIDENCE)
    surely = _interval(change, inference.sigma, error, counts, ALIKE_CONFIDENCE)
    small = surely[0] > -min_effect and surely[1] < min_effect
    return Comparison(
        difference=Difference.ALIKE if small else _DIFFERENCES[ends.verdict],
        reference=means[0],
        arm=means[1],
        change=math.expm1(change),
        ci95=bounds,
        noise=inference.sigma,
    )


def _as_axis(reference: Sequence[Measured], arm: Sequence[Measured], policy: Policy) -> Facts:
    """Return the facts of an axis whose ends are the reference and the arm."""
    return Facts(
        n=1,
        policy=policy,
        weights=np.ones(1),
        wheels=frozenset((0, 1)),
        observations=tuple(
            Observation(position, each.value, each.host, each.at, Purpose.ANCHOR)
            for position, values in enumerate((reference, arm))
            for each in values
        ),
        hosts=tuple(dict.fromkeys(each.host for each in (*reference, *arm))),
    )


def _apart(inference: Inference) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return level and its standard deviation of the reference and of the arm, goodness.

    Each by its own points, as if the other had not been measured: where the model finds no step it
    takes both for one level, and a small change would be told as none.
    """
    chain = inference.chain
    sides = (chain.likelihood[0], chain.likelihood[-1])
    weight = chain.log_scale[0] + chain.log_scale[-1] + chain.log_prior
    for side in sides:
        weight = weight + np.log(side.sum(axis=1) + TINY)
    noise = np.exp(weight - weight.max())
    noise /= noise.sum()
    found = []
    for side in sides:
        mass = noise @ (side / (side.sum(axis=1, keepdims=True) + TINY))
        mean = float(mass @ chain.levels)
        variance = float(mass @ (chain.levels - mean) ** 2)
        found.append((mean, math.sqrt(max(variance, 0.0))))
    return found[0], found[1]


_DIFFERENCES = {
    # That they are alike takes more than it does of the ends of an axis: see ALIKE_CONFIDENCE.
    Ends.UNKNOWN: Difference.UNKNOWN,
    Ends.ALIKE: Difference.UNKNOWN,
    Ends.WORSE: Difference.WORSE,
    Ends.SWAPPED: Difference.BETTER,
}


def _interval(
    change: float, sigma: float, error: float, runs: tuple[int, int], confidence: float
) -> tuple[float, float]:
    """Return an interval of the relative change, honest with few runs.

    The noise is known from these runs alone, so its own doubt widens the interval as Student's t
    distribution does; the posterior's error counts where it is larger (outliers, drift).

    Args:
        change: logarithm of the ratio.
        runs: of the reference and of the arm.
    """
    degrees = max(sum(runs) - 2, 1)
    pooled = sigma * math.sqrt(1.0 / runs[0] + 1.0 / runs[1])
    half = float(stats.t.ppf(0.5 + confidence / 2, degrees)) * max(error, pooled)
    return math.expm1(change - half), math.expm1(change + half)
