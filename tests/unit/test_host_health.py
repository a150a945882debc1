"""Hosts judged by repeats of the same wheels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from perfbisect.core.host_health import FEWEST_EARLY, Health, Repeat, judge


def measured(
    seed: int,
    count: int = 80,
    noise: float = 0.01,
    moved: Callable[[int], float] = lambda number: 0.0,
    wheels: int = 3,
) -> list[Repeat]:
    """Repeats of a few wheels, taken in turn; a few per cent of them are far too slow.

    Args:
        moved: number of a repeat -> by how much the host's values have moved by then, relative.
    """
    random = np.random.default_rng(seed)
    return [
        Repeat(
            f"wheel {number % wheels}",
            float(number),
            math.log(1000.0 * (1 + number % wheels))
            + random.normal(0.0, noise)
            - (0.3 if random.random() < 0.03 else 0.0)
            + math.log1p(moved(number)),
        )
        for number in range(count)
    ]


def judged(repeats: list[Repeat], rejected: float = 0.0) -> Health:
    health = judge(repeats, rejected)
    assert health is not None
    return health


def test_steady_hosts_stay() -> None:
    """Of 500 hosts on which nothing changed, at noise of 1% and 5%, none is called drifting."""
    for noise in (0.01, 0.05):
        found = [judged(measured(seed, noise=noise)) for seed in range(500)]
        assert [health for health in found if health.drifting] == []
        assert np.median([health.score for health in found]) >= 95


@pytest.mark.parametrize("moved", [-0.08, 0.08])
def test_hosts_that_moved_are_found(moved: float) -> None:
    """Values 8% off in either direction are found on each of 200 hosts, and told in the reason."""
    for seed in range(200):
        health = judged(measured(seed, moved=lambda number: moved if number >= 58 else 0.0))
        assert health.drifting
        assert health.drift == pytest.approx(moved, abs=0.02)
        assert health.score <= 60
        assert f"{health.drift:+.1%}" in health.reason


def test_harmless_drifts_stay() -> None:
    """One per cent is removed by anchors, and no reason to lose a host."""
    found = [judged(measured(seed, moved=lambda n: 0.01 * (n >= 58))) for seed in range(100)]
    assert not any(health.drifting for health in found)
    assert {health.reason for health in found} == {""}


def test_different_wheels_are_no_drift() -> None:
    """That wheels differ is what bisections look for: one that is new to a host tells nothing."""
    old = measured(1)
    slow = [Repeat("a regression", 100.0 + number, math.log(500.0)) for number in range(40)]
    found = judge(old + slow, 0.0)
    assert found is None or not found.drifting


def test_few_repeats_say_nothing() -> None:
    """Without enough before and of late there is no judgement rather than a wrong one."""
    assert judge([], 0.0) is None
    assert judge(measured(1, count=FEWEST_EARLY), 0.0) is None
    assert judge(measured(1, wheels=80), 0.0) is None


def test_noise_and_rejected_runs_lower_the_score() -> None:
    """A host that became three times as noisy, or rejects runs, loses points and stays."""
    steady = judged(measured(5))
    noisy = [
        Repeat(each.group, each.at, each.value + (0.03 * (-1) ** number if number >= 60 else 0.0))
        for number, each in enumerate(measured(5))
    ]
    assert judged(noisy).score <= steady.score - 20
    assert not judged(noisy).drifting
    assert judged(measured(5), rejected=0.2).score == steady.score - 25
    assert judged(measured(5), rejected=1.0).score == steady.score - 25


def test_equal_values_are_no_fault() -> None:
    """A benchmark without any noise is judged too."""
    assert judged([Repeat("a", float(at), 1.0) for at in range(60)]).score == 100
