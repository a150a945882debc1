"""The verdict says what was proven, in the benchmark's unit, and what is still in doubt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfbisect.core.facts import Belief, EndStat, Facts, Finish, Policy, Step
from perfbisect.core.states import Better, ChangeKind, Find, Outcome
from perfbisect.core.verdict import credible_positions, verdict

_STEP = Step(
    before=4,
    after=7,
    probability=0.995,
    level_before=1000.0,
    level_after=900.0,
    change=-0.1,
    ci95=(-0.11, -0.09),
    kind=ChangeKind.REGRESSION,
    resolved=True,
    verified=True,
    verify_runs=4,
)
_BELIEF = Belief(
    step_probability=np.array([0.0, 0.01, 0.0, 0.0, 0.3, 0.3, 0.38, 0.0, 0.0, 0.0]),
    steps=(_STEP,),
    missed=0.01,
    confidence=0.985,
    noise=0.02,
    first=EndStat(1000.0, (990.0, 1010.0), 4),
    last=EndStat(810.0, (800.0, 820.0), 5),
)
_FACTS = Facts(n=10, policy=Policy(), weights=np.ones(10))
_DONE = Finish(Outcome.CULPRITS, "one step")


def test_a_step_between_unbuildable_commits_names_them_all() -> None:
    """Every position after the last measured one up to the first measured one is a suspect."""
    (culprit,) = verdict(_FACTS, _BELIEF, _DONE).culprits
    assert culprit.positions == (5, 6, 7)
    assert (culprit.before, culprit.after, culprit.change) == (1000.0, 900.0, -0.1)
    assert culprit.ci95 == (-0.11, -0.09)
    assert culprit.kind is ChangeKind.REGRESSION


def test_an_unverified_step_is_a_suspect_and_explains_nothing() -> None:
    """Only a verified step is a culprit, and only culprits explain the change."""
    second = replace(_STEP, before=8, after=9, verified=False)
    found = verdict(_FACTS, replace(_BELIEF, steps=(_STEP, second)), _DONE)
    assert [c.positions for c in found.culprits] == [(5, 6, 7)]
    assert [c.positions for c in found.suspects] == [(9,)]
    assert found.explained is not None
    assert found.explained.total == pytest.approx(-0.19)
    assert found.explained.steps == pytest.approx(-0.1)


def test_the_doubt_is_part_of_the_answer() -> None:
    """Missed steps, confidence and the credible set are stated beside the culprits."""
    found = verdict(_FACTS, _BELIEF, _DONE)
    assert (found.missed, found.confidence, found.noise) == (0.01, 0.985, 0.02)
    assert found.credible == (5, 6, 7)


def test_less_is_more_where_lower_is_better() -> None:
    """For a metric like seconds a falling value is a recovery."""
    facts = replace(_FACTS, policy=Policy(better=Better.LOWER))
    (culprit,) = verdict(facts, _BELIEF, _DONE).culprits
    assert culprit.kind is ChangeKind.RECOVERY


def test_a_fix_is_looked_for_with_the_good_end_last() -> None:
    """With ``find = fix`` the later end is the good one."""
    facts = replace(_FACTS, policy=Policy(find=Find.FIX))
    found = verdict(facts, _BELIEF, _DONE)
    assert found.good == _BELIEF.last
    assert found.bad == _BELIEF.first


def test_without_points_there_is_a_verdict_without_numbers() -> None:
    """A bisection that ends before both ends ran has an outcome, a reason and nothing else."""
    failed = Finish(Outcome.FAILED, "the later end does not build", "end_unbuildable")
    found = verdict(_FACTS, None, failed)
    assert (found.outcome, found.code, found.culprits) == (Outcome.FAILED, "end_unbuildable", ())
    assert found.good is None
    assert found.explained is None


def test_the_credible_set_is_the_smallest() -> None:
    """The set holds the likeliest positions up to the share asked for, and no more."""
    assert credible_positions(_BELIEF, 0.3) == (7,)
    assert credible_positions(replace(_BELIEF, step_probability=np.zeros(10))) == ()
