"""The chain of nights: the search's jump process, with a level that may also drift slowly.

Levels live on the search's grid and jump by its kernel. What is added is a third possibility
between two nights: a small step of the level to a neighbouring grid point. Noise scale, share of
outliers and speed of the drift form one axis (S) over which everything is marginalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfbisect.core.axis import IntArray
from perfbisect.core.facts import FloatArray
from perfbisect.core.likelihood import Grid
from perfbisect.core.posterior import TINY, Kernel

BoolArray = npt.NDArray[np.bool_]

#: Share of nights that tell nothing, with its prior: learnt from the series.
CONTAMINATIONS = (0.0005, 0.01, 0.05)
CONTAMINATION_PRIOR = (0.7, 0.19, 0.11)
#: Half of such nights are within this distance of the level (log units): a Cauchy distribution.
OUTLIER_SCALE = 0.5
#: In older nights, what is so many noise scales off its neighbours told nothing.
FAR = 6.0
#: Neighbours on either side that an older night is compared with.
BESIDE = 3
#: What is left of the outliers' share where a night was measured again.
UNTOLD = 1e-6
#: Standard deviation of the drift in one night, in noise scales, with its prior.
DRIFTS = (0.0, 0.07, 0.16)
DRIFT_PRIOR = (0.5, 0.28, 0.22)


@dataclass(frozen=True, slots=True)
class NightChain:
    """Likelihoods of M nights, in order, and what may happen between them."""

    #: Shape (M, S, G), each (m, s) scaled to a maximum of one.
    likelihood: FloatArray
    #: Shape (S,): log prior plus the logarithms of those scales.
    log_weight: FloatArray
    #: Shape (M - 1,): probability of a jump between neighbours.
    hazard: FloatArray
    #: Shape (M - 1, S): probability of drifting one grid point up; the same down.
    wander: FloatArray
    kernel: Kernel
    levels: FloatArray


def chain_of_nights(
    values: FloatArray,
    gaps: IntArray,
    hazard: FloatArray,
    kernel: Kernel,
    grid: Grid,
    sure: BoolArray,
    older: FloatArray,
) -> NightChain:
    """Lay out the chain.

    Args:
        values: Goodness of the nights, shape (M,).
        gaps: Days between neighbours, shape (M - 1,).
        hazard: Probability of a jump between neighbours, shape (M - 1,).
        sure: Nights that were measured again, and so are no outliers, shape (M,).
        older: Goodness of nights before these: they tell how common outliers are.
    """
    distance = (values[:, None] - grid.levels) ** 2
    scaled = distance[:, None, :] * (-0.5 / grid.sigmas**2)[None, :, None]
    peak = 1.0 / (grid.sigmas * np.sqrt(2.0 * np.pi))
    density = np.exp(scaled) * peak[None, :, None]
    far = 1.0 / (np.pi * OUTLIER_SCALE * (1.0 + distance / OUTLIER_SCALE**2))
    far = (np.where(sure, UNTOLD, 1.0)[:, None] * far)[:, None, :]
    layers = [(1.0 - share) * density + share * far for share in CONTAMINATIONS]
    once = np.concatenate(layers, axis=1)
    top = once.max(axis=2)
    prior = (_outliers_prior(older, grid.scale)[:, None] + grid.log_prior).ravel()
    prior = prior + np.log(top).sum(axis=0)
    steps = np.array(DRIFTS)[:, None] * np.tile(grid.sigmas, len(CONTAMINATIONS)) / grid.spacing
    return NightChain(
        likelihood=np.tile(once / top[:, :, None], (1, len(DRIFTS), 1)),
        log_weight=(np.log(DRIFT_PRIOR)[:, None] + prior).ravel(),
        hazard=hazard,
        wander=np.minimum(0.5 * steps.ravel() ** 2 * gaps[:, None], 0.33),
        kernel=kernel,
        levels=grid.levels,
    )


def _outliers_prior(older: FloatArray, scale: float) -> FloatArray:
    """Return the log prior of each share of outliers, once the older nights have had their say."""
    shares = np.array(CONTAMINATIONS)
    told = np.log(CONTAMINATION_PRIOR)
    if len(older) > 2 * BESIDE:
        around = np.lib.stride_tricks.sliding_window_view(older, 2 * BESIDE + 1)
        off = np.abs(around[:, BESIDE] - np.median(around, axis=1)) > FAR * scale
        count = int(off.sum())
        told = told + count * np.log(shares) + (len(off) - count) * np.log1p(-shares)
    return np.asarray(told - np.logaddexp.reduce(told))


def _drifted(mass: FloatArray, share: FloatArray) -> FloatArray:
    """Let the mass (S, G) of levels that do not jump drift; the same forward and backward."""
    moving = mass * share[:, None]
    out = mass - 2.0 * moving
    out[:, 1:] += moving[:, :-1]
    out[:, :-1] += moving[:, 1:]
    out[:, 0] += moving[:, 0]
    out[:, -1] += moving[:, -1]
    return out


@dataclass(frozen=True, slots=True)
class _Forward:
    #: Shape (M, S, G), each summing to one: includes the night's own likelihood.
    messages: FloatArray
    #: Shape (M, S): log evidence of the nights up to and with each.
    evidence: FloatArray


def _forward(chain: NightChain, hazard: FloatArray, since: int, known: _Forward | None) -> _Forward:
    """Pass forward; nights before ``since`` are taken from ``known``."""
    likelihood = chain.likelihood
    messages = np.empty_like(likelihood) if known is None else known.messages.copy()
    evidence = np.empty(likelihood.shape[:2]) if known is None else known.evidence.copy()
    for index in range(since, len(likelihood)):
        if index == 0:
            mass = likelihood[0] / likelihood.shape[2]
            before = 0.0
        else:
            h = hazard[index - 1]
            mass = (1.0 - h) * _drifted(messages[index - 1], chain.wander[index - 1])
            if h > 0.0:
                mass = mass + h * chain.kernel.jump(messages[index - 1])
            mass = mass * likelihood[index]
            before = evidence[index - 1]
        total = mass.sum(axis=1) + TINY
        messages[index] = mass / total[:, None]
        evidence[index] = before + np.log(total)
    return _Forward(messages, evidence)


def _backward(chain: NightChain) -> FloatArray:
    """Return the backward messages (M, S, G), each summing to one."""
    likelihood = chain.likelihood
    messages = np.empty_like(likelihood)
    messages[-1] = 1.0 / likelihood.shape[2]
    for index in range(len(likelihood) - 2, -1, -1):
        seen = messages[index + 1] * likelihood[index + 1]
        h = chain.hazard[index]
        mass = (1.0 - h) * _drifted(seen, chain.wander[index])
        if h > 0.0:
            mass = mass + h * chain.kernel.jump_back(seen)
        messages[index] = mass / (mass.sum(axis=1, keepdims=True) + TINY)
    return messages


@dataclass(frozen=True, slots=True)
class Solved:
    """What the passes tell of a chain. Levels are goodness: mean and standard deviation."""

    #: Log odds of at least one jump in the candidate gaps against none.
    log_odds: float
    #: Shape (M - 1,): probability of a jump in each gap.
    jump: FloatArray
    #: The candidate gap that is the likeliest, and the levels beside it if there is a jump in it.
    likeliest: int
    before: tuple[float, float]
    after: tuple[float, float]


def log_odds_of(chain: NightChain, candidates: BoolArray) -> float:
    """Return the log odds of at least one jump in the candidate gaps against none: one pass."""
    return _odds(chain, _forward(chain, chain.hazard, 0, None), candidates)


def _odds(chain: NightChain, forward: _Forward, candidates: BoolArray) -> float:
    first = int(np.argmax(candidates))
    without = _forward(chain, np.where(candidates, 0.0, chain.hazard), first + 1, forward)
    with_jumps, with_none = (
        float(np.logaddexp.reduce(each.evidence[-1] + chain.log_weight))
        for each in (forward, without)
    )
    # The whole evidence holds the case without a jump, at its prior probability.
    with_none += float(np.log1p(-chain.hazard[candidates]).sum())
    excess = with_jumps - with_none
    if excess > 500.0:
        return excess
    return float(np.log(max(np.expm1(excess), 1e-12)))


def solve_nights(chain: NightChain, candidates: BoolArray) -> Solved:
    """Run all passes and read off the marginals.

    Args:
        candidates: Gaps asked about, shape (M - 1,); at least one.
    """
    forward = _forward(chain, chain.hazard, 0, None)
    backward = _backward(chain)
    score = forward.evidence[-1] + chain.log_weight
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    shares = np.array(
        [_jump_share(chain, forward.messages, backward, gap) for gap in range(len(candidates))]
    )
    jump = shares @ weight
    likeliest = int(np.argmax(np.where(candidates, jump, -1.0)))
    before, after = _levels_beside(
        chain, forward.messages, backward, likeliest, shares[likeliest] * weight
    )
    return Solved(_odds(chain, forward, candidates), jump, likeliest, before, after)


def _jump_share(
    chain: NightChain, forward: FloatArray, backward: FloatArray, gap: int
) -> FloatArray:
    """Return the probability of a jump in a gap, shape (S,)."""
    seen = backward[gap + 1] * chain.likelihood[gap + 1]
    h = chain.hazard[gap]
    stay = (1.0 - h) * (_drifted(forward[gap], chain.wander[gap]) * seen).sum(axis=1)
    leap = h * (chain.kernel.jump(forward[gap]) * seen).sum(axis=1)
    return np.asarray(leap / (stay + leap + TINY))


def _levels_beside(
    chain: NightChain, forward: FloatArray, backward: FloatArray, gap: int, weight: FloatArray
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return mean and standard deviation of the levels around a gap, if there is a jump in it."""
    seen = backward[gap + 1] * chain.likelihood[gap + 1]
    left = forward[gap] * chain.kernel.jump_back(seen)
    right = chain.kernel.jump(forward[gap]) * seen
    return _moments(chain, left, weight), _moments(chain, right, weight)


def _moments(chain: NightChain, mass: FloatArray, weight: FloatArray) -> tuple[float, float]:
    mass = mass / (mass.sum(axis=1, keepdims=True) + TINY)
    spread = (weight / (weight.sum() + TINY)) @ mass
    mean = float(spread @ chain.levels)
    return mean, float(np.sqrt(max(spread @ chain.levels**2 - mean**2, 0.0)))
