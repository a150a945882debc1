"""Two wheels on one host: do they differ, which way, and by how much?

The same inference as for the two ends of an axis: a wheel and its reference are an axis of length
one, so that robust likelihood, learnt noise and the drift of the host are treated alike everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy import stats

from perfbisect.core.anchors import Ends, compare_ends
from perfbisect.core.facts import EndStat, Facts, Observation, Policy
from perfbisect.core.inference import infer
from perfbisect.core.states import Better, Purpose
from perfbisect.core.threshold import to_unit

#: 97.5% point of the normal distribution: half the width of a 95% interval in standard errors.
_Z = 1.96


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
    facts = Facts(
        n=1,
        policy=Policy(better=better, min_effect=min_effect),
        weights=np.ones(1),
        wheels=frozenset((0, 1)),
        observations=tuple(
            Observation(position, each.value, each.host, each.at, Purpose.ANCHOR)
            for position, values in enumerate((reference, arm))
            for each in values
        ),
        hosts=tuple(dict.fromkeys(each.host for each in (*reference, *arm))),
    )
    inference = infer(facts)
    if inference is None:
        return None
    ends = compare_ends(inference)
    means = []
    for slot in (0, 1):
        level, sd = (
            float(inference.marginals.level[slot]),
            float(inference.marginals.level_sd[slot]),
        )
        low, high = sorted(to_unit(level + k * sd, better) for k in (-_Z, _Z))
        means.append(EndStat(to_unit(level, better), (low, high), int(inference.counts[slot])))
    # Goodness is negated where lower is better; a relative change of the metric is not.
    sign = 1.0 if better is Better.HIGHER else -1.0
    half = _half_width(inference.sigma, ends.error, len(reference), len(arm))
    bounds = sorted(math.expm1(sign * ends.change + k * half) for k in (-1, 1))
    return Comparison(
        difference={
            Ends.UNKNOWN: Difference.UNKNOWN,
            Ends.WORSE: Difference.WORSE,
            Ends.SWAPPED: Difference.BETTER,
            Ends.ALIKE: Difference.ALIKE,
        }[ends.verdict],
        reference=means[0],
        arm=means[1],
        change=math.expm1(sign * ends.change),
        ci95=(bounds[0], bounds[1]),
        noise=inference.sigma,
    )


def _half_width(sigma: float, error: float, reference_runs: int, arm_runs: int) -> float:
    """Return half a 95% interval of the log change, honest with few runs.

    The noise is known from these runs alone, so its own doubt widens the interval as Student's t
    distribution does; the posterior's error counts where it is larger (outliers, drift).
    """
    degrees = max(reference_runs + arm_runs - 2, 1)
    pooled = sigma * math.sqrt(1.0 / reference_runs + 1.0 / arm_runs)
    return float(stats.t.ppf(0.975, degrees)) * max(error, pooled)


def is_small(comparison: Comparison, min_effect: float) -> bool:
    """Return whether an established difference may still be too small to be worth naming."""
    low, high = comparison.ci95
    return low > -min_effect and high < min_effect


def as_small_is_alike(comparison: Comparison, min_effect: float) -> Comparison:
    """Return the comparison with a difference too small to be worth naming called alike."""
    if is_small(comparison, min_effect):
        return replace(comparison, difference=Difference.ALIKE)
    return comparison
