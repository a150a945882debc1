"""Which runs and builds of the search to start now: anchors, and what tells most per second."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from perfbisect.core.axis import Axis, IntArray
from perfbisect.core.candidates import Candidate, chance_to_build, split_bits
from perfbisect.core.endings import duration
from perfbisect.core.facts import Build, FloatArray, Observation, Run
from perfbisect.core.inference import Inference
from perfbisect.core.situation import Situation
from perfbisect.core.states import Purpose

#: A host's runs between two looks at an anchor.
ANCHOR_EVERY = 28
ANCHOR_EVERY_IN_DRIFT = 6
#: A build that others in flight leave less than this (bits) to tell is not started ahead of them.
SPECULATE_FROM = 0.15
#: A run worth less than this share of the best rate is not started on a spare host.
SPARE_SHARE = 0.15
#: Nor is one that tells less than this, bits.
SPARE_BITS = 0.02
#: How much of a run's worth is left when another run about the same gap is in flight.
OVERLAP = 0.5


def name_of(axis: Axis, node: int) -> str:
    """Return how a node is called in a reason."""
    position = int(axis.representative[node])
    return f"position {position:,} of {len(axis.node_at) - 1:,}"


def anchor_run(situation: Situation, host: str, reason: str) -> Run:
    """Return the next anchor run of a host: both ends in balanced order."""
    counts = _end_counts(situation, host)
    turn = (counts[0] + counts[1]) // 2 % 2
    end = 0 if counts[0] < counts[1] or (counts[0] == counts[1] and turn == 0) else 1
    name = ("good", "bad")[end]
    return end_run(situation, end, host, f"{name} end on {host}: {reason}")


def end_run(situation: Situation, end: int, host: str, reason: str) -> Run:
    """Return a run of the good end (0) or the bad end (1)."""
    position = int(situation.axis.representative[-1 if end else 0])
    return Run(position, host, Purpose.ANCHOR, None, reason)


def _end_counts(situation: Situation, host: str) -> tuple[int, int]:
    """Return the runs of the good and the bad end on a host, in flight included."""
    axis, facts = situation.axis, situation.facts
    counts = [0, 0]
    placed: list[Observation | Run] = [*facts.observations, *facts.running]
    wheels = [int(axis.representative_of[item.position]) for item in placed if item.host == host]
    for end, node in enumerate((0, -1)):
        counts[end] = wheels.count(int(axis.representative[node]))
    return counts[0], counts[1]


def arrival_runs(situation: Situation, inference: Inference) -> list[Run]:
    """Return the anchor run of the one host to which a search moved from one that is gone.

    Both ends come first there: nothing that was measured elsewhere can be compared otherwise.
    """
    facts, samples = situation.facts, inference.samples
    if len(facts.hosts) != 1 or facts.hosts != situation.free_hosts:
        return []
    host = facts.hosts[0]
    elsewhere = (samples.history == 0) & (samples.host != samples.hosts.index(host))
    if not elsewhere.any() or min(_end_counts(situation, host)) > 0:
        return []
    return [anchor_run(situation, host, "the search moved here")]


def calibration_runs(situation: Situation, inference: Inference, hosts: list[str]) -> list[Run]:
    """Return anchor runs of hosts that have none yet, or none for a while."""
    facts, axis = situation.facts, situation.axis
    drifts = inference.correction.drift > inference.sigma
    every = ANCHOR_EVERY_IN_DRIFT if drifts else ANCHOR_EVERY
    ends = {int(axis.representative[0]), int(axis.representative[-1])}
    samples = inference.samples
    runs: list[Run] = []
    for host in list(hosts):
        own = (samples.history == 0) & (samples.host == samples.hosts.index(host))
        mine = samples.wheel[own].tolist()
        since = next((k for k, wheel in enumerate(reversed(mine)) if wheel in ends), len(mine))
        if len(facts.hosts) > 1 and min(_end_counts(situation, host)) == 0:
            reason = "its offset is not known yet"
        elif since >= every:
            reason = f"{since} runs since the last look at drift"
        else:
            continue
        runs.append(anchor_run(situation, host, reason))
        hosts.remove(host)
    return runs


@dataclass
class Picks:
    """Runs in flight and chosen so far, to weigh the next one against."""

    pending: Counter[int] = field(default_factory=Counter)

    def rate(self, situation: Situation, inference: Inference, candidate: Candidate) -> float:
        """Return what a candidate is worth per second beside those runs."""
        seconds = situation.facts.costs.run_seconds
        left = candidate.rate_beside(self.pending[candidate.node], seconds)
        slot = _left_slot(inference, candidate.node)
        beside: list[int] = []
        for node, count in self.pending.items():
            other = _left_slot(inference, node)
            if candidate.gap >= 0 and other == slot and inference.nodes[other] != node:
                beside.append(node)
            elif node != candidate.node and abs(other - slot) <= 1:
                left *= OVERLAP**count
        return left * self._share_of_gap(situation.axis, inference, candidate, beside)

    def _share_of_gap(
        self, axis: Axis, inference: Inference, candidate: Candidate, beside: list[int]
    ) -> float:
        """Return what a cut of a gap tells once the cuts beside it are known, as a share."""
        if not beside or candidate.node in beside:
            return 1.0
        low, high = (int(inference.nodes[candidate.gap + k]) for k in (0, 1))
        below = max((n for n in beside if n < candidate.node), default=low)
        above = min((n for n in beside if n > candidate.node), default=high)
        here = np.array([candidate.node])
        cell = float(axis.mass[above] - axis.mass[below])
        whole = max(float(axis.mass[high] - axis.mass[low]), 1e-300)
        alone = max(float(split_bits(axis, low, high, here)[0]), 1e-9)
        return cell / whole * float(split_bits(axis, below, above, here)[0]) / alone


def _left_slot(inference: Inference, node: int) -> int:
    return int(np.searchsorted(inference.nodes, node, side="right")) - 1


def search_runs(
    situation: Situation,
    inference: Inference,
    ranked: list[Candidate],
    hosts: list[str],
    best_rate: float,
) -> list[Run]:
    """Return a different useful run for each host, measured wheels' references included."""
    ready = [c for c in ranked if not c.needs_build]
    picks = Picks(_pending_nodes(situation))
    seconds = situation.facts.costs.run_seconds
    runs: list[Run] = []
    for host in list(hosts):
        scored = [(picks.rate(situation, inference, c), c) for c in ready]
        if not scored:
            break
        rate, chosen = max(scored, key=lambda pair: (pair[0], -pair[1].node))
        # Once nothing may be built, runs go on only as long as they tell something.
        spare = bool(runs) or not situation.is_idle or situation.builds_left <= 0
        least = SPARE_BITS / max(seconds, 1e-9)
        if situation.builds_left > 0:
            least = max(least, SPARE_SHARE * best_rate)
        if rate <= 0.0 or (spare and rate < least):
            break
        node, reason = _with_parity(situation, inference, chosen, picks)
        picks.pending[node] += 1
        purpose = Purpose.ANCHOR if node in (0, situation.axis.last) else Purpose.SEARCH
        runs.append(Run(int(situation.axis.representative[node]), host, purpose, None, reason))
        hosts.remove(host)
    return runs


def _pending_nodes(situation: Situation) -> Counter[int]:
    axis = situation.axis
    pending: Counter[int] = Counter()
    for run in situation.facts.running:
        node = int(axis.node_at[run.position])
        pending[node] += 1
    return pending


def _with_parity(
    situation: Situation, inference: Inference, chosen: Candidate, picks: Picks
) -> tuple[int, str]:
    """Return the chosen node, or a reference that has been measured less often than it.

    A decision about a node compares it with the levels on both sides; a level known worse than
    the node itself would mislead.
    """
    slot = inference.slot_of(chosen.node)
    runs = (int(inference.counts[slot]) if slot >= 0 else 0) + picks.pending[chosen.node] + 1
    gap = _left_slot(inference, chosen.node)
    sides = (_reach(inference, gap - (slot >= 0), -1), _reach(inference, gap + 1, 1))
    for side in sides:
        have = sum(int(inference.counts[s]) + picks.pending[int(inference.nodes[s])] for s in side)
        usable = [s for s in side if situation.axis.wheel[inference.nodes[s]]]
        if usable and have < runs:
            node = int(inference.nodes[usable[-1]])
            name = name_of(situation.axis, node)
            return (
                node,
                f"{name}: its level is known from {have} runs only, the next choice has {runs - 1}",
            )
    return chosen.node, _reason(situation.axis, chosen)


def _reach(inference: Inference, slot: int, direction: int) -> list[int]:
    """Return the measured nodes from a slot outward that share its level."""
    jump, last = inference.marginals.jump, len(inference.nodes) - 1
    out: list[int] = []
    while 0 <= slot <= last:
        out.append(slot)
        edge = slot if direction > 0 else slot - 1
        if not 0 <= edge < len(jump) or jump[edge] >= 0.5:
            break
        slot += direction
    return out


def _reason(axis: Axis, candidate: Candidate) -> str:
    text = name_of(axis, candidate.node)
    if candidate.gap >= 0:
        text += f": splits the {100 * candidate.probability:.0f}% likely gap"
    else:
        text += ": sharpens what is known of it"
    runs = "1 run" if candidate.runs == 1 else f"{candidate.runs} runs"
    return f"{text}; {candidate.bits:.2f} bits for {duration(candidate.seconds)} ({runs})"


def search_builds(
    situation: Situation, inference: Inference, ranked: list[Candidate], slots: int
) -> list[Build]:
    """Return builds that together tell most: cells of probability, cut evenly."""
    if slots <= 0:
        return []
    fresh = [c for c in ranked if c.needs_build and not c.is_coming]
    if slots == 1 and situation.is_idle and fresh:
        best = fresh[0]
        return [Build(int(situation.axis.representative[best.node]), _reason(situation.axis, best))]
    cells = _cells(situation, inference)
    cuts = _allot(cells, slots, idle=situation.is_idle)
    chance = chance_to_build(
        situation.axis, len(situation.facts.broken), situation.facts.builds_done
    )
    builds: list[Build] = []
    for cell, count in zip(cells, cuts, strict=True):
        if cell.waits:
            continue
        for node in _cut(situation.axis, chance, cell, count):
            bits = cell.probability * np.log2((count + 1.0) / count)
            reason = (
                f"{name_of(situation.axis, node)}: one of {count} cuts of a "
                f"{100 * cell.probability:.0f}% likely gap; {bits:.2f} bits for "
                f"{duration(situation.facts.costs.build_seconds)}"
            )
            builds.append(Build(int(situation.axis.representative[node]), reason))
    return builds


@dataclass(frozen=True, slots=True)
class _Cell:
    """Part of a gap between nodes that are measured or being built."""

    low: int
    high: int
    probability: float
    #: A wheel in it is yet to be measured: that is cheap and may clear it, so its share of the
    #: slots is kept free until then.
    waits: bool
    #: Share of a build's time until the next build in the same gap ends; 1 if there is none.
    patience: float


def _cells(situation: Situation, inference: Inference) -> list[_Cell]:
    """Return the parts of gaps in which a build could tell something not yet on its way."""
    axis, nodes = situation.axis, inference.nodes
    out: list[_Cell] = []
    for gap in np.flatnonzero(inference.wanted > 0.02).tolist():
        low, high = int(nodes[gap]), int(nodes[gap + 1])
        inner = np.arange(low + 1, high)
        waits = bool(np.any(axis.wheel[inner] & ~axis.broken[inner]))
        coming = inner[axis.building[inner]]
        cuts = [low, *coming.tolist(), high]
        patience = _patience(situation, coming)
        whole = max(float(axis.mass[high] - axis.mass[low]), 1e-300)
        for a, b in itertools.pairwise(cuts):
            between = np.arange(a + 1, b)
            if np.any(~axis.broken[between]):
                share = float(axis.mass[b] - axis.mass[a]) / whole
                probability = float(inference.wanted[gap]) * share
                out.append(_Cell(a, b, probability, waits, patience))
    return out


def _patience(situation: Situation, coming: IntArray) -> float:
    """Return how long it is until one of the builds in flight ends, in builds."""
    seconds = max(situation.facts.costs.build_seconds, 1e-9)
    ages = [
        situation.facts.build_ages.get(int(situation.axis.representative[node]), 0.0)
        for node in coming.tolist()
    ]
    return 1.0 - min(max(ages, default=0.0) / seconds, 1.0)


def _allot(cells: list[_Cell], slots: int, *, idle: bool) -> list[int]:
    """Give each slot to the cell where one more even cut tells most."""
    cuts = [0] * len(cells)
    room = [cell.high - cell.low - 1 for cell in cells]
    for _ in range(slots):
        gains = [
            # Soon the gap will be known better: a slot is worth more to what is chosen then.
            cell.probability * cell.patience * np.log2((k + 2.0) / (k + 1.0)) if k < r else 0.0
            for cell, k, r in zip(cells, cuts, room, strict=True)
        ]
        if not gains:
            break
        # The search lasts as long as its largest cell: that one first, where cuts tell as much.
        left = [np.log2(1.0 + (r + 1.0) / (k + 1.0)) for k, r in zip(cuts, room, strict=True)]
        best = int(np.argmax(np.array(gains) * left))
        least = 0.0 if idle and not any(cuts) else SPECULATE_FROM
        if gains[best] <= least:
            break
        cuts[best] += 1
    return cuts


def _cut(axis: Axis, chance: FloatArray, cell: _Cell, count: int) -> list[int]:
    """Return ``count`` buildable nodes that cut a cell into even parts."""
    inner = np.arange(cell.low + 1, cell.high)
    inner = inner[~axis.broken[inner] & ~axis.building[inner]]
    whole = max(float(axis.mass[cell.high] - axis.mass[cell.low]), 1e-300)
    share = (axis.mass[inner] - axis.mass[cell.low]) / whole
    chosen: list[int] = []
    for number in range(1, count + 1):
        off = (share - number / (count + 1)) * (count + 1)
        worth = chance[inner] * np.maximum(1.0 - off**2, 1e-6)
        worth[np.isin(inner, chosen)] = -1.0
        best = int(np.argmax(worth)) if len(inner) else -1
        if best >= 0 and worth[best] > 0:
            chosen.append(int(inner[best]))
    return chosen
