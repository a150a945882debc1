"""The steps that are asked for, as far as the points tell, and the doubt that is left."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfbisect.core.facts import Belief, EndStat, Facts, FloatArray, Step
from perfbisect.core.inference import Inference
from perfbisect.core.states import Better, ChangeKind, Find
from perfbisect.core.threshold import to_unit
from perfbisect.core.verification import Proof, Verification, verify


@dataclass(frozen=True, slots=True)
class Found:
    """One step of the answer, in the search's terms."""

    #: Gap between measured nodes ``gap`` and ``gap + 1``.
    gap: int
    probability: float
    resolved: bool
    verification: Verification


@dataclass(frozen=True, slots=True)
class Answer:
    """All steps found, and the doubt about them."""

    found: tuple[Found, ...]
    #: Summed doubt about the places of the steps found.
    misplaced: float
    #: Expected number of further steps.
    missed: float

    @property
    def doubt(self) -> float:
        """Bound on the probability that the answer is not exactly right."""
        return self.misplaced + self.missed

    @property
    def is_proven(self) -> bool:
        """Whether each step is resolved and verified, and there is at least one."""
        return bool(self.found) and all(
            f.resolved and f.verification.proof is Proof.VERIFIED for f in self.found
        )


def answer_of(facts: Facts, inference: Inference) -> Answer:
    """Read the answer off the posterior: all likely steps, or the likeliest first crossing."""
    wanted = inference.wanted
    if facts.policy.find is Find.ALL:
        gaps = np.flatnonzero(wanted > 0.5)
    else:
        best = int(np.argmax(wanted))
        gaps = np.array([best] if wanted[best] > 0.5 else [], dtype=np.int64)
    found = tuple(
        Found(
            gap,
            float(wanted[gap]),
            inference.axis.is_resolved(int(inference.nodes[gap]), int(inference.nodes[gap + 1])),
            verify(inference, gap),
        )
        for gap in (int(g) for g in gaps)
    )
    misplaced = float(sum(1.0 - f.probability for f in found))
    missed = float(wanted.sum() - sum(f.probability for f in found))
    if facts.policy.find is not Find.ALL:
        # One crossing is asked for: what is not at its place is elsewhere, not a further step.
        misplaced, missed = (misplaced, 0.0) if found else (1.0, 0.0)
    return Answer(found, misplaced, max(missed, 0.0))


def belief_of(facts: Facts, inference: Inference, answer: Answer) -> Belief:
    """Translate to the benchmark's unit and to positions."""
    better = facts.policy.better
    marginals = inference.marginals
    levels: dict[int, tuple[float, float, float]] = {}
    for slot, node in enumerate(inference.nodes.tolist()):
        mean, sd = float(marginals.level[slot]), float(marginals.level_sd[slot])
        low, high = sorted(to_unit(mean + k * sd, better) for k in (-1.96, 1.96))
        levels[int(inference.axis.earliest[node])] = (to_unit(mean, better), low, high)
    ends = [_end(inference, slot, better) for slot in (0, len(inference.nodes) - 1)]
    first, last = reversed(ends) if inference.axis.reversed else ends
    steps = sorted((_step(inference, f, better) for f in answer.found), key=lambda s: s.after)
    pool = {host: k for k, host in enumerate(inference.samples.hosts)}
    return Belief(
        step_probability=step_strip(facts, inference),
        steps=tuple(steps),
        missed=answer.missed,
        confidence=max(0.0, 1.0 - answer.doubt),
        noise=inference.sigma,
        levels=levels,
        threshold=to_unit(inference.threshold, better),
        first=first,
        last=last,
        host_offsets={
            host: float(inference.correction.offsets[k]) * _sign(better) for host, k in pool.items()
        },
        drift=inference.correction.drift,
        effect=math.expm1(inference.effect),
    )


def step_strip(facts: Facts, inference: Inference) -> FloatArray:
    """Return (n,): the probability of a wanted step at each position, gaps spread by the prior."""
    axis, nodes = inference.axis, inference.nodes
    strip = np.zeros(facts.n)
    # Each commit's part of its gap: the nodes of the ends, which are measured, bound the gaps.
    mass = np.diff(axis.mass)
    whole = np.maximum(np.diff(axis.mass[nodes]), 1e-300)
    share = mass * np.repeat(inference.wanted / whole, np.diff(nodes))
    arrivals = axis.latest[1:] + 1 if axis.reversed else axis.earliest[1:]
    strip[arrivals - 1] = share
    return strip


def _sign(better: Better) -> float:
    return 1.0 if better is Better.HIGHER else -1.0


def _end(inference: Inference, slot: int, better: Better) -> EndStat:
    mean = float(inference.marginals.level[slot])
    sd = float(inference.marginals.level_sd[slot])
    low, high = sorted(to_unit(mean + k * sd, better) for k in (-1.96, 1.96))
    return EndStat(to_unit(mean, better), (low, high), int(inference.counts[slot]))


def _step(inference: Inference, found: Found, better: Better) -> Step:
    low, high = int(inference.nodes[found.gap]), int(inference.nodes[found.gap + 1])
    before, after = inference.axis.span(low, high)
    level_low, level_high, change, sd = (float(v) for v in inference.marginals.sizes[found.gap])
    if inference.axis.reversed:
        level_low, level_high, change = level_high, level_low, -change
    bounds = sorted(math.expm1(_sign(better) * change + k * 1.96 * sd) for k in (-1.0, 1.0))
    return Step(
        before=before,
        after=after,
        probability=found.probability,
        level_before=to_unit(level_low, better),
        level_after=to_unit(level_high, better),
        change=math.expm1(_sign(better) * change),
        ci95=(bounds[0], bounds[1]),
        kind=ChangeKind.REGRESSION if change < 0 else ChangeKind.RECOVERY,
        resolved=found.resolved,
        verified=found.verification.proof is Proof.VERIFIED,
        verify_runs=sum(found.verification.runs),
    )
