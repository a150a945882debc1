"""What one more run would tell: mutual information between a value and where the steps are.

Each node gets a *label*: how many jumps lie before it (``find = all``) or whether the threshold has
been crossed before it (``find = first | fix``). A run is worth the information, in bits, that its
value carries about the label of its node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perfbisect.core.axis import BoolArray, IntArray
from perfbisect.core.facts import FloatArray
from perfbisect.core.posterior import TINY, Kernel

#: Labels 0 … MAX_JUMPS - 1; the last one stands for that many jumps or more.
MAX_JUMPS = 8
#: A node whose label is this nearly certain is not worth a run.
SETTLED = 2e-4
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Labelling(Protocol):
    """How jumps change a label. Arrays are (..., T, G): labels by levels."""

    @property
    def labels(self) -> int:
        """Number of labels T."""
        ...

    def start(self, mass: FloatArray) -> FloatArray:
        """Label the first node's mass (G,) -> (T, G)."""
        ...

    def land(self, jumped: FloatArray) -> FloatArray:
        """Relabel mass that has just jumped."""
        ...


@dataclass(frozen=True, slots=True)
class JumpCount:
    """Label: the number of jumps so far."""

    labels: int = MAX_JUMPS

    def start(self, mass: FloatArray) -> FloatArray:
        """Nothing has jumped yet."""
        out = np.zeros((self.labels, len(mass)))
        out[0] = mass
        return out

    def land(self, jumped: FloatArray) -> FloatArray:
        """One jump more."""
        out = np.zeros_like(jumped)
        out[..., 1:, :] = jumped[..., :-1, :]
        out[..., -1, :] += jumped[..., -1, :]
        return out


@dataclass(frozen=True, slots=True)
class Crossing:
    """Label: whether the level has been on the bad side of the threshold so far."""

    #: Shape (G,): levels on the bad side.
    bad: BoolArray
    labels: int = 2

    def start(self, mass: FloatArray) -> FloatArray:
        """The good end may already lie beyond the threshold."""
        return np.stack([np.where(self.bad, 0.0, mass), np.where(self.bad, mass, 0.0)])

    def land(self, jumped: FloatArray) -> FloatArray:
        """Once crossed, always crossed."""
        out = jumped.copy()
        out[..., 1, :] += np.where(self.bad, jumped[..., 0, :], 0.0)
        out[..., 0, :] = np.where(self.bad, 0.0, jumped[..., 0, :])
        return out


@dataclass(frozen=True, slots=True)
class Labelled:
    """Forward messages with labels, for one noise scale."""

    #: Shape (M, T, G).
    forward: FloatArray
    #: Shape (M, T, G): the same mass after one jump, relabelled.
    jumped: FloatArray
    #: Shapes (M, G): backward message without and with the node's own likelihood, and the latter
    #: one jump back.
    backward: FloatArray
    seen: FloatArray
    seen_jumped: FloatArray
    hazard: FloatArray
    levels: FloatArray
    sigma: float

    def crossing(self, bad: BoolArray, kernel: Kernel) -> FloatArray:
        """Return (M - 1,): probability that the first crossing lies in each gap."""
        stay = (1.0 - self.hazard)[:, None, None] * self.forward[:-1]
        leap = self.hazard[:, None, None] * self.jumped[:-1]
        total = ((stay + leap) * self.seen[1:, None, :]).sum(axis=(1, 2)) + TINY
        landed = kernel.jump(self.forward[:-1, 0]) * self.seen[1:]
        return np.asarray(self.hazard * (landed * bad).sum(axis=1) / total)


def label_forward(
    likelihood: FloatArray,
    backward: FloatArray,
    hazard: FloatArray,
    kernel: Kernel,
    levels: FloatArray,
    sigma: float,
    labelling: Labelling,
) -> Labelled:
    """Run the forward pass with labels.

    Args:
        likelihood: Shape (M, G), of one noise scale.
        backward: Shape (M, G), messages that exclude the node's own likelihood.
        hazard: Shape (M - 1,).
        kernel: Where jumps lead.
        levels: Shape (G,).
        sigma: The noise scale.
        labelling: How jumps change a label.
    """
    shape = (len(likelihood), labelling.labels, len(levels))
    forward, jumped = np.empty(shape), np.empty(shape)
    mass = labelling.start(likelihood[0])
    for index, stays in enumerate([0.0, *(1.0 - hazard).tolist()]):
        if index:
            mass = (stays * mass + (1.0 - stays) * jumped[index - 1]) * likelihood[index]
        mass /= float(mass.sum()) + TINY
        forward[index] = mass
        jumped[index] = labelling.land(kernel.jump(mass))
    seen = backward * likelihood
    seen = seen / (seen.sum(axis=1, keepdims=True) + TINY)
    return Labelled(forward, jumped, backward, seen, kernel.jump_back(seen), hazard, levels, sigma)


@dataclass(frozen=True, slots=True)
class Predictions:
    """Label mixture at each of C candidates: weight, mean and variance of the level, (C, T)."""

    weight: FloatArray
    mean: FloatArray
    variance: FloatArray


def predict(
    labelled: Labelled, gaps: IntArray, before: FloatArray, after: FloatArray
) -> Predictions:
    """Predict the level at candidates.

    Args:
        labelled: Messages.
        gaps: Shape (C,): gap index of an unmeasured node, or -(m + 1) for measured node m.
        before: Shape (C,): probability of a jump between the gap's start and the node.
        after: Shape (C,): probability of a jump between the node and the gap's end.
    """
    measured = gaps < 0
    index = np.where(measured, -gaps - 1, gaps)
    h = np.where(measured, 0.0, before)[:, None, None]
    stay, jump = (1.0 - h) * labelled.forward[index], h * labelled.jumped[index]
    ahead = np.minimum(index + 1, len(labelled.forward) - 1)
    h = np.where(measured, 0.0, after)[:, None, None]
    later = (1.0 - h) * labelled.seen[ahead][:, None, :]
    later[measured, 0] = labelled.backward[index[measured]]
    # At most one of the two jumps: a change and its undoing within one gap leave no trace in the
    # points, so chasing them would mean to measure everything.
    mass = stay * (later + h * labelled.seen_jumped[ahead][:, None, :]) + jump * later
    weight = mass.sum(axis=2)
    mean = (mass @ labelled.levels) / (weight + TINY)
    square = (mass @ labelled.levels**2) / (weight + TINY)
    weight = weight / (weight.sum(axis=1, keepdims=True) + TINY)
    return Predictions(weight, mean, np.maximum(square - mean**2, 0.0))


def information(predictions: Predictions, sigma: float, runs: IntArray) -> FloatArray:
    """Return (C, R): bits that the mean of ``runs[r]`` runs carries about the label.

    The level of each label is taken as normal; the integral is done by Gauss–Hermite quadrature.
    """
    out = np.zeros((len(predictions.weight), len(runs)))
    open_ = np.flatnonzero(predictions.weight.max(axis=1) < 1.0 - SETTLED)
    # Only the labels that matter anywhere: the quadrature is quadratic in their number.
    used = np.flatnonzero(predictions.weight[open_].max(axis=0, initial=0.0) > 1e-4)
    if len(used) < 2:
        return out
    pick = np.ix_(open_, used)
    weight = predictions.weight[pick]
    weight = weight / (weight.sum(axis=1, keepdims=True) + TINY)
    mean = predictions.mean[pick]
    for column, count in enumerate(runs):
        variance = predictions.variance[pick] + sigma**2 / float(count)
        scale = np.sqrt(variance)
        points = mean[:, :, None] + scale[:, :, None] * _NODES
        offset = (points[:, :, :, None] - mean[:, None, None, :]) / scale[:, None, None, :]
        density = np.exp(-0.5 * offset**2) / scale[:, None, None, :]
        mixture = (density * weight[:, None, None, :]).sum(axis=3) + TINY
        own = np.exp(-0.5 * _NODES**2) / scale[:, :, None]
        gain = (np.log2(own / mixture) * _WEIGHTS).sum(axis=2)
        out[open_, column] = (gain * weight).sum(axis=1)
    return np.maximum(out, 0.0)
