"""Proof of one step: fresh pairs of its two neighbours, apart from the points that led there.

Both neighbours are run on one host in balanced order (A B B A …). After each pair a likelihood
ratio compares "they differ as claimed" with "they do not differ"; it uses the verification's own
points and nothing else. The claim comes from all other points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from perfbisect.core.axis import BoolArray
from perfbisect.core.facts import FloatArray
from perfbisect.core.inference import Inference
from perfbisect.core.likelihood import CONTAMINATION, OUTLIER_WIDTH

#: Log likelihood ratio at which a step is proven, or refuted: odds of 19 to 1.
PROOF = math.log(19.0)
MIN_PAIRS = 2
#: No single pair may say more than this, however sharp: one odd run must not decide.
MOST_PER_PAIR = 3.0
#: Sizes considered, as shares of the claim, and their weights.
SIZES = np.array([0.5, 0.75, 1.0, 1.25, 1.5])
SIZE_WEIGHTS = np.array([0.1, 0.15, 0.5, 0.15, 0.1])


class Proof(StrEnum):
    """How far a verification has come."""

    OPEN = "open"
    VERIFIED = "verified"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Verification:
    """State of the verification of one step."""

    proof: Proof
    #: Complete pairs on the host.
    pairs: int
    #: Log likelihood ratio of the claim against no difference.
    ratio: float
    #: Index of the host the pairs are measured on; -1 before the first run.
    host: int
    #: Runs so far of the earlier and the later neighbour on that host.
    runs: tuple[int, int]
    most_pairs: int


def verify(inference: Inference, gap: int) -> Verification:
    """Judge the step in a gap of measured nodes by its verification's points."""
    samples, axis = inference.samples, inference.axis
    pair = axis.span(int(inference.nodes[gap]), int(inference.nodes[gap + 1]))
    mine = (samples.pair[:, 0] == pair[0]) & (samples.pair[:, 1] == pair[1])
    if not np.any(mine):
        most = _most_pairs(float(inference.marginals.sizes[gap, 2]), inference.sigma)
        return Verification(Proof.OPEN, 0, 0.0, -1, (0, 0), most)
    claim = _claim(inference, gap, mine)
    if axis.reversed:
        claim = -claim
    most = _most_pairs(claim, inference.sigma)
    host = int(samples.host[mine][-1])
    mine &= samples.host == host
    sides = [
        samples.value[mine & (samples.wheel == axis.representative_of[position])]
        for position in pair
    ]
    pairs = min(len(side) for side in sides)
    ratio = _ratio(sides[1][:pairs] - sides[0][:pairs], claim, inference.sigma)
    proof = Proof.OPEN
    if pairs >= MIN_PAIRS and ratio >= PROOF:
        proof = Proof.VERIFIED
    elif pairs >= MIN_PAIRS and (ratio <= -PROOF or pairs >= most):
        proof = Proof.REFUTED
    return Verification(proof, pairs, ratio, host, (len(sides[0]), len(sides[1])), most)


def _most_pairs(claim: float, sigma: float) -> int:
    """Return ten times the pairs that a true claim needs on average, within 20 … 600."""
    drift = claim**2 / (4.0 * sigma**2)
    return int(np.clip(10.0 * PROOF / max(drift, 1e-6), 20, 600))


def _claim(inference: Inference, gap: int, excluded: BoolArray) -> float:
    """Return the size of the step by the points that are not part of its verification."""
    marginals, sigma = inference.marginals, inference.sigma
    edges = np.flatnonzero(marginals.jump > 0.5)
    lower = max((int(e) for e in edges if e < gap), default=-1)
    upper = min((int(e) for e in edges if e > gap), default=len(inference.nodes) - 1)
    wheels = inference.axis.representative[inference.nodes]
    sides = []
    for low, high, expected in (
        (lower + 1, gap, marginals.sizes[gap, 0]),
        (gap + 1, upper, marginals.sizes[gap, 1]),
    ):
        chosen = np.isin(inference.samples.wheel, wheels[low : high + 1]) & ~excluded
        near = inference.values[chosen]
        near = near[np.abs(near - expected) < 4.0 * sigma]
        sides.append(float(near.mean()) if len(near) else float(expected))
    return sides[1] - sides[0]


def _ratio(differences: FloatArray, claim: float, sigma: float) -> float:
    """Return the log likelihood ratio, averaged over sizes around the claim."""
    if not len(differences):
        return 0.0
    spread = math.sqrt(2.0) * sigma
    odd = 2.0 * CONTAMINATION / OUTLIER_WIDTH
    scale = (1.0 - 2.0 * CONTAMINATION) / (spread * math.sqrt(2.0 * math.pi))

    def log_density(centre: FloatArray | float) -> FloatArray:
        offset = (differences[:, None] - centre) / spread
        return np.asarray(np.log(scale * np.exp(-0.5 * offset**2) + odd))

    each = log_density(SIZES * claim) - log_density(0.0)
    total = np.clip(each, -MOST_PER_PAIR, MOST_PER_PAIR).sum(axis=0)
    peak = float(total.max())
    return peak + math.log(float(SIZE_WEIGHTS @ np.exp(total - peak)))
