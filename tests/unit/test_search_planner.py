"""The planner: what it starts, when it stops, and that the same facts give the same plan."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from perfbisect.core.facts import Build, Facts, Finish, Observation, Plan, Policy, Run
from perfbisect.core.planner import believe, plan
from perfbisect.core.simulation import Bench, SimulationSpec, simulate
from perfbisect.core.states import Better, ChangeKind, Find, Outcome, Purpose


def _facts(n: int = 100, **fields: object) -> Facts:
    """Facts of a fresh bisection whose ends are built."""
    base = Facts(n=n, policy=Policy(), weights=np.ones(n), wheels=frozenset({0, n}))
    return replace(base, **fields)  # type: ignore[arg-type]


def _points(position: int, values: Sequence[float], start: float = 0.0) -> list[Observation]:
    """Points of one position on one host, ten seconds apart."""
    return [
        Observation(position, value, "local", start + 10.0 * k) for k, value in enumerate(values)
    ]


def _ends(good: float, bad: float, n: int = 100, runs: int = 6) -> tuple[Observation, ...]:
    """Interleaved points of both ends with 1% of spread."""
    wobble = [1 + 0.01 * (-1) ** k * (1 + k % 3) / 2 for k in range(runs)]
    first = _points(0, [good * w for w in wobble])
    return (*first, *_points(n, [bad * w for w in wobble], 5.0))


def _finish(found: Plan) -> Finish:
    (action,) = found.actions
    assert isinstance(action, Finish)
    return action


def _bench_until(bench: Bench, runs: int) -> Facts:
    """Let a simulated bisection go on until so many runs have started."""
    while bench.runs < runs:
        for action in plan(bench.facts()).actions:
            assert not isinstance(action, Finish)
            bench.start(action)
        bench.advance()
    return bench.facts()


def test_missing_ends_are_built_first_and_nothing_runs_meanwhile() -> None:
    """Without the ends' wheels both are built, as far as slots go."""
    facts = _facts(wheels=frozenset(), free_build_slots=2)
    assert [a.position for a in plan(facts).actions if isinstance(a, Build)] == [0, 100]
    one = plan(replace(facts, free_build_slots=1)).actions
    assert [type(a) for a in one] == [Build]
    waiting = replace(facts, building=frozenset({0, 100}), free_build_slots=0)
    assert plan(waiting).actions == ()


def test_ends_are_measured_in_balanced_interleaved_order() -> None:
    """Good and bad alternate A B B A, one run per free host."""
    facts, order = _facts(), []
    for moment in range(4):
        (run,) = plan(facts).actions
        assert isinstance(run, Run)
        assert run.purpose is Purpose.ANCHOR
        order.append(run.position)
        point = Observation(run.position, 1000.0 + moment, "local", float(moment))
        facts = replace(facts, observations=(*facts.observations, point))
    assert order == [0, 100, 100, 0]


@pytest.mark.parametrize("broken", [frozenset({0}), frozenset({100}), frozenset({0, 100})])
def test_an_unbuildable_end_ends_it(broken: frozenset[int]) -> None:
    """There is nothing to compare with if an end can't be built."""
    found = _finish(plan(_facts(broken=broken)))
    assert (found.outcome, found.code) == (Outcome.FAILED, "end_unbuildable")


def test_ends_with_the_same_wheel_cannot_differ() -> None:
    """If every position shares one wheel nothing is measured."""
    facts = _facts(n=3, same_as={1: 0, 2: 0, 3: 0}, wheels=frozenset({0}))
    found = _finish(plan(facts))
    assert (found.outcome, found.code) == (Outcome.NOT_REPRODUCED, "same_wheel")


def test_equal_ends_are_not_reproduced_with_an_interval_and_no_build() -> None:
    """Ends that look alike end the bisection with what was excluded."""
    found = _finish(plan(_facts(observations=_ends(1000.0, 1001.0))))
    assert found.outcome is Outcome.NOT_REPRODUCED
    assert "95% interval" in found.reason


@pytest.mark.parametrize("find", [Find.FIRST, Find.ALL])
def test_a_good_end_that_is_worse_is_said_so(find: Find) -> None:
    """The message shows both ends and suggests swapping or looking for a fix."""
    facts = _facts(policy=Policy(find=find), observations=_ends(700.0, 1000.0))
    found = _finish(plan(facts))
    assert (found.outcome, found.code) == (Outcome.FAILED, "ends_swapped")
    assert "find=fix" in found.reason


def test_looking_for_a_fix_wants_the_later_end_to_be_better() -> None:
    """With ``find = fix`` the same points go on to the search, the reverse ones do not."""
    policy = Policy(find=Find.FIX)
    goes_on = plan(_facts(policy=policy, observations=_ends(700.0, 1000.0)))
    assert isinstance(goes_on.actions[0], Build)
    found = _finish(plan(_facts(policy=policy, observations=_ends(1000.0, 700.0))))
    assert found.code == "ends_swapped"


@pytest.mark.parametrize(
    "policy",
    [Policy(threshold=1200.0), Policy(threshold=400.0), Policy(threshold_share=1.2),
     Policy(threshold_share=0.5, find=Find.FIRST)],
)  # fmt: skip
def test_a_threshold_outside_the_ends_is_refused_with_both(policy: Policy) -> None:
    """No crossing can exist; the message shows both anchors, the option and its values."""
    found = _finish(plan(_facts(policy=policy, observations=_ends(1000.0, 700.0))))
    assert (found.outcome, found.code) == (Outcome.FAILED, "threshold_outside_ends")
    assert "at the earlier" in found.reason
    words = r"\(--threshold\) between ([\d,.]+) and ([\d,.]+), which is (\d+)%"
    range_of = re.search(words, found.reason)
    assert range_of is not None
    low, high, share = (float(each.replace(",", "")) for each in range_of.groups())
    assert low == pytest.approx(700, rel=0.02)
    assert high == pytest.approx(1000, rel=0.02)
    assert share == pytest.approx(70, abs=2)


def test_lower_is_better_turns_everything_around() -> None:
    """Seconds that grow are a regression: the search goes on, and is refused the other way."""
    policy = Policy(better=Better.LOWER)
    assert isinstance(plan(_facts(policy=policy, observations=_ends(1.0, 1.4))).actions[0], Build)
    assert _finish(plan(_facts(policy=policy, observations=_ends(1.4, 1.0)))).code == "ends_swapped"


def test_hopeless_noise_is_said_before_the_budget_is_burnt() -> None:
    """With 30% of noise and 60 runs allowed, it gives up early and says what it would take."""
    spec = SimulationSpec(steps=(-0.03,), noise=0.3, policy=Policy(max_runs=60))
    result = simulate(spec, 4)
    assert (result.outcome, result.code) == (Outcome.INCONCLUSIVE, "noise_too_large")
    assert result.runs <= 20
    assert result.builds == 0


@pytest.mark.parametrize(
    "policy",
    [Policy(max_runs=20), Policy(max_builds=3), Policy(max_seconds=5 * 3600.0)],
)
def test_each_budget_ends_in_an_honest_best_answer(policy: Policy) -> None:
    """A budget is never overdrawn, and what is known by then is stated."""
    result = simulate(SimulationSpec(steps=(-0.1, -0.1), policy=policy), 8)
    assert result.outcome is Outcome.BUDGET_EXHAUSTED
    assert result.probability < 0.9
    assert result.runs <= (policy.max_runs or 10**6)
    assert result.builds <= (policy.max_builds or 10**6)
    limit = (policy.max_seconds or 1e9) + 3600.0
    assert result.wall_seconds <= limit


def test_the_same_facts_give_the_same_plan_whatever_the_order_of_arrival() -> None:
    """Observations are a set: shuffled, they give the same actions and belief."""
    spec = SimulationSpec(commits=300, steps=(-0.08, -0.05), outliers=0.02, unbuildable=0.1)
    facts = _bench_until(Bench(spec, 3), 40)
    shuffled = list(facts.observations)
    random.Random(1).shuffle(shuffled)
    first, again = plan(facts), plan(replace(facts, observations=tuple(shuffled)))
    assert first.actions == again.actions
    assert first.belief is not None
    assert again.belief is not None
    assert first.belief.steps == again.belief.steps
    assert np.array_equal(first.belief.step_probability, again.belief.step_probability)


def test_pages_see_the_belief_that_the_plan_rests_on() -> None:
    """``believe`` and ``plan`` draw the same conclusions from the same facts."""
    facts = _bench_until(Bench(SimulationSpec(commits=200, steps=(-0.1,)), 5), 12)
    belief, planned = believe(facts), plan(facts).belief
    assert belief is not None
    assert planned is not None
    assert belief.steps == planned.steps
    assert belief.step_probability.shape == (200,)


def test_a_node_is_not_judged_against_a_level_known_worse_than_it() -> None:
    """Before a node gets more runs than a neighbouring level has, that level is measured."""
    middle = _points(1, [970.0 * (1 + 0.01 * (-1) ** k) for k in range(6)], 100.0)
    facts = _facts(
        n=2,
        policy=Policy(min_effect=0.05),
        wheels=frozenset({0, 1, 2}),
        observations=(*_ends(1000.0, 940.0, 2), *middle),
    )
    (run,) = plan(facts).actions
    assert isinstance(run, Run)
    assert run.position in (0, 2)
    assert "its level is known from 6 runs only, the next choice has 6" in run.reason


def test_several_workers_get_different_useful_actions() -> None:
    """Four free slots cut the likely gap in four places at once."""
    facts = _facts(
        n=1000,
        wheels=frozenset({0, 1000}),
        observations=_ends(1000.0, 800.0, 1000),
        free_build_slots=4,
        exclusive=False,
    )
    builds = [a.position for a in plan(facts).actions if isinstance(a, Build)]
    assert builds == [200, 400, 600, 800]


def test_wheels_that_are_there_are_used_before_anything_is_built() -> None:
    """A nightly wheel in the gap costs no build, so it is measured first."""
    facts = _facts(
        n=1000,
        wheels=frozenset({0, 430, 1000}),
        observations=_ends(1000.0, 800.0, 1000),
        free_build_slots=4,
        exclusive=False,
    )
    actions = plan(facts).actions
    assert [(type(a), a.position) for a in actions if not isinstance(a, Finish)] == [(Run, 430)]


def test_after_a_failed_build_the_next_choice_keeps_its_distance() -> None:
    """Failures come in clumps: the direct neighbours of a broken commit are passed over."""
    facts = _facts(
        n=1000, observations=_ends(1000.0, 800.0, 1000), broken=frozenset({500}), builds_done=1
    )
    (build,) = plan(facts).actions
    assert isinstance(build, Build)
    assert 2 < abs(build.position - 500) < 60


def test_irrelevant_commits_are_passed_over() -> None:
    """The gap is split by prior mass, not by count."""
    weights = np.ones(1000)
    weights[:800] = 0.02
    facts = _facts(n=1000, weights=weights, observations=_ends(1000.0, 800.0, 1000))
    (build,) = plan(facts).actions
    assert isinstance(build, Build)
    assert build.position > 850


def test_equal_trees_are_one_wheel() -> None:
    """Positions that share a tree are built once, and the step names the real one."""
    same = dict.fromkeys(range(51, 100), 50)
    facts = _facts(same_as=same, observations=_ends(1000.0, 800.0))
    (build,) = plan(facts).actions
    assert isinstance(build, Build)
    assert build.position <= 50
    points = (*_ends(1000.0, 800.0), *_points(50, [1001.0, 997.0, 1003.0], 200.0))
    belief = believe(_facts(same_as=same, observations=points))
    assert belief is not None
    (step,) = belief.steps
    assert (step.before, step.after) == (99, 100)
    assert step.resolved


def test_reasons_are_sentences_with_numbers() -> None:
    """A decision says which position, what it tells and what it costs."""
    (build,) = plan(_facts(n=1000, observations=_ends(1000.0, 800.0, 1000))).actions
    assert isinstance(build, Build)
    assert "position 500 of 1,000: splits the 100% likely gap" in build.reason
    assert "bits for" in build.reason


def test_points_of_a_foreign_host_at_another_speed_make_no_culprit() -> None:
    """A nightly series from a machine 20% slower still points to its own step, and only to it."""
    rng = np.random.default_rng(7)
    nightly = tuple(
        Observation(
            position,
            (1000.0 if position < 430 else 850.0) * 0.8 * (1 + 0.01 * rng.standard_normal()),
            "elsewhere",
            float(position),
            Purpose.HISTORY,
        )
        for position in range(25, 1000, 50)
    )
    ends = _ends(1000.0, 850.0, 1000)
    belief = believe(_facts(n=1000, observations=(*ends, *nightly)))
    assert belief is not None
    (step,) = belief.steps
    assert (step.before, step.after) == (425, 475)
    assert belief.host_offsets["elsewhere"] == pytest.approx(np.log(0.8), abs=0.03)


@pytest.mark.parametrize("find", [Find.FIRST, Find.FIX, Find.ALL])
def test_find_names_what_it_is_asked_for(find: Find) -> None:
    """Of a large and a small step: the crossing, the fix, or both."""
    sign = -1 if find is not Find.FIX else 1
    steps = (-0.05, -0.3) if sign < 0 else (0.4, 0.06)
    spec = SimulationSpec(commits=200, steps=steps, positions=(60, 140), policy=Policy(find=find))
    result = simulate(spec, 2)
    assert result.outcome is Outcome.CULPRITS
    expected = {
        Find.FIRST: ((139, 140),), Find.FIX: ((59, 60),), Find.ALL: ((59, 60), (139, 140)),
    }[find]  # fmt: skip
    assert result.named == expected


def test_kinds_of_change_follow_the_direction_of_time() -> None:
    """A drop and a partial recovery are a regression and a recovery."""
    spec = SimulationSpec(commits=128, steps=(-0.3, 0.2), positions=(40, 90))
    bench = Bench(spec, 1)
    while True:
        decision = plan(bench.facts())
        if any(isinstance(action, Finish) for action in decision.actions):
            break
        for action in decision.actions:
            assert not isinstance(action, Finish)
            bench.start(action)
        bench.advance()
    assert decision.belief is not None
    kinds = [(s.after, s.kind) for s in decision.belief.steps]
    assert kinds == [(40, ChangeKind.REGRESSION), (90, ChangeKind.RECOVERY)]


def test_the_ends_are_measured_again_while_the_range_is_probed() -> None:
    """Between ends that look alike many probes are measured: an end is, too, now and then."""
    n = 2000
    wheels = frozenset(range(0, n + 1, 10))
    probes = [Observation(10 * k, 100.0, "local", 1000.0 + k) for k in range(1, 31)]
    facts = _facts(
        n,
        wheels=wheels,
        policy=Policy(probe=60),
        observations=(*_ends(100.0, 100.0, n, runs=20), *probes),
        runs_done=70,
    )
    (action,) = plan(facts).actions
    assert isinstance(action, Run)
    assert action.purpose is Purpose.ANCHOR
    assert action.position in (0, n)
    (before,) = plan(replace(facts, observations=facts.observations[:-20])).actions
    assert isinstance(before, Run)
    assert before.purpose is Purpose.SEARCH


@pytest.mark.parametrize("seed", [0, 29])
def test_a_slow_time_at_the_start_hides_no_step(seed: int) -> None:
    """A good end that was measured on a slow host looks like what follows a step; the ends are
    looked at once more before the answer, so that the step is found all the same."""
    spec = SimulationSpec(
        commits=39, steps=(-0.15, -0.23, 0.3, -0.64), positions=(11, 15, 22, 31), noise=0.03,
        build_seconds=2.2, run_seconds=1.2,
        throttle_every=1e6, throttle_seconds=20.0, throttle_change=-0.15,
    )  # fmt: skip
    assert simulate(spec, seed).exact


def test_the_ends_are_looked_at_before_an_answer() -> None:
    """The last runs before an answer are runs of both ends, unless they had one late anyway."""
    bench = Bench(SimulationSpec(commits=200, steps=(-0.1,), prebuilt_every=1), 3)
    while not isinstance((actions := plan(bench.facts()).actions)[0], Finish):
        for action in actions:
            assert not isinstance(action, Finish)
            bench.start(action)
        bench.advance()
    late = bench.observations[len(bench.observations) // 2 :]
    assert len(bench.observations) >= 16
    assert {0, 200} <= {observation.position for observation in late}


def test_a_search_that_moves_measures_both_ends_on_its_new_host_first() -> None:
    """Its host is gone: whatever was located there, the new one begins with both ends."""
    before = _ends(9000.0, 6000.0) + tuple(_points(50, (9010.0, 8990.0)))
    facts = _facts(
        wheels=frozenset({0, 50, 51, 100}),
        observations=before + tuple(_points(51, (6010.0, 5990.0))),
        hosts=("new",),
        free_hosts=("new",),
        exclusive=False,
    )
    seen = []
    for number in range(2):
        (run,) = plan(facts).actions
        assert isinstance(run, Run)
        assert (run.host, run.purpose) == ("new", Purpose.ANCHOR)
        seen.append(run.position)
        value = 9000.0 if run.position == 0 else 6000.0
        point = Observation(run.position, value, "new", 5000.0 + number, Purpose.ANCHOR)
        facts = replace(facts, observations=(*facts.observations, point))
    assert sorted(seen) == [0, 100]
    assert not any(
        isinstance(action, Run) and action.purpose is Purpose.ANCHOR
        for action in plan(facts).actions
    )


def test_a_step_whose_side_is_gone_for_good_ends_unverified() -> None:
    """A wheel that was measured, lost and builds no more ends the search, not in endless runs."""
    points = [*_ends(1000, 600, 6, runs=8)]
    for position, value in ((3, 1000.0), (4, 600.0)):
        points += _points(position, [value * w for w in (0.99, 1.0, 1.01, 1.0)], 200.0)
    facts = _facts(
        6, observations=tuple(points), wheels=frozenset({0, 4, 6}), broken=frozenset({1, 2, 3}),
        runs_done=len(points),
    )  # fmt: skip
    ended = _finish(plan(facts))
    assert ended.outcome is Outcome.INCONCLUSIVE
    assert "builds no more" in ended.reason
