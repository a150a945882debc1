"""Only a step that fresh, interleaved pairs of its neighbours show is called a culprit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfbisect.core.facts import Facts, Finish, Observation, Policy, Run
from perfbisect.core.planner import believe, plan
from perfbisect.core.simulation import SimulationSpec, simulate, summarise
from perfbisect.core.states import Outcome, Purpose

_PAIR = (4, 5)


def _searched(**fields: object) -> Facts:
    """Facts of a search that has located one step of 20% between positions 4 and 5."""
    rng = np.random.default_rng(11)
    observations = []
    for at, position in enumerate([0, 9, 9, 0, 4, 5, 0, 9, 4, 5, 3, 6]):
        level = 1000.0 if position <= 4 else 800.0
        value = level * (1 + 0.01 * float(rng.standard_normal()))
        observations.append(Observation(position, value, "one", 300.0 * at))
    facts = Facts(
        n=9,
        policy=Policy(),
        weights=np.ones(9),
        wheels=frozenset(range(10)),
        observations=tuple(observations),
        hosts=("one",),
        free_hosts=("one",),
        runs_done=len(observations),
    )
    return replace(facts, **fields)  # type: ignore[arg-type]


def _verified(facts: Facts, low: list[float], high: list[float], host: str = "one") -> Facts:
    """Add verification points, alternating."""
    points = [
        Observation(position, value, host, 10_000.0 + 600.0 * k + off, Purpose.VERIFY, _PAIR)
        for position, values, off in ((4, low, 0.0), (5, high, 300.0))
        for k, value in enumerate(values)
    ]
    return replace(facts, observations=(*facts.observations, *points))


def test_a_located_step_is_not_a_culprit_before_its_pairs() -> None:
    """However certain the search is, the step goes to verification first."""
    (run,) = plan(_searched()).actions
    assert isinstance(run, Run)
    assert (run.purpose, run.pair, run.position) == (Purpose.VERIFY, _PAIR, 4)
    belief = believe(_searched())
    assert belief is not None
    assert [s.verified for s in belief.steps] == [False]


def test_pairs_are_run_in_balanced_order_on_one_host() -> None:
    """A B B A on the host that began, even if another host is free and preferred."""
    facts = _searched(hosts=("two", "one"), free_hosts=("one",))
    order, moment = [], 20_000.0
    for _ in range(4):
        run = next(a for a in plan(facts).actions if isinstance(a, Run) and a.pair == _PAIR)
        assert run.host == "one"
        order.append(run.position)
        moment += 300.0
        # Values that settle nothing, so that it goes on.
        point = Observation(run.position, 900.0, "one", moment, Purpose.VERIFY, _PAIR)
        facts = replace(facts, observations=(*facts.observations, point), free_hosts=("two", "one"))
    assert order == [4, 5, 5, 4]


def test_a_pair_in_flight_is_not_started_twice() -> None:
    """While one side of a pair runs, no other host measures that pair."""
    flying = Run(4, "one", Purpose.VERIFY, _PAIR)
    facts = _searched(hosts=("one", "two"), free_hosts=("two",), running=(flying,))
    assert all(not isinstance(a, Run) or a.pair != _PAIR for a in plan(facts).actions)


def test_two_clear_pairs_verify() -> None:
    """Two pairs that differ as claimed settle it, and no third one is run."""
    found = plan(_verified(_searched(), [1001.0, 996.0], [799.0, 803.0]))
    assert not any(isinstance(a, Run) and a.purpose is Purpose.VERIFY for a in found.actions)
    assert found.belief is not None
    (step,) = found.belief.steps
    assert (step.before, step.after, step.verified, step.verify_runs) == (4, 5, True, 4)


def test_one_pair_is_never_enough() -> None:
    """A single pair, however clear, proves nothing."""
    belief = believe(_verified(_searched(), [1000.0], [700.0]))
    assert belief is not None
    assert not any(step.verified for step in belief.steps)


def test_pairs_that_show_no_difference_send_the_step_back() -> None:
    """Points of the search do not rescue a step whose own pairs look alike."""
    facts = _verified(_searched(), [1001.0, 998.0, 1003.0, 999.0], [1000.0, 997.0, 1002.0, 1004.0])
    found = plan(facts)
    assert found.belief is not None
    assert not any(step.verified for step in found.belief.steps)
    assert not any(isinstance(a, Finish) and a.outcome is Outcome.CULPRITS for a in found.actions)


def test_points_of_another_pair_do_not_count() -> None:
    """Only points measured for this very pair verify it."""
    facts = _verified(_searched(), [1001.0, 996.0], [799.0, 803.0])
    elsewhere = tuple(
        replace(o, pair=(3, 4)) if o.purpose is Purpose.VERIFY else o for o in facts.observations
    )
    belief = believe(replace(facts, observations=elsewhere))
    assert belief is not None
    assert not any(step.verified for step in belief.steps)


def test_pairs_that_stay_undecided_end_in_an_honest_inconclusive() -> None:
    """After very many pairs half-way between claim and nothing, it says that it can't verify."""
    rng = np.random.default_rng(1)
    low = [float(v) for v in 1000 * (1 + 0.3 * rng.uniform(-1, 1, 700))]
    high = [float(v) for v in 1000 * (1 + 0.3 * rng.uniform(-1, 1, 700))]
    found = plan(_verified(_searched(), low, high))
    assert not any(isinstance(a, Finish) and a.outcome is Outcome.CULPRITS for a in found.actions)


def test_hosts_with_two_modes_and_throttled_hours_make_no_culprits() -> None:
    """Runs that are slower for reasons of the host are never named as a commit."""
    base = SimulationSpec(commits=200, steps=(-0.1,), outliers=0.02)
    odd = [
        replace(base, bimodal_share=0.15, bimodal_change=-0.06),
        replace(base, throttle_every=5 * 3600.0, throttle_seconds=1800.0, throttle_change=-0.08),
    ]
    results = [simulate(spec, seed) for spec in odd for seed in range(6)]
    summary = summarise(results)
    assert summary.wrong == 0
    assert summary.exact >= 0.9
