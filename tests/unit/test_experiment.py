"""Experiments, pure: the order of runs, when an arm is decided, how often it is right."""

from __future__ import annotations

import numpy as np
import pytest

from perfbisect.core.comparison import Comparison, Difference, Measured, compare
from perfbisect.core.experiment import Arm, ExperimentFacts, plan
from perfbisect.core.facts import Build, Finish, Run
from perfbisect.core.states import Better, Outcome


def run_through(
    deltas: list[float],
    *,
    noise: float = 0.02,
    seed: int = 0,
    outliers: float = 0.02,
    expected: float | None = None,
    better: Better = Better.HIGHER,
    max_runs: int | None = None,
) -> tuple[Finish, tuple[Comparison | None, ...], list[int]]:
    """Drive the planner to its end against a simulated host; arm 0 is the reference."""
    random = np.random.default_rng(seed)
    values: list[list[Measured]] = [[] for _ in deltas]
    order: list[int] = []
    while True:
        arms = tuple(
            Arm(
                name=f"arm {index}",
                against=None if index == 0 else 0,
                wheel=True,
                values=tuple(values[index]),
                expected=None if index == 0 else expected,
            )
            for index in range(len(deltas))
        )
        facts = ExperimentFacts(arms, better=better, runs_done=len(order), max_runs=max_runs)
        decision = plan(facts)
        (action,) = decision.actions
        if isinstance(action, Finish):
            return action, decision.comparisons, order
        assert isinstance(action, Run)
        value = 1000 * (1 + deltas[action.position]) * float(np.exp(random.normal(0, noise)))
        if random.random() < outliers:
            value *= 0.6 if better is Better.HIGHER else 1 / 0.6
        values[action.position].append(Measured(value, "host", 10.0 * len(order)))
        order.append(action.position)


def test_arms_and_reference_take_turns_in_balanced_order() -> None:
    """Each round goes the other way, so that drift touches all arms alike."""
    _, _, order = run_through([0.0, -0.3, 0.2])
    assert order[:9] == [0, 1, 2, 2, 1, 0, 0, 1, 2]


def test_clear_differences_are_told_with_direction_and_size() -> None:
    """Of 20 experiments with -10% and +30% at 2% noise, all name both directions rightly."""
    for seed in range(20):
        finish, comparisons, order = run_through([0.0, -0.1, 0.3], seed=seed)
        assert finish.outcome is Outcome.ANSWERED
        worse, better = comparisons[1], comparisons[2]
        assert worse is not None
        assert better is not None
        assert (worse.difference, better.difference) == (Difference.WORSE, Difference.BETTER)
        assert worse.change == pytest.approx(-0.1, abs=0.06)
        assert len(order) <= 60


def test_no_difference_is_excluded_and_rarely_taken_for_one() -> None:
    """Of 40 A/A experiments at most 2 claim a difference, and most exclude one."""
    told = [run_through([0.0, 0.0], seed=seed)[1][1] for seed in range(40)]
    differences = [each.difference for each in told if each is not None]
    claimed = sum(each in (Difference.BETTER, Difference.WORSE) for each in differences)
    assert claimed <= 2
    assert sum(each is Difference.ALIKE for each in differences) >= 34


@pytest.mark.parametrize(
    ("delta", "noise"), [(-0.1, 0.02), (-0.03, 0.02), (-0.02, 0.02), (-0.06, 0.05)]
)
def test_intervals_hold_the_truth(delta: float, noise: float) -> None:
    """Of 28 experiments the 95% interval holds the truth in at least 26: clear and small changes.

    Over the four settings that is at least 93%, with the runs ended as soon as they seem decided.
    """
    held = 0
    for seed in range(28):
        comparison = run_through([0.0, delta], noise=noise, seed=seed)[1][1]
        assert comparison is not None
        held += comparison.ci95[0] <= delta <= comparison.ci95[1]
    assert held >= 26


def test_a_small_change_is_not_told_as_none() -> None:
    """2%, below the smallest effect worth naming: over 10 experiments, its mean is told as 2%."""
    told = [run_through([0.0, -0.02], noise=0.01, seed=seed)[1][1] for seed in range(10)]
    changes = [each.change for each in told if each is not None]
    assert float(np.mean(changes)) == pytest.approx(-0.02, abs=0.005)


def test_a_claim_is_measured_until_it_can_be_told_from_none() -> None:
    """A small claim under noise takes more runs than finding some difference would."""
    claimed = [
        len(run_through([0.0, -0.08], noise=0.04, seed=s, expected=-0.08)[2]) for s in (1, 2)
    ]
    free = [len(run_through([0.0, -0.08], noise=0.04, seed=s)[2]) for s in (1, 2)]
    assert sum(claimed) >= sum(free)
    comparison = run_through([0.0, -0.08], noise=0.04, seed=1, expected=-0.08)[1][1]
    assert comparison is not None
    assert comparison.ci95[1] < 0


def test_lower_is_better_turns_the_words_not_the_numbers() -> None:
    """Of seconds, a tenth more is worse and is still +10%."""
    comparison = run_through([0.0, 0.1], better=Better.LOWER)[1][1]
    assert comparison is not None
    assert comparison.difference is Difference.WORSE
    assert comparison.change == pytest.approx(0.1, abs=0.05)


def test_missing_wheels_are_built_first_and_broken_arms_left_out() -> None:
    """A build for each missing wheel; an arm that can't be applied never runs."""
    arms = (
        Arm("reference", None),
        Arm("broken", 0, broken=True),
        Arm("revert", 0),
    )
    decision = plan(ExperimentFacts(arms, free_build_slots=2))
    assert [action for action in decision.actions if isinstance(action, Build)]
    assert {action.position for action in decision.actions if isinstance(action, Build)} == {0, 2}
    only_broken = plan(ExperimentFacts(arms[:2]))
    (end,) = only_broken.actions
    assert isinstance(end, Finish)
    assert "could not be measured" in end.reason


def test_a_budget_ends_it_honestly() -> None:
    """Six runs are not enough for 1% at 2% noise: the arm is named as undecided."""
    finish, _, order = run_through([0.0, 0.01], max_runs=6)
    assert finish.outcome is Outcome.BUDGET_EXHAUSTED
    assert "arm 1" in finish.reason
    assert len(order) == 6


def test_nothing_measured_is_no_comparison() -> None:
    """Without values there is nothing to tell."""
    assert compare([], [], better=Better.HIGHER, min_effect=0.03) is None
