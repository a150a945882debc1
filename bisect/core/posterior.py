"""Exact posterior of a piecewise-constant mean with an unknown number of steps.

The measured nodes form a chain. Between two neighbours the level jumps with a probability that
grows with the prior mass between them (a jump process), to any level at least ``width`` grid points
away. Levels live on a grid, so one forward and one backward pass are exact; everything is done for
all noise scales at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfbisect.core.facts import FloatArray

TINY = 1e-300
#: Up to so many levels a transition is done as a matrix product (few enough for one thread).
FEW_LEVELS = 176
#: Messages are scaled back to one every so many nodes, long before they underflow.
RESCALE_EVERY = 4


@dataclass(frozen=True, slots=True)
class Kernel:
    """Where a jump may lead: to levels more than a width away, near ones likelier than far ones.

    The density falls as one over the size of the jump, in octaves: sums over all levels beyond
    each octave's edge replace a matrix product where there are many levels.
    """

    #: Distances, in grid points, at which the density changes, and by how much it does.
    edges: tuple[int, ...]
    changes: tuple[float, ...]
    #: Probability that a jump goes down (gets worse).
    down: float
    #: Shape (G,): makes the jumps from each level sum to one.
    scale: FloatArray
    #: Shape (G, G): the transition as a matrix, where there are few levels.
    matrix: FloatArray | None

    def jump(self, mass: FloatArray) -> FloatArray:
        """Move the mass of one jump forward along the chain; the last axis holds levels."""
        if self.matrix is not None:
            return np.asarray(mass @ self.matrix)
        return self._spread(mass * self.scale, 1.0 - self.down, self.down)

    def jump_back(self, mass: FloatArray) -> FloatArray:
        """The same for messages that travel backward."""
        if self.matrix is not None:
            return np.asarray(mass @ self.matrix.T)
        return self._spread(mass, self.down, 1.0 - self.down) * self.scale

    def _spread(self, mass: FloatArray, upward: float, downward: float) -> FloatArray:
        """Sum the mass below (times ``upward``) and above (times ``downward``) each level."""
        count = mass.shape[-1]
        below = np.cumsum(mass, axis=-1)
        above = below[..., -1:] - below
        out = np.zeros_like(mass)
        for edge, change in zip(self.edges, self.changes, strict=True):
            out[..., edge:] += below[..., : count - edge] * (upward * change)
            out[..., : count - edge] += above[..., edge - 1 : count - 1] * (downward * change)
        # The changes alternate in sign, so that nothing may come out as a hair less than it.
        return np.maximum(out, 0.0, out=out)


@lru_cache(maxsize=128)
def kernel_of(width: int, down: float, count: int, *, dense: bool | None = None) -> Kernel:
    """Return the kernel for ``count`` levels and jumps of more than ``width`` grid points.

    Args:
        width: Largest distance that is not a jump.
        down: Probability that a jump goes down.
        count: Number of levels.
        dense: Keep the transition as a matrix; None: where that is faster.
    """
    edges = [min(width + 1, count - 1)]
    while 2 * edges[-1] < count:
        edges.append(2 * edges[-1])
    changes = np.diff([1.0 / edge for edge in edges], prepend=0.0).tolist()
    plain = Kernel(tuple(edges), tuple(changes), down, np.ones(count), None)
    scale = 1.0 / np.maximum(plain.jump_back(np.ones(count)), TINY)
    kernel = Kernel(plain.edges, plain.changes, down, scale, None)
    if dense if dense is not None else count <= FEW_LEVELS:
        return Kernel(plain.edges, plain.changes, down, scale, kernel.jump(np.eye(count)))
    return kernel


@dataclass(frozen=True, slots=True)
class Chain:
    """Likelihoods of the M measured nodes, in order, and what may happen between them."""

    #: Shape (M, S, G), each (m, s) scaled to a maximum of one.
    likelihood: FloatArray
    #: Shape (M, S): the logarithm of that scale.
    log_scale: FloatArray
    #: Shape (M - 1,): probability of a jump between neighbours.
    hazard: FloatArray
    kernel: Kernel
    #: Shape (S,): log prior of each noise scale.
    log_prior: FloatArray
    levels: FloatArray


@dataclass(frozen=True, slots=True)
class Marginals:
    """What the two passes tell."""

    #: Shape (S,): posterior of the noise scale.
    noise: FloatArray
    #: Shape (M - 1,): probability of a jump between neighbours.
    jump: FloatArray
    #: Shape (M,): mean and standard deviation of each node's level.
    level: FloatArray
    level_sd: FloatArray
    #: Shape (M - 1, 4): if there is a jump: mean before, mean after, mean and sd of the difference.
    sizes: FloatArray
    #: Log evidence of the chain, noise marginalised.
    evidence: float
    #: Messages: forward (M, S, G) includes the node's own likelihood, backward excludes it.
    forward: FloatArray
    backward: FloatArray


def chain_of(
    log_likelihood: FloatArray,
    hazard: FloatArray,
    kernel: Kernel,
    log_prior: FloatArray,
    levels: FloatArray,
) -> Chain:
    """Scale log likelihoods (M, S, G) so that they can be exponentiated."""
    peak = log_likelihood.max(axis=2)
    return Chain(np.exp(log_likelihood - peak[:, :, None]), peak, hazard, kernel, log_prior, levels)


def forward_pass(chain: Chain) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the forward messages (M, S, G), each summing to one, and log evidence (S,).

    Between them: the messages after one jump, (M - 1, S, G), on the same scale.
    """
    likelihood, hazard = chain.likelihood, chain.hazard
    messages = np.empty_like(likelihood)
    jumped = np.empty_like(likelihood[1:])
    evidence = chain.log_scale.sum(axis=0)
    mass = likelihood[0] / likelihood.shape[2]
    last = len(likelihood) - 1
    for index in range(last + 1):
        if index:
            h = hazard[index - 1]
            leap = jumped[index - 1] = chain.kernel.jump(mass)
            mass = ((1.0 - h) * mass + h * leap) * likelihood[index]
        if index % RESCALE_EVERY == 0 or index == last:
            total = mass.sum(axis=1, keepdims=True) + TINY
            mass = mass / total
            evidence = evidence + np.log(total[:, 0])
        messages[index] = mass
    scale = messages.sum(axis=2, keepdims=True) + TINY
    messages /= scale
    jumped /= scale[:-1]
    return messages, jumped, evidence


def backward_pass(chain: Chain) -> tuple[FloatArray, FloatArray]:
    """Return the backward messages (M, S, G), each summing to one.

    And what follows each gap, the next node's likelihood included, one jump back: (M - 1, S, G),
    on the same scale.
    """
    likelihood, hazard = chain.likelihood, chain.hazard
    messages = np.empty_like(likelihood)
    jumped = np.empty_like(likelihood[1:])
    mass = np.full_like(likelihood[0], 1.0 / likelihood.shape[2])
    messages[-1] = mass
    for index in range(len(likelihood) - 2, -1, -1):
        seen = mass * likelihood[index + 1]
        h = hazard[index]
        leap = jumped[index] = chain.kernel.jump_back(seen)
        mass = (1.0 - h) * seen + h * leap
        if index % RESCALE_EVERY == 0:
            mass = mass / (mass.sum(axis=1, keepdims=True) + TINY)
        messages[index] = mass
    scale = messages.sum(axis=2, keepdims=True) + TINY
    messages /= scale
    jumped /= scale[1:]
    return messages, jumped


def solve(chain: Chain) -> Marginals:
    """Run both passes and read off the marginals."""
    forward, leapt, evidence = forward_pass(chain)
    backward, leapt_back = backward_pass(chain)
    score = evidence + chain.log_prior
    peak = float(score.max())
    noise = np.exp(score - peak)
    total = float(noise.sum())
    noise = noise / total
    weights = noise[None, :, None]

    level_mass = forward * backward
    level_mass /= level_mass.sum(axis=2, keepdims=True) + TINY
    level_mass = (level_mass * weights).sum(axis=1)
    level = level_mass @ chain.levels
    spread = np.maximum(level_mass @ chain.levels**2 - level**2, 0.0)
    jump, sizes = _jumps(chain, (forward, leapt), (backward, leapt_back), noise)
    return Marginals(
        noise, jump, level, np.sqrt(spread), sizes, peak + float(np.log(total)), forward, backward
    )


def _jumps(
    chain: Chain,
    ahead: tuple[FloatArray, FloatArray],
    behind: tuple[FloatArray, FloatArray],
    noise: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the probability of a jump in each gap, and its size if there is one.

    Both passes are given with their messages moved by one jump.
    """
    (forward, leapt), (backward, leapt_back) = ahead, behind
    before = forward[:-1]
    after = (backward * chain.likelihood)[1:]
    h = chain.hazard[:, None]
    stay = (1.0 - h) * (before * after).sum(axis=2)
    landed = leapt * after
    leap = h * landed.sum(axis=2)
    probability = leap / (stay + leap + TINY)
    # Noise scales under which the jump is likelier tell more about its size.
    share = probability * noise + TINY
    share = (share / share.sum(axis=1, keepdims=True))[:, :, None]
    left = before * leapt_back
    sides = []
    for mass in (left, landed):
        mass = mass / (mass.sum(axis=2, keepdims=True) + TINY)
        mass = (mass * share).sum(axis=1)
        mean = mass @ chain.levels
        sides.append((mean, np.maximum(mass @ chain.levels**2 - mean**2, 0.0)))
    (mean_before, var_before), (mean_after, var_after) = sides
    sizes = np.stack(
        [mean_before, mean_after, mean_after - mean_before, np.sqrt(var_before + var_after)], axis=1
    )
    return (probability * noise).sum(axis=1), sizes
