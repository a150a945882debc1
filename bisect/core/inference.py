"""From facts to what the points say: the chain of measured nodes, solved, and the steps in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfbisect.core import nuisance
from perfbisect.core.axis import Axis, IntArray, axis_of
from perfbisect.core.facts import Facts, FloatArray
from perfbisect.core.information import (
    MAX_JUMPS,
    Crossing,
    JumpCount,
    Labelled,
    Labelling,
    label_forward,
)
from perfbisect.core.likelihood import (
    Grid,
    Samples,
    grid_for,
    log_likelihood,
    noise_estimate,
    samples_of,
)
from perfbisect.core.posterior import Chain, Marginals, chain_of, forward_pass, kernel_of, solve
from perfbisect.core.states import Find
from perfbisect.core.threshold import threshold_goodness

#: Expected number of steps on the axis, before anything is measured.
EXPECTED_STEPS = 3.0
#: How likely a step goes the way of the whole change.
WITH_THE_CHANGE = 0.85
#: The noise supports steps of this many noise scales at a sensible cost…
NOISE_SUPPORTS = 3.0
#: … but steps of this share of the whole change, or of the largest step located, are looked for.
SHARE_OF_TOTAL = 0.3
SHARE_OF_LARGEST = 0.5
#: A jump in the model is at least this share of the smallest effect worth naming.
JUMP_SHARE = 0.85
#: Labels kept for jumps beyond those expected.
SPARE_LABELS = 3
#: Neighbours less likely to differ than this are taken to share a level when drift is estimated.
SURELY_NONE = 0.02


@dataclass(frozen=True, slots=True)
class Inference:
    """Everything the planner reasons about. M measured nodes, in search order."""

    axis: Axis
    samples: Samples
    correction: nuisance.Correction
    #: Shape (K,): goodness without offsets and drift.
    values: FloatArray
    #: Measured nodes (M,) and their number of runs (M,).
    nodes: IntArray
    counts: IntArray
    grid: Grid
    chain: Chain
    marginals: Marginals
    #: Smallest change worth naming, log scale, given the noise.
    effect: float
    #: Goodness of the threshold.
    threshold: float
    #: Posterior mean of the noise scale.
    sigma: float
    labelled: Labelled
    #: Shape (M - 1,): probability of a step that is asked for, by gap.
    wanted: FloatArray

    def slot_of(self, node: int) -> int:
        """Return the index of a measured node among ``nodes``, or -1."""
        slot = int(np.searchsorted(self.nodes, node))
        return slot if slot < len(self.nodes) and self.nodes[slot] == node else -1


def infer(facts: Facts, axis: Axis | None = None) -> Inference | None:
    """Solve the chain, or return None while an end has not been measured."""
    axis = axis if axis is not None else axis_of(facts)
    samples = samples_of(facts, axis)
    ends = {int(axis.representative[0]), int(axis.representative[-1])}
    if not ends <= set(samples.wheel.tolist()):
        return None
    pool = len(facts.hosts)
    correction = nuisance.no_correction(samples)
    expected = np.zeros(len(samples.hosts))
    if len(samples.hosts) > 1:
        scale = noise_estimate(samples.value, samples.wheel)[0]
        correction = nuisance.estimate(samples, samples.wheel, scale, pool, expected)
        for host in range(pool, len(samples.hosts)):
            move = _alignment(axis, samples, correction.shift, host)
            correction = nuisance.moved(correction, samples, host, move)
            expected[host] = move
    solved = _solve(facts, axis, samples, correction)
    for _ in range(3):
        groups = _stretches(axis, samples, solved.nodes, solved.marginals.jump)
        updated = nuisance.estimate(samples, groups, solved.sigma, pool, expected)
        moved = float(np.max(np.abs(updated.shift - correction.shift), initial=0.0))
        if moved < 0.2 * solved.sigma:
            break
        correction = updated
        solved = _solve(facts, axis, samples, correction)
    # Once a step is located, steps that are small beside it and the noise are not chased.
    largest = _largest_step(axis, solved)
    if SHARE_OF_LARGEST * largest > 1.1 * solved.effect and NOISE_SUPPORTS * solved.grid.scale > (
        1.1 * solved.effect
    ):
        solved = _solve(facts, axis, samples, correction, largest)
    return solved


def expand(axis: Axis, samples: Samples) -> tuple[IntArray, IntArray]:
    """Return (sample index, node) pairs: a point speaks for every node that shares its wheel."""
    single = np.full(len(axis.representative_of), -1, dtype=np.int64)
    single[axis.representative] = np.arange(axis.last + 1)
    index = np.arange(len(samples))
    node = single[samples.wheel]
    extra_index: list[int] = []
    extra_node: list[int] = []
    if axis.nodes_of:
        for position, wheel in enumerate(samples.wheel.tolist()):
            for other in axis.nodes_of.get(wheel, ()):
                if other != node[position]:
                    extra_index.append(position)
                    extra_node.append(other)
    return (
        np.append(index, np.array(extra_index, dtype=np.int64)),
        np.append(node, np.array(extra_node, dtype=np.int64)),
    )


def _solve(
    facts: Facts,
    axis: Axis,
    samples: Samples,
    correction: nuisance.Correction,
    largest: float = 0.0,
) -> Inference:
    values = samples.value - correction.shift
    grid = grid_for(values, samples.wheel)
    index, node = expand(axis, samples)
    nodes, slots, counts = np.unique(node, return_inverse=True, return_counts=True)
    likelihood = log_likelihood(values[index], slots, len(nodes), grid)
    good = float(np.median(values[index[slots == 0]]))
    bad = float(np.median(values[index[slots == len(nodes) - 1]]))
    scale = grid.scale
    effect = _effect(facts, scale, bad - good, largest)
    kernel = kernel_of(
        max(0, round(JUMP_SHARE * effect / grid.spacing) - 1),
        _downward(bad - good, scale, int(min(counts[0], counts[-1]))),
        len(grid.levels),
    )
    chain = chain_of(likelihood, _hazard(axis, nodes), kernel, grid.log_prior, grid.levels)
    marginals = solve(chain)
    sigma = float(np.exp(marginals.noise @ np.log(grid.sigmas)))
    threshold = threshold_goodness(
        facts.policy, float(marginals.level[0]), float(marginals.level[-1])
    )
    labelled, wanted = _labelled(facts, chain, marginals, threshold, sigma)
    return Inference(
        axis, samples, correction, values, nodes, counts, grid, chain, marginals, effect,
        threshold, sigma, labelled, wanted,
    )  # fmt: skip


def _hazard(axis: Axis, nodes: IntArray) -> FloatArray:
    """Return the probability of a jump between neighbouring measured nodes."""
    hazard = -np.expm1(-EXPECTED_STEPS * np.diff(axis.mass[nodes]))
    return np.clip(hazard, 1e-12, 0.5)


def _effect(facts: Facts, scale: float, total: float, largest: float) -> float:
    """Return the smallest effect worth naming: never less than what the noise can support.

    Nor more than a part of the whole change, or of the largest step located: noise is no excuse
    for overlooking what the search is about.
    """
    asked = float(np.log1p(facts.policy.min_effect))
    part = max(SHARE_OF_TOTAL * abs(total), SHARE_OF_LARGEST * largest)
    return max(asked, min(NOISE_SUPPORTS * scale, part))


def _largest_step(axis: Axis, solved: Inference) -> float:
    """Return the size of the largest step that is located between two neighbours, or 0."""
    sizes = [
        abs(float(solved.marginals.sizes[gap, 2]))
        for gap in np.flatnonzero(solved.marginals.jump > 0.9).tolist()
        if axis.is_resolved(int(solved.nodes[gap]), int(solved.nodes[gap + 1]))
    ]
    return max(sizes, default=0.0)


def _downward(total: float, scale: float, runs: int) -> float:
    """Return the prior probability that a step makes things worse."""
    clear = abs(total) / (scale * np.sqrt(2.0 / max(runs, 1)))
    if clear < 2.0:
        return 0.5
    return WITH_THE_CHANGE if total < 0 else 1.0 - WITH_THE_CHANGE


def _labelled(
    facts: Facts, chain: Chain, marginals: Marginals, threshold: float, sigma: float
) -> tuple[Labelled, FloatArray]:
    """Run the pass with labels at the likeliest noise scale."""
    likeliest = int(np.argmax(marginals.noise))
    beyond = chain.levels < threshold
    jumps = int(np.ceil(marginals.jump.sum()))
    count = JumpCount(min(jumps + SPARE_LABELS, MAX_JUMPS))
    labelling: Labelling = count if facts.policy.find is Find.ALL else Crossing(beyond)
    labelled = label_forward(
        chain.likelihood[:, likeliest],
        marginals.backward[:, likeliest],
        chain.hazard,
        chain.kernel,
        chain.levels,
        sigma,
        labelling,
    )
    if facts.policy.find is Find.ALL:
        return labelled, marginals.jump
    return labelled, labelled.crossing(beyond, chain.kernel)


def _stretches(axis: Axis, samples: Samples, nodes: IntArray, jump: FloatArray) -> IntArray:
    """Group points whose nodes surely share a level; wheels with several nodes stay alone."""
    stretch = np.concatenate([[0], np.cumsum(jump > SURELY_NONE)])
    of_wheel = {
        int(axis.representative[node]): int(stretch[slot]) for slot, node in enumerate(nodes)
    }
    for wheel in axis.nodes_of:
        if wheel in of_wheel:
            of_wheel[wheel] = len(nodes) + wheel
    return np.array([of_wheel[wheel] for wheel in samples.wheel.tolist()], dtype=np.int64)


def _alignment(axis: Axis, samples: Samples, shift: FloatArray, host: int) -> float:
    """Return by how much more to shift a host outside the pool.

    A host that never measured a wheel that the others measured tells its offset only through the
    shape of its history: of a few alignments (as it is, with the good end, with the bad end) the
    one under which the whole history is likeliest is taken.
    """
    theirs = samples.host == host
    if not np.any(theirs) or set(samples.wheel[theirs]) & set(samples.wheel[~theirs]):
        return 0.0
    values = samples.value - shift
    index, node = expand(axis, samples)
    mine = theirs[index]
    ranked = values[index[mine][np.argsort(node[mine], kind="stable")]]
    ends = [values[index[(node == end) & ~mine]] for end in (0, axis.last)]
    moves = [0.0]
    for near, end in zip((ranked[:3], ranked[-3:]), ends, strict=True):
        if len(end):
            moves.append(float(np.median(near) - np.median(end)))
    scored = [
        (_evidence(axis, samples, shift + np.where(theirs, move, 0.0)), -abs(move), move)
        for move in moves
    ]
    return max(scored)[2]


def _evidence(axis: Axis, samples: Samples, shift: FloatArray) -> float:
    """Return the log evidence of the chain with a plain kernel."""
    values = samples.value - shift
    grid = grid_for(values, samples.wheel)
    index, node = expand(axis, samples)
    nodes, slots = np.unique(node, return_inverse=True)
    likelihood = log_likelihood(values[index], slots, len(nodes), grid)
    hazard = _hazard(axis, nodes)
    chain = chain_of(
        likelihood, hazard, kernel_of(1, 0.5, len(grid.levels)), grid.log_prior, grid.levels
    )
    score = forward_pass(chain)[-1] + grid.log_prior
    # Levels are spread evenly over the grid, whose range depends on the shift: a density.
    return float(np.logaddexp.reduce(score) - np.log(len(grid.levels) * grid.spacing))
