"""Perfherder's rule, as Mozilla publishes it (treeherder, ``perf/perfalert``), for comparison.

A weighted t-test of the 12 to 24 values before each point against the 12 from it on; an alert where
t passes 7, is the largest nearby, and the mean moved by 2% at least. Twelve values have to follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MIN_BACK, MAX_BACK, FORE = 12, 24, 12
T_THRESHOLD = 7.0
MAGNITUDE = 0.02


def _analyse(values: Sequence[float]) -> tuple[float, float, int]:
    """Return mean and variance with linear weights, the first value weighing most."""
    count = len(values)
    weights = [(count - index) / count for index in range(count)]
    total = sum(weights)
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / total
    variance = 0.0
    if count > 1:
        variance = sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True))
        variance /= total * (1.0 - 1.0 / count)
    return mean, variance, count


def _t(before: Sequence[float], after: Sequence[float]) -> float:
    (mean1, variance1, n1), (mean2, variance2, n2) = _analyse(before[::-1]), _analyse(after)
    spread = math.sqrt(variance1 / n1 + variance2 / n2)
    return abs(mean2 - mean1) / spread if spread else math.inf


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices of the values from which on the level is another one."""
    t = [0.0] * len(values)
    for index in range(MIN_BACK, len(values) - FORE + 1):
        t[index] = _t(values[max(0, index - MAX_BACK) : index], values[index : index + FORE])
    found = []
    for index in range(MIN_BACK, len(values) - FORE + 1):
        after = t[index + 1] if index + 1 < len(t) else 0.0
        if t[index] <= T_THRESHOLD or t[index] < t[index - 1] or t[index] < after:
            continue
        before = _analyse(values[max(0, index - MAX_BACK) : index][::-1])[0]
        mean = _analyse(values[index : index + FORE])[0]
        if abs(mean / before - 1.0) >= MAGNITUDE:
            found.append(index)
    return found
