"""The posterior over steps is exact, and the information it leads to is right."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from perfbisect.core.information import (
    Crossing,
    JumpCount,
    Predictions,
    information,
    label_forward,
    predict,
)
from perfbisect.core.posterior import chain_of, kernel_of, solve


def _transition(count: int, width: int, down: float) -> np.ndarray:
    """Write the jump kernel out as a matrix: one over the size, constant within octaves."""
    matrix = np.zeros((count, count))
    for old, new in itertools.product(range(count), range(count)):
        size = abs(new - old)
        if size > width:
            octave = (width + 1) * 2 ** int(math.log2(size / (width + 1)))
            matrix[old, new] = (down if new < old else 1 - down) / octave
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def _enumerate(
    log_likelihood: np.ndarray, hazard: np.ndarray, matrix: np.ndarray, log_prior: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Sum over every path of levels and jumps: probability of each jump, evidence, mean levels."""
    nodes, scales, count = log_likelihood.shape
    jumps = np.zeros(nodes - 1)
    levels = np.zeros(nodes)
    total = 0.0
    for scale in range(scales):
        for pattern in itertools.product((False, True), repeat=nodes - 1):
            for path in itertools.product(range(count), repeat=nodes):
                weight = math.exp(log_prior[scale]) / count
                for node, level in enumerate(path):
                    weight *= math.exp(log_likelihood[node, scale, level])
                for gap, jumped in enumerate(pattern):
                    old, new = path[gap], path[gap + 1]
                    if jumped:
                        weight *= hazard[gap] * matrix[old, new]
                    else:
                        weight *= (1 - hazard[gap]) * (old == new)
                total += weight
                jumps += weight * np.array(pattern)
                levels += weight * np.array(path)
    return jumps / total, math.log(total), levels / total


@pytest.mark.parametrize("dense", [False, True])
def test_forward_backward_equals_the_sum_over_all_paths(dense: bool) -> None:
    """Two passes give what enumerating every path of levels and jumps gives."""
    rng = np.random.default_rng(3)
    nodes, scales, count, width, down = 4, 2, 5, 1, 0.8
    log_likelihood = rng.normal(0.0, 2.0, (nodes, scales, count))
    hazard = np.array([0.1, 0.4, 0.02])
    log_prior = np.array([-0.3, -1.1])
    kernel = kernel_of(width, down, count, dense=dense)
    chain = chain_of(log_likelihood, hazard, kernel, log_prior, np.arange(count, dtype=float))
    found = solve(chain)
    jumps, evidence, levels = _enumerate(
        log_likelihood, hazard, _transition(count, width, down), log_prior
    )
    assert found.jump == pytest.approx(jumps, rel=1e-9)
    assert found.evidence == pytest.approx(evidence, rel=1e-9)
    assert found.level == pytest.approx(levels, rel=1e-9)


def test_hundreds_of_sharp_nodes_do_not_underflow() -> None:
    """A long chain of very telling nodes keeps its probabilities finite and its one step."""
    levels = np.linspace(0.0, 1.0, 64)
    means = np.where(np.arange(400) < 250, 0.8, 0.3)
    log_likelihood = -0.5 * ((levels - means[:, None, None]) / 0.02) ** 2 * np.ones((400, 2, 1))
    chain = chain_of(
        log_likelihood, np.full(399, 0.002), kernel_of(3, 0.5, 64), np.zeros(2), levels
    )
    found = solve(chain)
    assert int(np.argmax(found.jump)) == 249
    assert found.jump[249] > 0.999
    assert found.jump.sum() == pytest.approx(1.0, abs=0.01)
    assert found.sizes[249, 2] == pytest.approx(-0.5, abs=0.02)


def test_labels_sum_to_the_unlabelled_posterior() -> None:
    """Counting jumps along the way changes nothing about the levels."""
    rng = np.random.default_rng(5)
    levels = np.linspace(0.0, 1.0, 32)
    log_likelihood = rng.normal(0.0, 1.0, (6, 1, 32))
    hazard = np.full(5, 0.2)
    chain = chain_of(log_likelihood, hazard, kernel_of(2, 0.6, 32), np.zeros(1), levels)
    solved = solve(chain)
    labelled = label_forward(
        chain.likelihood[:, 0],
        solved.backward[:, 0],
        hazard,
        chain.kernel,
        levels,
        0.1,
        JumpCount(),
    )
    assert labelled.forward.sum(axis=1) == pytest.approx(solved.forward[:, 0], rel=1e-9)
    measured = -np.arange(1, 7)
    mixture = predict(labelled, measured, np.zeros(6), np.zeros(6))
    assert (mixture.weight * mixture.mean).sum(axis=1) == pytest.approx(solved.level, rel=1e-6)


def test_first_crossing_ignores_steps_that_stay_on_the_good_side() -> None:
    """Of three steps the one that crosses the threshold first is the first crossing."""
    levels = np.linspace(0.0, 1.0, 64)
    means = np.array([0.9, 0.9, 0.8, 0.8, 0.3, 0.3, 0.1])
    log_likelihood = (-0.5 * ((levels - means[:, None]) / 0.02) ** 2)[:, None, :]
    hazard = np.full(6, 0.1)
    chain = chain_of(log_likelihood, hazard, kernel_of(2, 0.8, 64), np.zeros(1), levels)
    solved = solve(chain)
    bad = levels < 0.5
    labelled = label_forward(
        chain.likelihood[:, 0], solved.backward[:, 0], hazard, chain.kernel, levels, 0.02,
        Crossing(bad),
    )  # fmt: skip
    crossing = labelled.crossing(bad, chain.kernel)
    assert int(np.argmax(crossing)) == 3
    assert crossing[3] > 0.99
    assert np.count_nonzero(solved.jump > 0.9) == 3


def test_information_agrees_with_numerical_integration() -> None:
    """Quadrature over two labels matches integrating the entropy difference on a fine grid."""
    weight, gap, sigma = 0.3, 1.7, 1.0
    predictions = Predictions(
        np.array([[weight, 1 - weight]]), np.array([[0.0, gap]]), np.zeros((1, 2))
    )
    y = np.linspace(-9.0, 11.0, 40_001)
    left = np.exp(-0.5 * y**2) / math.sqrt(2 * math.pi)
    right = np.exp(-0.5 * (y - gap) ** 2) / math.sqrt(2 * math.pi)
    mixture = weight * left + (1 - weight) * right
    exact = np.trapezoid(
        weight * left * np.log2(np.maximum(left, 1e-300) / mixture)
        + (1 - weight) * right * np.log2(np.maximum(right, 1e-300) / mixture),
        y,
    )
    found = information(predictions, sigma, np.array([1, 4]))
    assert found[0, 0] == pytest.approx(exact, rel=0.01)
    assert found[0, 0] < found[0, 1] < -0.3 * math.log2(0.3) - 0.7 * math.log2(0.7) + 1e-9
