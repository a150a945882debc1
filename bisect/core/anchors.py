"""The two ends: are they different at all, and by how much?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from perfbisect.core.facts import FloatArray
from perfbisect.core.inference import Inference
from perfbisect.core.posterior import TINY

#: Log Bayes factor at which the ends are taken to differ: odds of 20 to 1.
ESTABLISHED = math.log(20.0)
#: Log likelihood ratio at which a change of the smallest size worth naming is excluded.
EXCLUDED = math.log(120.0)
#: An improvement contradicts the request: it takes more to believe.
CONTRADICTED = math.log(2000.0)
#: Runs of each end before the ends may be called different, and alike.
MIN_RUNS = 2
MIN_RUNS_ALIKE = 3
#: … and before the request may be contradicted: two slow outliers of three runs agree too well.
MIN_RUNS_SWAPPED = 5


class Ends(StrEnum):
    """What is known about the difference of the ends."""

    UNKNOWN = "unknown"
    #: The bad end is worse than the good one.
    WORSE = "worse"
    #: The bad end is better than the good one.
    SWAPPED = "swapped"
    ALIKE = "alike"


@dataclass(frozen=True, slots=True)
class EndsTest:
    """Outcome of comparing the ends. Logarithms of ratios."""

    verdict: Ends
    #: For a difference of any size against none.
    difference: float
    #: For none against a difference of the smallest size worth naming, the nearer sign.
    likeness: float
    #: Bad minus good, goodness, and its standard error.
    change: float
    error: float


def compare_ends(inference: Inference) -> EndsTest:
    """Compare the ends by their own points, noise marginalised."""
    chain = inference.chain
    good, bad = chain.likelihood[0], chain.likelihood[-1]
    weight = chain.log_scale[0] + chain.log_scale[-1] + chain.log_prior
    count = good.shape[1]

    def score(mass: FloatArray) -> float:
        return float(np.logaddexp.reduce(np.log(mass.sum(axis=1) / count + TINY) + weight))

    same = score(good * bad)
    difference = score(chain.kernel.jump(good) * bad) - same
    shift = max(1, round(inference.effect / inference.grid.spacing))
    nearer = max(score(good[:, shift:] * bad[:, :-shift]), score(good[:, :-shift] * bad[:, shift:]))
    likeness = same - nearer
    level, sd = inference.marginals.level, inference.marginals.level_sd
    change = float(level[-1] - level[0])
    error = float(np.hypot(sd[0], sd[-1]))
    runs = int(min(inference.counts[0], inference.counts[-1]))
    verdict = Ends.UNKNOWN
    if runs >= MIN_RUNS and difference >= ESTABLISHED and change < 0:
        verdict = Ends.WORSE
    elif runs >= MIN_RUNS_SWAPPED and difference >= CONTRADICTED:
        verdict = Ends.SWAPPED
    elif runs >= MIN_RUNS_ALIKE and likeness >= EXCLUDED:
        verdict = Ends.ALIKE
    return EndsTest(verdict, difference, likeness, change, error)
