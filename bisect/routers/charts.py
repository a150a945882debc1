"""The chart's columns: plain lists, so that a long axis stays small on the wire."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.core.states import BisectionState, FailureKind, Purpose, WorkState
from perfbisect.store import queries
from perfbisect.store.queries import Axis, Listing
from perfbisect.store.tables import BuildRow, PointRow, RunRow

#: Digits that can be seen on a chart.
_DIGITS = 6


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def chart_of(session: Session, listing: Listing) -> dict[str, Any]:
    """Return the object of ``GET /bisections/{id}/chart``."""
    row = listing.row
    axis = queries.axis_of(session, row.id)
    points = queries.axis_points(session, row)
    builds = queries.axis_builds(session, row)
    runs = queries.runs_of(session, row.id)
    belief, verdict = row.belief or {}, row.verdict or {}
    levels = sorted((int(at), *level) for at, level in (belief.get("levels") or {}).items())
    strip = belief.get("step_probability") or []
    hosts = sorted({point.host for point in points})
    return {
        "unit": str(row.benchmark.get("unit", "")),
        "better": str(row.benchmark.get("better", "higher")),
        "last": max(len(axis.candidates) - 1, 0),
        "finished": row.state is BisectionState.FINISHED,
        "points": _point_columns(points, axis, hosts),
        "levels": {
            "position": [level[0] for level in levels],
            "mean": [_rounded(level[1]) for level in levels],
            "low": [_rounded(level[2]) for level in levels],
            "high": [_rounded(level[3]) for level in levels],
        },
        "posterior": {
            "position": [int(position) for position, _ in strip],
            "probability": [float(f"{share:.4g}") for _, share in strip],
        },
        "hosts": hosts,
        "purposes": [purpose.value for purpose in Purpose],
        "commits": _commit_columns(axis, points, verdict),
        "unbuildable": unbuildable(builds, runs, axis),
        "threshold": belief.get("threshold", verdict.get("threshold")),
        "steps": [_step(culprit) for culprit in verdict.get("culprits") or []],
    }


def _point_columns(points: list[PointRow], axis: Axis, hosts: list[str]) -> dict[str, list[Any]]:
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


def _commit_columns(
    axis: Axis, points: list[PointRow], verdict: dict[str, Any]
) -> dict[str, list[Any]]:
    """Return names of the commits that a reader may point at: measured ones and culprits."""
    wanted = {axis.position_of_tree.get(point.tree, 0) for point in points}
    wanted |= {int(c["position"]) for c in verdict.get("culprits") or [] if c.get("position")}
    named = [row for row in axis.candidates if row.position in wanted]
    return {
        "position": [row.position for row in named],
        "sha": [report.short(row.sha) for row in named],
        "subject": [row.subject[:100] for row in named],
    }


def unbuildable(builds: list[BuildRow], runs: list[RunRow], axis: Axis) -> list[int]:
    """Return positions that do not build, or whose wheel does not run, for good."""
    built = {build.tree for build in builds if build.state is WorkState.SUCCEEDED}
    bad = {
        axis.position_of_tree[build.tree]
        for build in builds
        if build.failure_kind is FailureKind.PERMANENT
        and build.tree not in built
        and build.tree in axis.position_of_tree
    }
    bad |= {run.position for run in runs if run.failure_kind is FailureKind.PERMANENT}
    return sorted(bad)


def _step(culprit: dict[str, Any]) -> dict[str, Any]:
    keys = ("position", "before_position", "kind", "before", "after", "change", "verified")
    return {key: culprit.get(key) for key in keys}
