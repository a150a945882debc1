"""How a bisection ends: the outcome, its code, and a sentence with numbers."""

from __future__ import annotations

import math

from perfbisect.core.anchors import EndsTest
from perfbisect.core.answer import Answer
from perfbisect.core.facts import Belief, Facts, Finish
from perfbisect.core.states import Find, Outcome
from perfbisect.core.verification import Proof

#: Runs that a single step needs at a change of one noise scale, levels and noise unknown; the
#: need grows with the square of noise over change.
RUNS_AT_ONE_SIGMA = 190.0


def percent(value: float, digits: int = 1) -> str:
    """Return a relative change for people."""
    return f"{100.0 * value:+.{digits}f}%"


def number(value: float) -> str:
    """Return a value with four significant digits."""
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return seconds in the unit that suits them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def end_unbuildable(facts: Facts, first: bool, last: bool) -> Finish:
    """One or both ends can't be built or run."""
    which = "neither end" if first and last else "the earlier end" if first else "the later end"
    verb = "can" if first and last else "cannot"
    return Finish(
        Outcome.FAILED,
        f"{which} {verb} be built and run, so there is nothing to compare with",
        "end_unbuildable",
    )


def same_wheel() -> Finish:
    """The whole axis is one wheel."""
    return Finish(
        Outcome.NOT_REPRODUCED, "both ends are the same wheel: nothing can differ", "same_wheel"
    )


def not_reproduced(facts: Facts, belief: Belief, ends: EndsTest) -> Finish:
    """The ends do not differ by anything worth naming."""
    low, high = (math.expm1(ends.change + k * 1.96 * ends.error) for k in (-1.0, 1.0))
    runs = sum(end.runs for end in (belief.first, belief.last) if end)
    return Finish(
        Outcome.NOT_REPRODUCED,
        f"the ends differ by {percent(math.expm1(ends.change))} (95% interval {percent(low)} to "
        f"{percent(high)}) after {runs} runs: a change of {100 * facts.policy.min_effect:.0f}% "
        "is excluded",
    )


def ends_swapped(facts: Facts, belief: Belief) -> Finish:
    """The end called good is the slower one."""
    assert belief.first is not None
    assert belief.last is not None
    ends = (
        f"{number(belief.first.mean)} at the earlier end, {number(belief.last.mean)} at the later"
    )
    if facts.policy.find is Find.FIX:
        text = f"the later end is worse than the earlier one ({ends}), so there is no fix to find; "
        text += "swap good and bad, or use find=first"
    else:
        text = f"the good end is worse than the bad one ({ends}); swap them, or use find=fix"
    return Finish(Outcome.FAILED, text, "ends_swapped")


def threshold_outside(facts: Facts, belief: Belief) -> Finish:
    """No level between the ends can cross the threshold."""
    assert belief.first is not None
    assert belief.last is not None
    assert belief.threshold is not None
    low, high = sorted((belief.first.mean, belief.last.mean))
    good = belief.last.mean if facts.policy.find is Find.FIX else belief.first.mean
    return Finish(
        Outcome.FAILED,
        f"the threshold {number(belief.threshold)} is not between the ends: "
        f"{number(belief.first.mean)} at the earlier, {number(belief.last.mean)} at the later; "
        f"set threshold (--threshold) between {number(low)} and {number(high)}, which is "
        f"{low / good:.0%} to {high / good:.0%} of the good end, or leave it out: the midpoint",
        "threshold_outside_ends",
    )


def noise_too_large(facts: Facts, noise: float, change: float, needed: float) -> Finish:
    """No affordable number of runs can answer."""
    seconds = needed * facts.costs.run_seconds
    return Finish(
        Outcome.INCONCLUSIVE,
        f"one run varies by {100 * noise:.1f}% and the change is about {100 * change:.1f}%: "
        f"an answer would take about {needed:,.0f} runs ({duration(seconds)}); reduce the noise, "
        "raise min_effect, or allow more runs",
        "noise_too_large",
    )


def runs_needed(noise: float, change: float) -> float:
    """Estimate the runs that finding one step takes, from noise and size (log scale)."""
    return 20.0 + RUNS_AT_ONE_SIGMA * (noise / max(abs(change), 1e-9)) ** 2


def culprits(answer: Answer, belief: Belief) -> Finish:
    """Every step is found and verified."""
    count = len(answer.found)
    noun = "step" if count == 1 else "steps"
    return Finish(
        Outcome.CULPRITS,
        f"{count} {noun} found and verified; probability that this is all and right: "
        f"{100 * belief.confidence:.1f}%",
    )


def not_verified(answer: Answer) -> Finish:
    """Some steps look likely but fresh pairs of their neighbours never showed them."""
    proven = sum(f.verification.proof is Proof.VERIFIED for f in answer.found)
    return Finish(
        Outcome.INCONCLUSIVE,
        f"{len(answer.found)} steps located, of which {len(answer.found) - proven} could not be "
        "verified: fresh, interleaved runs of their neighbours do not differ as the search claims",
        "not_verified",
    )


def side_is_gone(answer: Answer) -> Finish:
    """A step is located, but a revision beside it can't be built again to verify it."""
    proven = sum(f.verification.proof is Proof.VERIFIED for f in answer.found)
    return Finish(
        Outcome.INCONCLUSIVE,
        f"{len(answer.found)} steps located, of which {len(answer.found) - proven} could not be "
        "verified: a revision beside them was measured, but its wheel is gone and builds no more",
        "not_verified",
    )


def no_progress(facts: Facts, answer: Answer | None) -> Finish:
    """The search has gone on far too long without an answer."""
    located = len(answer.found) if answer is not None else 0
    return Finish(
        Outcome.INCONCLUSIVE,
        f"{facts.runs_done:,} runs did not settle it: {located} steps located; "
        "the hosts may be too unsteady for changes of this size",
        "no_progress",
    )


def inconclusive(answer: Answer | None, text: str, code: str) -> Finish:
    """Nothing useful is left to do."""
    return Finish(Outcome.INCONCLUSIVE, text, code)


def budget_exhausted(what: str, belief: Belief | None, answer: Answer | None) -> Finish:
    """A budget ended the search: say how far it came."""
    state = "the ends have not been compared"
    if belief is not None and answer is not None:
        proven = sum(f.verification.proof is Proof.VERIFIED for f in answer.found)
        inside = credible_count(belief)
        state = (
            f"{len(answer.found)} steps located, {proven} verified; "
            f"95% of the probability lies on {inside:,} positions"
        )
    return Finish(Outcome.BUDGET_EXHAUSTED, f"{what} used up: {state}", "budget")


def credible_count(belief: Belief, level: float = 0.95) -> int:
    """Return how many positions hold ``level`` of the step probability."""
    ranked = sorted(belief.step_probability.tolist(), reverse=True)
    total = sum(ranked)
    if total <= 0:
        return len(ranked)
    seen = 0.0
    for count, value in enumerate(ranked, start=1):
        seen += value
        if seen >= level * total:
            return count
    return len(ranked)
