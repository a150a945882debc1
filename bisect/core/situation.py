"""What the planner looks at when it decides: facts, belief, capacity and what is left to spend."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from perfbisect.core.anchors import EndsTest, compare_ends
from perfbisect.core.answer import Answer, answer_of
from perfbisect.core.axis import Axis, axis_of
from perfbisect.core.facts import Facts
from perfbisect.core.inference import Inference, infer

#: Runs allowed where the request sets no limit: no search may go on for ever.
DEFAULT_RUNS = 3000


@dataclass(frozen=True, slots=True)
class Situation:
    """One moment of a bisection. ``inference`` and what follows are None before both ends ran."""

    facts: Facts
    axis: Axis
    inference: Inference | None
    answer: Answer | None
    ends: EndsTest | None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self.facts.building and not self.facts.running

    @property
    def runs_left(self) -> float:
        """Runs that the budget still allows."""
        limit = self.facts.policy.max_runs
        if limit is None:
            limit = DEFAULT_RUNS
        return limit - self.facts.runs_done - len(self.facts.running)

    @property
    def builds_left(self) -> float:
        """Builds that the budget still allows."""
        limit = self.facts.policy.max_builds
        if limit is None:
            return float("inf")
        return limit - self.facts.builds_done - len(self.facts.building)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the wall time is used up."""
        limit = self.facts.policy.max_seconds
        return limit is not None and self.facts.elapsed >= limit

    @property
    def free_hosts(self) -> tuple[str, ...]:
        """Hosts that may start a run now."""
        if self.facts.exclusive and self.facts.building:
            return ()
        count = min(len(self.facts.free_hosts), max(0.0, self.runs_left))
        return self.facts.free_hosts[: int(count)]

    @property
    def free_slots(self) -> int:
        """Builds that may start now."""
        if self.facts.exclusive and self.facts.running:
            return 0
        return int(min(self.facts.free_build_slots, max(0.0, self.builds_left)))

    def running_on(self) -> Counter[int]:
        """Return representative position -> runs in flight."""
        reps = self.axis.representative_of
        return Counter(int(reps[run.position]) for run in self.facts.running)


def situation_of(facts: Facts) -> Situation:
    """Draw the inferences from the facts."""
    axis = axis_of(facts)
    inference = infer(facts, axis)
    if inference is None:
        return Situation(facts, axis, None, None, None)
    return Situation(facts, axis, inference, answer_of(facts, inference), compare_ends(inference))
