"""The axis as the search sees it: runs of equal wheels contracted, the good end always first.

The search works on *nodes*. A node is a maximal stretch of consecutive positions that share one
wheel; node 0 holds the good end and the last node the bad end, whichever is earlier in time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfbisect.core.facts import Facts, FloatArray
from perfbisect.core.states import Find

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Axis:
    """Nodes in search order. Arrays over nodes have shape (N + 1,)."""

    #: Whether search order is the reverse of time (``find = fix``).
    reversed: bool
    #: Earliest and latest position of each node.
    earliest: IntArray
    latest: IntArray
    #: The position to build and run for a node.
    representative: IntArray
    #: Cumulative prior mass of a step up to and including the one into a node; 0 … 1.
    mass: FloatArray
    wheel: BoolArray
    broken: BoolArray
    building: BoolArray
    #: Position -> its representative position, shape (n + 1,).
    representative_of: IntArray
    #: Representative position -> every node that shares its wheel.
    nodes_of: dict[int, tuple[int, ...]]
    #: Positions -> nodes, shape (n + 1,).
    node_at: IntArray

    @property
    def last(self) -> int:
        """Index of the bad end's node."""
        return len(self.earliest) - 1

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Return the positions ``(before, after)`` around the step between two nodes."""
        if self.reversed:
            low, high = high, low
        return int(self.latest[low]), int(self.earliest[high])

    def nodes_between(self, before: int, after: int) -> tuple[int, int]:
        """Inverse of ``span``: the nodes, in search order, of two positions."""
        low, high = int(self.node_at[before]), int(self.node_at[after])
        return (high, low) if self.reversed else (low, high)

    def is_resolved(self, low: int, high: int) -> bool:
        """Return whether nothing that could be built lies strictly between two nodes."""
        return bool(np.all(self.broken[low + 1 : high]))


def axis_of(facts: Facts) -> Axis:
    """Contract equal neighbours and put the good end first."""
    size = facts.n + 1
    representative_of = np.arange(size, dtype=np.int64)
    if facts.same_as:
        shared = np.array(list(facts.same_as.items()), dtype=np.int64)
        representative_of[shared[:, 0]] = shared[:, 1]
    starts = np.flatnonzero(np.diff(representative_of, prepend=-1) != 0)
    latest = np.append(starts[1:] - 1, facts.n)
    node_at = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, size)))
    steps = np.zeros(len(starts))
    if len(starts) > 1:
        steps[1:] = np.maximum(np.asarray(facts.weights, float)[starts[1:] - 1], 1e-12)
    representative = representative_of[starts]
    marks = [
        _marked(positions, representative_of)[representative]
        for positions in (facts.wheels, facts.broken, facts.building)
    ]
    backwards = facts.policy.find is Find.FIX
    if backwards:
        starts, latest, representative = starts[::-1], latest[::-1], representative[::-1]
        marks = [mark[::-1] for mark in marks]
        node_at = len(starts) - 1 - node_at
        steps = np.append(0.0, steps[:0:-1])
    total = float(steps.sum())
    return Axis(
        reversed=backwards,
        earliest=starts,
        latest=latest,
        representative=representative,
        mass=np.cumsum(steps) / (total if total > 0 else 1.0),
        wheel=marks[0],
        broken=marks[1],
        building=marks[2],
        representative_of=representative_of,
        nodes_of=_groups(representative),
        node_at=node_at,
    )


def _marked(positions: frozenset[int], representative_of: IntArray) -> BoolArray:
    """Mark the representatives of some positions."""
    marked = np.zeros(len(representative_of), dtype=np.bool_)
    if positions:
        marked[representative_of[np.fromiter(positions, np.int64, len(positions))]] = True
    return marked


def _groups(representative: IntArray) -> dict[int, tuple[int, ...]]:
    """Return representative -> nodes, for representatives with several nodes only."""
    order = np.argsort(representative, kind="stable")
    values, first, counts = np.unique(representative[order], return_index=True, return_counts=True)
    return {
        int(values[k]): tuple(int(node) for node in order[first[k] : first[k] + counts[k]])
        for k in np.flatnonzero(counts > 1)
    }
