"""Which nodes could be measured next, and what each is worth per second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfbisect.core.axis import Axis, IntArray
from perfbisect.core.facts import Facts, FloatArray
from perfbisect.core.inference import EXPECTED_STEPS, Inference
from perfbisect.core.information import information, predict

#: Numbers of runs that a choice is weighed with.
RUN_COUNTS = np.array([1, 2, 3, 4, 6, 8, 12], dtype=np.int64)
#: What a second of running is taken to cost, in seconds of building. Looking one step ahead
#: overrates runs that sharpen what is known: with this price fewer runs lead to the same builds.
RUN_PRICE = 1.6
#: Chance that a neighbour of a broken commit is broken too, per node of distance.
CLUMP = 0.7
#: Gaps less likely than this to hold a step are not looked into.
NEGLIGIBLE = 1e-4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node worth measuring."""

    node: int
    #: Gap it lies in, or -1 if it has been measured.
    gap: int
    #: A wheel has to be built first.
    needs_build: bool
    #: Expected information of the best number of runs, bits, and that number.
    bits: float
    runs: int
    #: Expected seconds of build and runs.
    seconds: float
    #: Probability that the gap holds a step.
    probability: float
    #: Bits of each of ``RUN_COUNTS`` runs.
    bits_of_runs: tuple[float, ...]
    #: Its wheel is being built: it says what is to come, and can't be started.
    is_coming: bool

    @property
    def rate(self) -> float:
        """Bits per second."""
        return self.bits / max(self.seconds, 1e-9)

    def rate_beside(self, pending: int, run_seconds: float) -> float:
        """Return the rate of further runs when ``pending`` runs are on their way."""
        if not pending:
            return self.rate
        counts = RUN_COUNTS.astype(np.float64)
        bits = np.append(0.0, self.bits_of_runs)
        reached = np.interp(counts + pending, np.append(0.0, counts), bits)
        already = float(np.interp(pending, np.append(0.0, counts), bits))
        return float(np.max((reached - already) / (counts * max(run_seconds, 1e-9))))


def chance_to_build(axis: Axis, failures: int, builds: int) -> FloatArray:
    """Return (N + 1,): how likely each node builds; failures come in clumps."""
    base = float(np.clip((1.0 + failures) / (10.0 + builds), 0.02, 0.6))
    chance = np.full(axis.last + 1, 1.0 - base)
    broken = np.flatnonzero(axis.broken)
    if len(broken):
        nodes = np.arange(axis.last + 1)
        right = np.searchsorted(broken, nodes)
        distance = np.minimum(
            np.abs(nodes - broken[np.clip(right - 1, 0, len(broken) - 1)]),
            np.abs(broken[np.clip(right, 0, len(broken) - 1)] - nodes),
        )
        chance = np.minimum(chance, 1.0 - np.maximum(base, CLUMP**distance))
    chance[axis.wheel] = 1.0
    chance[broken] = 0.0
    return chance


def candidates(facts: Facts, inference: Inference) -> list[Candidate]:
    """Return every sensible candidate, most bits per second first."""
    axis, nodes = inference.axis, inference.nodes
    chance = chance_to_build(axis, len(facts.broken), facts.builds_done)
    chosen: list[tuple[int, int]] = []
    for gap in np.flatnonzero(inference.wanted > NEGLIGIBLE).tolist():
        inside = _inside(axis, chance, int(nodes[gap]), int(nodes[gap + 1]))
        chosen.extend((node, gap) for node in inside)
    for slot, node in enumerate(nodes.tolist()):
        if axis.wheel[node]:
            chosen.append((node, -(slot + 1)))
    if not chosen:
        return []
    node_index = np.array([c[0] for c in chosen], dtype=np.int64)
    gap_index = np.array([c[1] for c in chosen], dtype=np.int64)
    bits = _bits(inference, node_index, gap_index) * chance[node_index][:, None]
    build = np.where(axis.wheel[node_index], 0.0, facts.costs.build_seconds)
    seconds = build[:, None] + RUN_PRICE * RUN_COUNTS * max(facts.costs.run_seconds, 1e-6)
    best = np.argmax(bits / seconds, axis=1)
    out = [
        Candidate(
            node=int(node_index[k]),
            gap=max(int(gap_index[k]), -1),
            needs_build=bool(build[k] > 0 or not axis.wheel[node_index[k]]),
            bits=float(bits[k, best[k]]),
            runs=int(RUN_COUNTS[best[k]]),
            seconds=float(seconds[k, best[k]]),
            probability=float(inference.wanted[gap_index[k]]) if gap_index[k] >= 0 else 0.0,
            bits_of_runs=tuple(bits[k].tolist()),
            is_coming=bool(axis.building[node_index[k]]),
        )
        for k in range(len(chosen))
    ]
    return sorted(out, key=lambda c: (-c.rate, c.node))


def _inside(axis: Axis, chance: FloatArray, low: int, high: int) -> list[int]:
    """Return candidates strictly inside a gap: the best to build, and the best wheels there."""
    if high - low < 2:
        return []
    inner = np.arange(low + 1, high)
    worth = split_bits(axis, low, high, inner) * chance[inner]
    there = axis.wheel[inner] & ~axis.broken[inner]
    fresh = ~there & ~axis.broken[inner] & ~axis.building[inner]
    out: list[int] = inner[axis.building[inner]].tolist()
    if np.any(there):
        out += _spread_out(axis, inner[there])
    if np.any(fresh):
        out.append(int(inner[fresh][np.argmax(worth[fresh])]))
    return out


def _spread_out(axis: Axis, wheels: IntArray) -> list[int]:
    """Return the wheels nearest to the quarters of a gap's prior mass: one host cuts it in the
    middle, several at once.
    """
    low, high = axis.mass[wheels[0] - 1], axis.mass[wheels[-1]]
    quarters = low + (high - low) * np.array([0.25, 0.5, 0.75])
    nearest = np.abs(axis.mass[wheels] - quarters[:, None]).argmin(axis=1)
    return [int(node) for node in wheels[np.unique(nearest)]]


def split_bits(axis: Axis, low: int, high: int, inner: IntArray) -> FloatArray:
    """Return the entropy, in bits, of the side on which a step in a gap lies of each node."""
    total = max(float(axis.mass[high] - axis.mass[low]), 1e-300)
    share = np.clip((axis.mass[inner] - axis.mass[low]) / total, 1e-12, 1 - 1e-12)
    return np.asarray(-share * np.log2(share) - (1 - share) * np.log2(1 - share))


def _bits(inference: Inference, nodes: IntArray, gaps: IntArray) -> FloatArray:
    """Return (C, R): information of each candidate and number of runs."""
    mass = inference.axis.mass
    index = np.maximum(gaps, 0)
    start = mass[inference.nodes[index]]
    end = mass[inference.nodes[np.minimum(index + 1, len(inference.nodes) - 1)]]
    here = mass[nodes]
    before = np.clip(-np.expm1(-EXPECTED_STEPS * (here - start)), 1e-12, 0.5)
    after = np.clip(-np.expm1(-EXPECTED_STEPS * (end - here)), 1e-12, 0.5)
    predictions = predict(inference.labelled, gaps, before, after)
    return information(predictions, inference.sigma, RUN_COUNTS)
