"""The verdict: what a finished bisection answers, in positions; names are added outside of core."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfbisect.core.facts import Belief, EndStat, Facts, Finish, Step
from perfbisect.core.states import Better, ChangeKind, Find, Outcome

#: Share of the step probability that the credible set holds.
CREDIBLE = 0.95


@dataclass(frozen=True, slots=True)
class Culprit:
    """One step of the answer. Several positions: those between can't be built."""

    #: Every position whose commit may have made the step, ascending: (before, after].
    positions: tuple[int, ...]
    kind: ChangeKind
    #: Mean on both sides, in the benchmark's unit.
    before: float
    after: float
    #: Relative change and its 95% credible interval.
    change: float
    ci95: tuple[float, float]
    #: Probability that the step is among ``positions``.
    probability: float
    verified: bool
    #: Fresh runs that went into its verification.
    verify_runs: int


@dataclass(frozen=True, slots=True)
class Explained:
    """Relative change from the earlier to the later end: in all, and by the verified steps."""

    total: float
    steps: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. ``good`` and ``bad`` are None while the ends have not been measured."""

    outcome: Outcome
    code: str
    #: A sentence for people.
    reason: str
    good: EndStat | None
    bad: EndStat | None
    #: Verified steps only, in order of time.
    culprits: tuple[Culprit, ...]
    #: Steps that are likely but not verified.
    suspects: tuple[Culprit, ...]
    explained: Explained | None
    #: Expected number of further steps of at least the minimum effect: the stated doubt.
    missed: float
    #: Probability that the steps named are exactly the right ones.
    confidence: float
    #: Noise of one run, relative.
    noise: float
    #: Fewest positions that hold 95% of the step probability, ascending.
    credible: tuple[int, ...]


def verdict(facts: Facts, belief: Belief | None, finish: Finish) -> Verdict:
    """Turn the last belief and the way it ended into the answer."""
    if belief is None:
        return Verdict(
            finish.outcome, finish.code, finish.reason, None, None, (), (), None, 0.0, 0.0, 0.0, ()
        )
    backwards = facts.policy.find is Find.FIX
    good, bad = (belief.last, belief.first) if backwards else (belief.first, belief.last)
    named = [_culprit(step, facts.policy.better) for step in belief.steps]
    return Verdict(
        outcome=finish.outcome,
        code=finish.code,
        reason=finish.reason,
        good=good,
        bad=bad,
        culprits=tuple(c for c in named if c.verified),
        suspects=tuple(c for c in named if not c.verified),
        explained=_explained(belief),
        missed=belief.missed,
        confidence=belief.confidence,
        noise=belief.noise,
        credible=credible_positions(belief),
    )


def credible_positions(belief: Belief, share: float = CREDIBLE) -> tuple[int, ...]:
    """Return the fewest positions that hold ``share`` of the step probability, ascending."""
    strip = belief.step_probability
    total = float(strip.sum())
    if total <= 0.0:
        return ()
    order = np.argsort(-strip, kind="stable")
    needed = int(np.searchsorted(np.cumsum(strip[order]), share * total)) + 1
    return tuple(int(index) + 1 for index in np.sort(order[:needed]))


def _culprit(step: Step, better: Better) -> Culprit:
    worse = (step.change < 0) == (better is Better.HIGHER)
    return Culprit(
        positions=tuple(range(step.before + 1, step.after + 1)),
        kind=ChangeKind.REGRESSION if worse else ChangeKind.RECOVERY,
        before=step.level_before,
        after=step.level_after,
        change=step.change,
        ci95=step.ci95,
        probability=step.probability,
        verified=step.verified,
        verify_runs=step.verify_runs,
    )


def _explained(belief: Belief) -> Explained | None:
    if belief.first is None or belief.last is None:
        return None
    product = math.prod(1.0 + step.change for step in belief.steps if step.verified)
    return Explained(belief.last.mean / belief.first.mean - 1.0, product - 1.0)
