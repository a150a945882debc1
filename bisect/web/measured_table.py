"""The table of measured commits: which of them it shows, and what it says of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfbisect.routers.charts import Evidence
from perfbisect.store.queries import PointCounts

#: Rows of the table at most; the API has them all.
MEASURED = 240
#: Positions on both sides of a step that are shown even where there are too many.
AROUND_STEPS = 15
#: Width of the drawing of an interval, and of its margin.
BAR, _MARGIN = 120, 4


@dataclass(frozen=True, slots=True)
class MeasuredCommit:
    """A row of the table of measured commits."""

    position: int
    sha: str
    subject: str
    mean: float | None
    low: float | None
    high: float | None
    points: int
    rejected: int
    #: ``good end``, ``bad end``, ``culprit`` or empty.
    role: str
    unbuildable: bool
    probability: float | None
    #: Where mean, low and high stand on a bar of ``BAR`` units that spans all intervals.
    bar: tuple[float, ...] = ()


def measured_commits(
    evidence: Evidence, wanted: Collection[int] | None = None
) -> list[MeasuredCommit]:
    """Return commits with points, and those that do not build, in order of the axis.

    Args:
        wanted: only these positions; None: all.
    """
    row, axis = evidence.row, evidence.axis
    belief = row.belief or {}
    levels = belief.get("levels") or {}
    probability = {int(at): share for at, share in belief.get("step_probability") or []}
    counted = {axis.position_of_tree[tree]: count for tree, count in evidence.counts.items()}
    broken = set(evidence.broken)
    place = _bar_of(levels.values())
    roles = _roles(row.verdict or {}, len(axis.candidates) - 1)
    rows = []
    for at in sorted({*counted, *broken} if wanted is None else wanted):
        count = counted.get(at, PointCounts())
        mean, low, high = levels.get(str(at), (None, None, None))
        rows.append(
            MeasuredCommit(
                position=at,
                sha=axis.candidates[at].sha,
                subject=axis.candidates[at].subject,
                mean=mean,
                low=low,
                high=high,
                points=count.accepted,
                rejected=count.rejected,
                role=roles.get(at, ""),
                unbuildable=at in broken,
                probability=probability.get(at),
                bar=() if mean is None else (place(mean), place(low), place(high)),
            )
        )
    return rows


def _bar_of(levels: Collection[Sequence[float]]) -> Callable[[float], float]:
    """Return what says where a value stands on the bar."""
    first = min((low for _, low, _ in levels if math.isfinite(low)), default=0.0)
    width = max((high for _, _, high in levels if math.isfinite(high)), default=0.0) - first
    scale = (BAR - 2 * _MARGIN) / width if width > 0 else 0.0

    def place(value: float) -> float:
        if not scale or not math.isfinite(value):
            return BAR / 2
        return round(_MARGIN + (value - first) * scale, 1)

    return place


def measured_positions(evidence: Evidence) -> list[int]:
    """Return the positions with points, and those that do not build."""
    place = evidence.axis.position_of_tree
    return sorted({*(place[tree] for tree in evidence.counts), *evidence.broken})


def fewer(positions: list[int], steps: list[dict[str, Any]], last: int) -> list[int]:
    """Return the positions that matter: around the steps and the ends, and evenly in between."""
    if len(positions) <= MEASURED:
        return positions
    stride = -(-len(positions) // (MEASURED // 2))
    wanted = {0, last, *positions[::stride]}
    for step in steps:
        if step["position"] is not None:
            place = int(step["position"])
            wanted.update(range(place - AROUND_STEPS, place + AROUND_STEPS + 1))
    return sorted(wanted.intersection(positions))


def _roles(verdict: Mapping[str, Any], last: int) -> dict[int, str]:
    positions = verdict.get("positions") or {"good": 0, "bad": last}
    roles = {int(positions["good"]): "good end", int(positions["bad"]): "bad end"}
    for culprit in verdict.get("culprits") or []:
        if culprit.get("position") is not None:
            before = int(culprit.get("before_position", culprit["position"] - 1))
            suspects = range(before + 1, int(culprit["position"]) + 1)
            # Only a verified culprit is called one.
            if len(suspects) == 1 and culprit.get("verified"):
                roles[suspects[0]] = "culprit"
            for position in suspects:
                roles.setdefault(position, "suspect")
    return roles
