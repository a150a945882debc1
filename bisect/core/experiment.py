"""Experiments: revisions with changes, measured against a reference in balanced order.

``plan`` is as pure as the search's planner and is driven in the same way: facts in, actions out.
Arms are numbered 0, 1, …; actions name an arm by ``position``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfbisect.core.comparison import (
    Comparison,
    Difference,
    Measured,
    compare,
)
from perfbisect.core.facts import Action, Build, Finish, Run
from perfbisect.core.states import Better, Outcome, Purpose

#: Default of ``ExperimentFacts.min_runs``.
MIN_RUNS = 4
#: Half of a claim's interval may be this share of the claim at most.
CLAIM_SHARE = 0.5
#: Runs of one arm after which an undecided comparison is given up, where no budget is set.
MOST_RUNS = 40


@dataclass(frozen=True, slots=True)
class Arm:
    """One revision × environment of an experiment."""

    name: str
    #: Index of the arm it is compared with; None: it is a reference only.
    against: int | None
    wheel: bool = False
    building: bool = False
    #: Can't be built, run or applied; the reason is told elsewhere.
    broken: bool = False
    #: Accepted values of this experiment's own runs, in any order.
    values: tuple[Measured, ...] = ()
    #: Runs under way.
    running: int = 0
    #: Relative change that a claim foretells; the runs go on until the interval can tell it from
    #: none. None: no claim.
    expected: float | None = None
    #: Runs that are wanted of an arm that is compared with nothing.
    wanted: int = 0
    #: Only whether it builds is asked, so far: it is not measured.
    only_built: bool = False
    #: Relative change of which only is asked whether it is reached; None: all of it is asked.
    reaches: float | None = None


@dataclass(frozen=True, slots=True)
class ExperimentFacts:
    """Everything that is known of an experiment. The same facts give the same plan."""

    arms: tuple[Arm, ...]
    better: Better = Better.HIGHER
    min_effect: float = 0.03
    #: Fresh runs of both sides before anything is concluded.
    min_runs: int = MIN_RUNS
    max_runs: int | None = None
    #: Wall seconds.
    max_seconds: float | None = None
    free_build_slots: int = 1
    #: The host that measures all of it, if it could start a run now.
    free_host: str | None = "local"
    exclusive: bool = True
    runs_done: int = 0
    elapsed: float = 0.0
    #: Arms may still be added: the experiment does not end when those that are there are decided.
    growing: bool = False


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """What to start now, and what the points say of each arm (None: not compared, or not yet)."""

    actions: tuple[Action, ...]
    comparisons: tuple[Comparison | None, ...]


def comparisons_of(facts: ExperimentFacts) -> tuple[Comparison | None, ...]:
    """Compare each arm with its reference."""
    return tuple(_compare(facts, index) for index in range(len(facts.arms)))


def _compare(facts: ExperimentFacts, index: int) -> Comparison | None:
    arm = facts.arms[index]
    if arm.against is None:
        return None
    return _compared(facts.arms[arm.against].values, arm.values, facts.better, facts.min_effect)


@functools.lru_cache(maxsize=1024)
def _compared(
    reference: tuple[Measured, ...], arm: tuple[Measured, ...], better: Better, min_effect: float
) -> Comparison | None:
    """Compare two arms; remembered, since a plan asks about every arm after every run."""
    return compare(reference, arm, better=better, min_effect=min_effect)


def is_decided(facts: ExperimentFacts, index: int, comparison: Comparison | None) -> bool:
    """Return whether nothing more can or need be learnt about an arm."""
    arm = facts.arms[index]
    if arm.broken:
        return True
    if arm.only_built:
        return arm.wheel
    if arm.against is None:
        return len(arm.values) >= arm.wanted
    if facts.arms[arm.against].broken:
        return True
    runs = min(len(arm.values), len(facts.arms[arm.against].values))
    if comparison is None or runs < facts.min_runs:
        return False
    if runs >= MOST_RUNS:
        return True
    low, high = comparison.ci95
    if arm.reaches is not None and not low <= arm.reaches <= high:
        return True
    return comparison.difference is not Difference.UNKNOWN and _tells_claim(arm, comparison)


def _tells_claim(arm: Arm, comparison: Comparison) -> bool:
    """Return whether the interval is narrow enough to tell the claimed change from none."""
    if arm.expected is None or arm.expected <= -1.0:
        return True
    low, high = comparison.ci95
    half = 0.5 * (math.log1p(max(high, -0.999)) - math.log1p(max(low, -0.999)))
    return half <= CLAIM_SHARE * abs(math.log1p(arm.expected))


def plan(facts: ExperimentFacts) -> ExperimentPlan:
    """Return what to start now; with nothing in flight there is always an action."""
    comparisons = comparisons_of(facts)
    open_arms = [
        index
        for index, comparison in enumerate(comparisons)
        if not is_decided(facts, index, comparison)
    ]
    idle = not any(arm.building or arm.running for arm in facts.arms)
    actions: tuple[Action, ...]
    if not open_arms:
        done = () if facts.growing or not idle else (_answered(facts, comparisons),)
        return ExperimentPlan(done, comparisons)
    if _is_spent(facts):
        actions = (_exhausted(facts, open_arms),) if idle else ()
    else:
        actions = tuple(_starts(facts, open_arms))
    return ExperimentPlan(actions, comparisons)


def _is_spent(facts: ExperimentFacts) -> bool:
    running = sum(arm.running for arm in facts.arms)
    out_of_runs = facts.max_runs is not None and facts.runs_done + running >= facts.max_runs
    out_of_time = facts.max_seconds is not None and facts.elapsed >= facts.max_seconds
    return out_of_runs or out_of_time


def _starts(facts: ExperimentFacts, open_arms: Sequence[int]) -> Iterable[Action]:
    """Yield builds of wheels that are missing, then the run that keeps the order balanced."""
    needed = _needed(facts, open_arms)
    missing = [
        index for index in needed if not facts.arms[index].wheel and not facts.arms[index].building
    ]
    building = any(arm.building for arm in facts.arms)
    running = any(arm.running for arm in facts.arms)
    if missing:
        if not (running and facts.exclusive):
            for index in missing[: facts.free_build_slots]:
                yield Build(index, _why_build(facts.arms[index]))
        return
    if facts.free_host is None or (building and facts.exclusive):
        return
    ready = [index for index in needed if facts.arms[index].wheel]
    if len(ready) < len(needed):
        return
    index = _next_run(facts, ready)
    arm = facts.arms[index]
    count = len(arm.values) + arm.running + 1
    role = "reference" if arm.against is None else "arm"
    yield Run(
        index,
        facts.free_host,
        Purpose.EXPERIMENT,
        reason=f"{role} '{arm.name}': run {count}, in balanced order",
    )


def _why_build(arm: Arm) -> str:
    return f"does '{arm.name}' build?" if arm.only_built else f"'{arm.name}' is to be measured"


def _needed(facts: ExperimentFacts, open_arms: Iterable[int]) -> list[int]:
    """Return the undecided arms and their references, ascending."""
    needed = set()
    for index in open_arms:
        needed.add(index)
        against = facts.arms[index].against
        if against is not None and not facts.arms[index].only_built:
            needed.add(against)
    return sorted(needed)


def _next_run(facts: ExperimentFacts, ready: Sequence[int]) -> int:
    """Return the arm with the fewest runs; each round goes the other way (A B C, C B A, …)."""
    counts = {index: len(facts.arms[index].values) + facts.arms[index].running for index in ready}
    fewest = min(counts.values())
    behind = [index for index in ready if counts[index] == fewest]
    return behind[0] if fewest % 2 == 0 else behind[-1]


def _answered(facts: ExperimentFacts, comparisons: Sequence[Comparison | None]) -> Finish:
    told = []
    for arm, comparison in zip(facts.arms, comparisons, strict=True):
        if arm.against is None or arm.only_built:
            continue
        if comparison is None:
            told.append(f"'{arm.name}' could not be measured")
        elif comparison.difference is Difference.UNKNOWN:
            told.append(f"'{arm.name}' is undecided after {len(arm.values)} runs")
        else:
            told.append(f"'{arm.name}' is {comparison.difference} ({comparison.change:+.1%})")
    undecided = any(
        comparison is not None and comparison.difference is Difference.UNKNOWN
        for comparison in comparisons
    )
    outcome = Outcome.INCONCLUSIVE if undecided else Outcome.ANSWERED
    return Finish(outcome, "; ".join(told) or "there was nothing to compare")


def _exhausted(facts: ExperimentFacts, open_arms: Sequence[int]) -> Finish:
    names = ", ".join(f"'{facts.arms[index].name}'" for index in open_arms)
    return Finish(
        Outcome.BUDGET_EXHAUSTED,
        f"the budget is used up after {facts.runs_done} runs; still undecided: {names}",
    )
