"""The planner's promises, measured over seeded simulated bisections.

Bounds are wider than what is measured in benchmarks/search by the chance of so few trials.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from perfbisect.core.facts import Policy
from perfbisect.core.simulation import (
    Bench,
    SimulationResult,
    SimulationSpec,
    estimate,
    make_world,
    simulate,
    summarise,
)
from perfbisect.core.states import Find, Outcome


def _trials(spec: SimulationSpec, count: int, start: int = 0) -> list[SimulationResult]:
    return [simulate(spec, seed) for seed in range(start, start + count)]


def _random_search(seed: int) -> SimulationSpec:
    """Draw a search: n = 64 … 2,000, noise 1–5% and step 5–40%, each log-uniform."""
    rng = np.random.default_rng([7, seed])
    noise = float(np.exp(rng.uniform(np.log(0.01), np.log(0.05))))
    step = float(np.exp(rng.uniform(np.log(0.05), np.log(0.4))))
    return SimulationSpec(
        commits=int(np.exp(rng.uniform(np.log(64), np.log(2000)))),
        steps=(-step,),
        noise=noise,
        outliers=0.02,
        unbuildable=0.1,
    )


@pytest.mark.timeout(1500)
def test_five_hundred_searches_are_right_as_often_as_stated() -> None:
    """At least 98% name exactly the culprit, no wrong one is verified, and the doubt is honest."""
    specs = [_random_search(seed) for seed in range(500)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=spawn) as pool:
        results = list(pool.map(simulate, specs, range(500), chunksize=5))
    summary = summarise(results)
    assert summary.exact >= 0.98
    assert summary.wrong <= 0.01
    assert summary.builds.mean <= 11
    assert summary.runs.mean <= 50
    sure = [r.exact for r in results if r.probability >= 0.99]
    assert len(sure) >= 300
    assert np.mean(sure) >= 0.99


def test_layered_steps_are_all_found() -> None:
    """Three steps in one range, with outliers and unbuildable commits, are named exactly."""
    spec = SimulationSpec(commits=500, steps=(-0.1, -0.1, -0.1), outliers=0.02, unbuildable=0.1)
    summary = summarise(_trials(spec, 25))
    assert summary.exact >= 0.95
    assert summary.wrong == 0
    assert summary.runs.mean <= 75


def test_no_change_makes_no_culprit_and_costs_little() -> None:
    """A range without a step ends in ``not_reproduced``, with few runs and no build."""
    spec = SimulationSpec(steps=(), noise=0.01, outliers=0.02)
    results = _trials(spec, 200)
    summary = summarise(results)
    assert summary.wrong == 0
    assert summary.exact >= 0.98
    assert summary.runs.mean <= 13
    assert summary.builds.p95 == 0


def test_a_drop_and_its_recovery_are_found_by_probing() -> None:
    """Between ends that look alike, ``find = all`` with probes names both steps."""
    spec = SimulationSpec(
        steps=(-0.1, 1 / 0.9 - 1),
        positions=(300, 600),
        prebuilt_every=60,
        outliers=0.02,
        policy=Policy(probe=12),
    )
    results = _trials(spec, 10)
    assert all(r.named == ((299, 300), (599, 600)) for r in results)
    without = simulate(replace(spec, policy=Policy()), 1)
    assert without.outcome is Outcome.NOT_REPRODUCED


def test_a_drifting_host_makes_no_culprits() -> None:
    """A slow drift of the host neither hides the steps nor makes new ones."""
    spec = SimulationSpec(commits=300, steps=(-0.1, -0.1), drift=0.05, outliers=0.02)
    summary = summarise(_trials(spec, 12))
    assert summary.exact >= 0.9
    assert summary.wrong == 0


def test_hosts_of_different_speed_make_no_culprits() -> None:
    """Two hosts 3% apart find the same steps as one."""
    spec = SimulationSpec(
        commits=300, steps=(-0.1, -0.1), workers=2, host_offset=0.03, outliers=0.02
    )
    summary = summarise(_trials(spec, 12))
    assert summary.exact >= 0.9
    assert summary.wrong == 0


def test_more_workers_take_less_time() -> None:
    """Four workers find three steps at least twice as fast as one."""
    spec = SimulationSpec(
        commits=2000, steps=(-0.1, -0.1, -0.1), prebuilt_every=60, unbuildable=0.1
    )
    one = summarise(_trials(spec, 5)).wall_seconds.mean
    four = summarise(_trials(replace(spec, workers=4), 5)).wall_seconds.mean
    assert four <= one / 2


def test_a_trial_is_repeatable() -> None:
    """The same spec and seed give the same result, another seed another world."""
    spec = SimulationSpec(commits=200, outliers=0.02, unbuildable=0.1)
    assert simulate(spec, 5) == simulate(spec, 5)
    assert simulate(spec, 5).truth != simulate(spec, 6).truth


def test_an_estimate_summarises_its_trials() -> None:
    """Means, medians and percentiles come from the trials, outcomes add up to them."""
    found = estimate(SimulationSpec(commits=100), trials=8, seed=3)
    assert found.trials == 8
    assert sum(found.outcomes.values()) == 8
    assert found.runs.median <= found.runs.p95
    assert found.machine_seconds.mean == pytest.approx(
        found.builds.mean * 3600 + found.runs.mean * 300
    )


def test_worlds_have_what_the_spec_asks_for() -> None:
    """Steps, clumps, wheels and truth follow from the spec."""
    spec = SimulationSpec(
        commits=4000, steps=(-0.2, 0.1), positions=(1000, 3000), unbuildable=0.1, prebuilt_every=50
    )
    world = make_world(spec, np.random.default_rng(1))
    assert world.level[999] == 0.0
    assert world.level[1000] == pytest.approx(math.log(0.8))
    assert world.level[4000] == pytest.approx(math.log(0.8 * 1.1))
    assert 0.07 < float(world.broken.mean()) < 0.13
    assert not world.broken[0]
    assert not world.broken[4000]
    assert all(p % 50 == 0 and not world.broken[p] for p in world.prebuilt)
    for before, after in world.truth:
        assert not world.broken[before]
        assert not world.broken[after]
        assert world.broken[before + 1 : after].all()


def test_the_truth_of_a_fix_is_the_last_crossing() -> None:
    """With ``find = fix`` the answer is the step after which the range stays good."""
    spec = SimulationSpec(
        commits=100, steps=(0.5, -0.3, 0.5), positions=(20, 50, 80), policy=Policy(find=Find.FIX)
    )
    assert make_world(spec, np.random.default_rng(1)).truth == ((79, 80),)
    assert Bench(spec, 1).facts().wheels == frozenset({0, 100})
