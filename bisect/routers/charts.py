"""The chart's columns: plain lists, so that a long axis stays small on the wire."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.core.states import BisectionState, Purpose
from perfbisect.store import queries
from perfbisect.store.queries import Axis, Listing, PointCounts
from perfbisect.store.tables import BisectionRow

#: Digits that can be seen on a chart.
_DIGITS = 6
#: Points that one answer holds; with more, means and intervals have to do until one zooms in.
MOST_POINTS = 4000
#: Probabilities below this can't be seen on a chart.
LEAST_SHARE = 0.0005
#: Named commits at most: a reader can't point at more.
MOST_NAMED = 1500


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the axis, both ends included."""

    first: int
    last: int

    def holds(self, position: int) -> bool:
        """Return whether a position is inside."""
        return self.first <= position <= self.last


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a chart and a page draw from, read once."""

    row: BisectionRow
    axis: Axis
    counts: dict[str, PointCounts]
    broken: list[int]


def read_evidence(session: Session, listing: Listing) -> Evidence:
    """Read what charts need besides the points themselves."""
    axis = queries.axis_of(session, listing.row.id)
    return Evidence(
        row=listing.row,
        axis=axis,
        counts=queries.count_axis_points(session, listing.row),
        broken=queries.broken_positions(session, listing.row, axis),
    )


def chart_of(
    session: Session,
    evidence: Evidence,
    window: Window | None = None,
    *,
    most_levels: int | None = None,
    named: bool = True,
) -> dict[str, Any]:
    """Return the object of ``GET /bisections/{id}/chart``.

    Args:
        window: only the points of this part; levels and the rest are always whole.
        most_levels: of more measured commits, only some, evenly; None: all.
        named: with the names of the commits that a reader may point at.
    """
    row, axis = evidence.row, evidence.axis
    belief, verdict = row.belief or {}, row.verdict or {}
    points, left_out = _points(session, evidence, window)
    hosts = sorted({point.host for point in points})
    levels = sorted(
        (int(at), *level)
        for at, level in (belief.get("levels") or {}).items()
        if all(map(math.isfinite, level))
    )
    if most_levels is not None:
        levels = levels[:: -(-len(levels) // most_levels) or 1]
    # What is less probable than can be drawn is left out.
    strip = [each for each in belief.get("step_probability") or [] if each[1] >= LEAST_SHARE]
    return {
        "unit": str(row.benchmark.get("unit", "")),
        "better": str(row.benchmark.get("better", "higher")),
        "last": max(len(axis.candidates) - 1, 0),
        "finished": row.state is BisectionState.FINISHED,
        "points_left_out": left_out,
        "points": _point_columns(points, axis, hosts),
        "levels": {
            "position": [level[0] for level in levels],
            "mean": [_rounded(level[1]) for level in levels],
            "low": [_rounded(level[2]) for level in levels],
            "high": [_rounded(level[3]) for level in levels],
        },
        "posterior": {
            "position": [int(position) for position, _ in strip],
            "probability": [float(f"{share:.3g}") for _, share in strip],
        },
        "hosts": hosts,
        "purposes": [purpose.value for purpose in Purpose],
        "commits": _commit_columns(evidence, window) if named else {},
        "unbuildable": evidence.broken,
        "threshold": belief.get("threshold", verdict.get("threshold")),
        "steps": [_step(culprit) for culprit in verdict.get("culprits") or []],
    }


Point = Row[str, float, str, Purpose, str]


def _points(
    session: Session, evidence: Evidence, window: Window | None
) -> tuple[Sequence[Point], bool]:
    """Return the points of the window, and whether there were too many of them."""
    place = evidence.axis.position_of_tree
    trees = [tree for tree in evidence.counts if window is None or window.holds(place.get(tree, 0))]
    counts = [evidence.counts[tree] for tree in trees]
    if sum(count.accepted + count.rejected for count in counts) > MOST_POINTS:
        return [], True
    chosen = None if window is None else trees
    points = queries.axis_values(session, evidence.row, chosen, MOST_POINTS)
    # No scale has a place for infinity, which old rows may hold: tables show it.
    return [point for point in points if math.isfinite(point.value)], False


def _point_columns(points: Sequence[Point], axis: Axis, hosts: list[str]) -> dict[str, list[Any]]:
    host_index = {host: index for index, host in enumerate(hosts)}
    purpose_index = {purpose: index for index, purpose in enumerate(Purpose)}
    placed = sorted(points, key=lambda point: axis.position_of_tree.get(point.tree, 0))
    return {
        "position": [axis.position_of_tree.get(point.tree, 0) for point in placed],
        "value": [_rounded(point.value) for point in placed],
        "host": [host_index[point.host] for point in placed],
        "purpose": [purpose_index[point.purpose] for point in placed],
        "rejected": [int(bool(point.rejected)) for point in placed],
    }


def _commit_columns(evidence: Evidence, window: Window | None) -> dict[str, list[Any]]:
    """Return names of the commits that a reader may point at: measured ones and culprits."""
    axis = evidence.axis
    culprits = (evidence.row.verdict or {}).get("culprits") or []
    wanted = {axis.position_of_tree.get(tree, 0) for tree in evidence.counts}
    if window is not None:
        wanted = {position for position in wanted if window.holds(position)}
    elif len(wanted) > MOST_NAMED:
        wanted = set()
    wanted |= {int(culprit["position"]) for culprit in culprits if culprit.get("position")}
    named = [candidate for candidate in axis.candidates if candidate.position in wanted]
    return {
        "position": [candidate.position for candidate in named],
        "sha": [report.short(candidate.sha) for candidate in named],
        "subject": [candidate.subject[:100] for candidate in named],
    }


def _step(culprit: dict[str, Any]) -> dict[str, Any]:
    keys = ("position", "before_position", "kind", "before", "after", "change", "verified")
    return {key: culprit.get(key) for key in keys}
