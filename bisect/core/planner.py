"""The planner: facts in, actions to start now out.

``plan`` is called whenever something changed. It is a pure function: the same facts give the same
plan, and a restart is a replay. The order of its rules is the order of a bisection: time, ends,
threshold, search, verification.
"""

from __future__ import annotations

import math

import numpy as np

from perfbisect.core import endings
from perfbisect.core.anchors import Ends, EndsTest
from perfbisect.core.answer import Answer, belief_of
from perfbisect.core.axis import IntArray
from perfbisect.core.candidates import Candidate, candidates
from perfbisect.core.choice import (
    anchor_run,
    arrival_runs,
    calibration_runs,
    search_builds,
    search_runs,
)
from perfbisect.core.closing import closing_runs, ends_to_look_at, is_looking
from perfbisect.core.facts import Action, Belief, Build, Facts, Finish, Plan, Run
from perfbisect.core.inference import Inference
from perfbisect.core.proving import verification_builds, verification_runs
from perfbisect.core.situation import Situation, situation_of
from perfbisect.core.states import Find, Outcome, Purpose
from perfbisect.core.verification import Proof

#: The search ends when the places of the steps and the steps missed are in doubt by no more.
MISSED_LIMIT = 0.01
#: … or, up to this much doubt about missed steps, when removing it would be too dear.
TOLERABLE_MISSED = 0.03
#: Removing the doubt is too dear when it would cost this share of everything so far.
DEAR = 0.4
DEAR_WITHOUT_BUILD = 1.5
#: Anchors are measured on at most this many hosts at once.
ANCHOR_HOSTS = 8
#: Anchor runs before the noise is judged hopeless.
JUDGE_NOISE_AFTER = 12
#: Noise is hopeless when the estimate exceeds what is left by this factor.
HOPELESS = 3.0


def plan(facts: Facts) -> Plan:
    """Return the actions to start now, and the belief behind them.

    No action means: wait for what is in flight. With nothing in flight there is always an action,
    ``Finish`` if nothing else.
    """
    situation = situation_of(facts)
    belief = _belief(situation)
    actions = _decide(situation, belief)
    if not actions and situation.is_idle:
        actions = (_nothing_left(situation, belief),)
    return Plan(actions, belief)


def believe(facts: Facts) -> Belief | None:
    """Return what the points say, or None while an end has not been measured."""
    return _belief(situation_of(facts))


def _belief(situation: Situation) -> Belief | None:
    if situation.inference is None or situation.answer is None:
        return None
    return belief_of(situation.facts, situation.inference, situation.answer)


def _decide(situation: Situation, belief: Belief | None) -> tuple[Action, ...]:
    facts, axis = situation.facts, situation.axis
    if situation.is_out_of_time:
        return (endings.budget_exhausted("the time is", belief, situation.answer),)
    if axis.broken[0] or axis.broken[-1]:
        first, last = bool(axis.broken[0]), bool(axis.broken[-1])
        if axis.reversed:
            first, last = last, first
        return (endings.end_unbuildable(facts, first, last),)
    if axis.last == 0:
        return (endings.same_wheel(),)
    if not (axis.wheel[0] and axis.wheel[-1]):
        return _build_ends(situation)
    if situation.inference is None or situation.ends is None or situation.answer is None:
        return _anchor_runs(situation)
    assert belief is not None
    return _with_ends(situation, belief, situation.inference, situation.answer, situation.ends)


def _build_ends(situation: Situation) -> tuple[Action, ...]:
    axis = situation.axis
    missing = [
        Build(int(axis.representative[node]), f"the {name} end is needed to compare anything with")
        for node, name in ((0, "good"), (axis.last, "bad"))
        if not axis.wheel[node] and not axis.building[node]
    ]
    return tuple(missing[: situation.free_slots])


def _with_ends(
    situation: Situation,
    belief: Belief,
    inference: Inference,
    answer: Answer,
    ends: EndsTest,
) -> tuple[Action, ...]:
    """Decide once both ends have been measured."""
    if arrivals := arrival_runs(situation, inference):
        return tuple(arrivals)
    inside = len(inference.nodes) > 2 and bool(answer.found)
    if ends.verdict is Ends.SWAPPED:
        return (endings.ends_swapped(situation.facts, belief),)
    if ends.verdict is Ends.ALIKE and not inside:
        probes = _probe_nodes(situation, inference)
        if not len(probes):
            return (endings.not_reproduced(situation.facts, belief, ends),)
        return _probe(situation, inference, probes)
    if ends.verdict is Ends.UNKNOWN and not (inside and answer.doubt < 0.1):
        hopeless = _hopeless(situation, inference, ends)
        return (hopeless,) if hopeless else _anchor_runs(situation)
    if ends.verdict is Ends.WORSE and _threshold_is_outside(situation.facts, inference):
        return (endings.threshold_outside(situation.facts, belief),)
    hopeless = _hopeless(situation, inference, ends)
    if hopeless and not inside:
        return (hopeless,)
    return _search(situation, belief, inference, answer)


def _threshold_is_outside(facts: Facts, inference: Inference) -> bool:
    if facts.policy.threshold is None and facts.policy.threshold_share is None:
        return False
    level = inference.marginals.level
    return not level[-1] < inference.threshold < level[0]


def _hopeless(situation: Situation, inference: Inference, ends: EndsTest) -> Finish | None:
    """Say so early if no affordable number of runs can answer."""
    if inference.counts[0] + inference.counts[-1] < JUDGE_NOISE_AFTER:
        return None
    change = max(abs(ends.change) + ends.error, inference.effect)
    needed = endings.runs_needed(inference.sigma, change)
    if needed <= HOPELESS * max(situation.runs_left, 1):
        return None
    return endings.noise_too_large(situation.facts, inference.sigma, change, needed)


def _anchor_runs(situation: Situation) -> tuple[Action, ...]:
    """Measure the ends, interleaved, on as many hosts as make sense."""
    facts = situation.facts
    busy = sum(run.purpose is Purpose.ANCHOR for run in facts.running)
    hosts = situation.free_hosts[: max(0, ANCHOR_HOSTS - busy)]
    return tuple(
        anchor_run(situation, host, "establishes whether the ends differ") for host in hosts
    )


def _probe_nodes(situation: Situation, inference: Inference) -> IntArray:
    """Return nodes of the requested even spacing, wheels preferred, that are not measured yet."""
    facts, axis = situation.facts, situation.axis
    if facts.policy.find is not Find.ALL or facts.policy.probe <= 0:
        return np.zeros(0, dtype=np.int64)
    count = facts.policy.probe
    spacing = axis.last / (count + 1)
    usable = np.flatnonzero(~axis.broken)
    wheels = np.flatnonzero(axis.wheel & ~axis.broken)
    chosen: list[int] = []
    for number in range(1, count + 1):
        target = number * spacing
        near = wheels[np.argmin(np.abs(wheels - target))]
        if abs(near - target) > spacing / 2:
            near = usable[np.argmin(np.abs(usable - target))]
        chosen.append(int(near))
    return np.setdiff1d(np.array(chosen, dtype=np.int64), inference.nodes)


def _probe(situation: Situation, inference: Inference, probes: IntArray) -> tuple[Action, ...]:
    axis = situation.axis
    reason = "probes the range between two ends that look alike"
    ready = [int(node) for node in probes if axis.wheel[node]]
    pending = situation.running_on()
    hosts = list(situation.free_hosts)
    # The ends are looked at again meanwhile: a host that slows down would look like a step.
    runs = calibration_runs(situation, inference, hosts) if hosts else []
    waiting = [n for n in ready if not pending[int(axis.representative[n])]]
    runs += [
        Run(int(axis.representative[node]), host, Purpose.SEARCH, None, reason)
        for node, host in zip(waiting, hosts, strict=False)
    ]
    if runs and situation.facts.exclusive:
        return tuple(runs)
    fresh = [int(node) for node in probes if not axis.wheel[node] and not axis.building[node]]
    builds: list[Action] = [
        Build(int(axis.representative[node]), reason) for node in fresh[: situation.free_slots]
    ]
    return (*runs, *builds)


def _is_done(situation: Situation, answer: Answer) -> bool:
    doubt = 1.0 - situation.facts.policy.confidence
    return answer.is_proven and answer.misplaced <= doubt and answer.missed <= MISSED_LIMIT


def _is_not_worth_more(situation: Situation, answer: Answer, ranked: list[Candidate]) -> bool:
    """Return whether the doubt left is too dear to remove, given what was spent so far."""
    facts = situation.facts
    if not answer.is_proven or answer.misplaced > 1.0 - facts.policy.confidence:
        return False
    spent = facts.builds_done * facts.costs.build_seconds
    spent += facts.runs_done * facts.costs.run_seconds
    rate = ranked[0].rate if ranked else 0.0
    dear = DEAR if ranked and ranked[0].needs_build else DEAR_WITHOUT_BUILD
    return answer.missed <= TOLERABLE_MISSED and rate * spent * dear < _entropy(answer.missed)


def _entropy(probability: float) -> float:
    """Return the entropy of a yes or no, bits."""
    inside = (p for p in (probability, 1.0 - probability) if p > 0.0)
    return -sum(p * math.log2(p) for p in inside)


def _is_unprovable(situation: Situation, answer: Answer) -> bool:
    """Return whether only steps that resist verification are left."""
    if not answer.found or answer.missed > MISSED_LIMIT:
        return False
    return any(
        f.resolved
        and f.verification.proof is not Proof.VERIFIED
        and f.verification.pairs >= f.verification.most_pairs
        for f in answer.found
    ) and all(f.resolved for f in answer.found)


def _is_beyond_proof(situation: Situation, inference: Inference, answer: Answer) -> bool:
    """Return whether each unverified step has a side that was measured once and builds no more."""
    axis, nodes = situation.axis, inference.nodes
    open_steps = [f for f in answer.found if f.verification.proof is not Proof.VERIFIED]
    if not open_steps or answer.missed > MISSED_LIMIT or not situation.is_idle:
        return False
    return all(
        f.resolved
        and any(axis.broken[nodes[s]] and not axis.wheel[nodes[s]] for s in (f.gap, f.gap + 1))
        for f in open_steps
    )


def _search(
    situation: Situation, belief: Belief, inference: Inference, answer: Answer
) -> tuple[Action, ...]:
    if _is_done(situation, answer):
        return _close(situation, belief, inference, answer)
    if _is_unprovable(situation, answer):
        return (endings.not_verified(answer),)
    if _is_beyond_proof(situation, inference, answer):
        return (endings.side_is_gone(answer),)
    hosts = list(situation.free_hosts)
    runs: list[Action] = []
    runs += verification_runs(situation, inference, answer, hosts)
    exclusive = situation.facts.exclusive
    if hosts:
        runs += calibration_runs(situation, inference, hosts)
    if exclusive and not hosts and (runs or situation.facts.running):
        return tuple(runs)
    ranked = candidates(situation.facts, inference)
    best = ranked[0].rate if ranked else 0.0
    if _is_not_worth_more(situation, answer, ranked):
        return _close(situation, belief, inference, answer)
    wants_build = bool(ranked) and ranked[0].needs_build and situation.builds_left > 0
    wants_build |= bool(verification_builds(situation, inference, answer, situation.free_slots))
    if hosts and not (exclusive and wants_build and not runs):
        runs += search_runs(situation, inference, ranked, hosts, best)
    if exclusive and (runs or situation.facts.running):
        return tuple(runs)
    builds = verification_builds(situation, inference, answer, situation.free_slots)
    free = situation.free_slots - len(builds)
    builds += search_builds(situation, inference, ranked, free) if free or not builds else []
    if not runs and not builds and situation.is_idle and situation.builds_left > 0:
        return _sharpen(situation, inference)
    return (*runs, *builds)


def _close(
    situation: Situation, belief: Belief, inference: Inference, answer: Answer
) -> tuple[Action, ...]:
    """Give the answer, after a last look at the ends while there are runs left for it."""
    ends = ends_to_look_at(situation, inference) if situation.runs_left > 0 else []
    if not ends and not is_looking(situation):
        return (endings.culprits(answer, belief),)
    return tuple(closing_runs(situation, ends))


def _sharpen(situation: Situation, inference: Inference) -> tuple[Action, ...]:
    """Nothing tells much by itself: measure the sides of the most doubtful gap."""
    wanted = inference.wanted
    doubt = np.minimum(wanted, 1.0 - wanted)
    axis, nodes = situation.axis, inference.nodes
    if not situation.free_hosts:
        return ()
    for gap in np.argsort(-doubt, kind="stable").tolist():
        sides = [s for s in (gap, gap + 1) if axis.wheel[nodes[s]]]
        if sides:
            slot = min(sides, key=lambda s: (int(inference.counts[s]), s))
            reason = f"sharpens a gap that is {100 * wanted[gap]:.0f}% likely to hold a step"
            position = int(axis.representative[nodes[slot]])
            return (Run(position, situation.free_hosts[0], Purpose.SEARCH, None, reason),)
    return ()


def _nothing_left(situation: Situation, belief: Belief | None) -> Finish:
    """Explain why there is nothing to start."""
    answer = situation.answer
    if situation.runs_left <= 0 and situation.facts.policy.max_runs is None:
        return endings.no_progress(situation.facts, answer)
    if situation.runs_left <= 0:
        return endings.budget_exhausted("the runs are", belief, answer)
    if situation.builds_left <= 0:
        return endings.budget_exhausted("the builds are", belief, answer)
    if answer is not None and answer.found:
        proven = sum(f.verification.proof is Proof.VERIFIED for f in answer.found)
        return endings.inconclusive(
            answer,
            f"{len(answer.found)} steps located but only {proven} verified, and nothing that could "
            "be built or run would tell more",
            "nothing_left",
        )
    return Finish(
        Outcome.INCONCLUSIVE,
        "no build slot or host can do anything that would tell more",
        "nothing_left",
    )
