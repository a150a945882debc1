"""Where good ends and bad begins."""

from __future__ import annotations

import math

from perfbisect.core.facts import Policy
from perfbisect.core.states import Better


def to_unit(goodness: float, better: Better) -> float:
    """Return the value, in the benchmark's unit, of a goodness."""
    return math.exp(goodness if better is Better.HIGHER else -goodness)


def to_goodness(value: float, better: Better) -> float:
    """Return the goodness of a value: its logarithm, negated where lower is better."""
    return math.log(value) if better is Better.HIGHER else -math.log(value)


def threshold_value(policy: Policy, good: float, bad: float) -> float:
    """Return the threshold in the benchmark's unit.

    Args:
        policy: Absolute threshold, share of the good end, or neither: the midpoint of the ends.
        good: Mean of the good end, in the benchmark's unit.
        bad: Mean of the bad end.
    """
    if policy.threshold is not None:
        return policy.threshold
    if policy.threshold_share is not None:
        return policy.threshold_share * good
    return 0.5 * (good + bad)


def threshold_goodness(policy: Policy, good: float, bad: float) -> float:
    """The same for ends given as goodness, and as goodness."""
    ends = to_unit(good, policy.better), to_unit(bad, policy.better)
    return to_goodness(max(threshold_value(policy, *ends), 1e-300), policy.better)
