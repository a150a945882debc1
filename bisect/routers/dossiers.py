"""Everything that a report tells, read from the database as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.states import WorkState
from perfbisect.reports.bisection_document import measured_roles
from perfbisect.routers import present
from perfbisect.routers.measured import measured_revisions, wheels_of
from perfbisect.store import experiment_queries, queries
from perfbisect.store.tables import (
    ArmRow,
    BisectionRow,
    BuildRow,
    DecisionRow,
    ExperimentRow,
    PointRow,
)

#: Wheels that a report names at most.
_MOST_WHEELS = 50
#: Experiments of a bisection that a report tells, the newest.
_MOST_EXPERIMENTS = 20
#: What a build's environment tells of its place, in this order.
_PLACE = ("toolchain", "image_tag", "image", "python", "gcc", "bazel", "bazel_version")


def bisection_dossier(session: Session, bisection_id: str) -> dict[str, Any]:
    """Return everything that the report of a bisection tells.

    Raises:
        NotFoundError: no such bisection.
    """
    listing = queries.get_bisection(session, bisection_id)
    row = listing.row
    verdict = present.verdict_of(listing)
    axis = queries.axis_of(session, bisection_id)
    points = queries.axis_points(session, row)
    decisions, _ = queries.decisions_of(session, bisection_id)
    measured = measured_revisions(session, row, axis, points, measured_roles(verdict))
    told = [each["commit"] for each in measured if each["role"]]
    builds = queries.axis_builds(session, row)
    experiments, _ = experiment_queries.list_experiments(
        session, bisection_id=bisection_id, before=None, limit=_MOST_EXPERIMENTS
    )
    return {
        "verdict": verdict,
        "request": row.request,
        "recipe": row.recipe,
        "benchmark": row.benchmark,
        "measured": measured,
        "experiments": [experiment_queries.answer_of(session, each) for each in experiments[::-1]],
        "decisions": _decisions(decisions),
        "builds": _builds(builds, told),
        "wheels": [
            {"commit": each["commit"], "filename": each["wheel"], "sha256": each["wheel_sha256"]}
            for each in measured
            if each["wheel_sha256"]
        ][:_MOST_WHEELS],
        **_surroundings(points),
    }


def experiment_dossier(session: Session, experiment_id: str) -> dict[str, Any]:
    """Return everything that the report of an experiment tells.

    Raises:
        NotFoundError: no such experiment.
    """
    row = experiment_queries.get_experiment(
        session, queries.known_id(experiment_id, "experiment", "experiment_id")
    )
    points = session.scalars(
        select(PointRow).where(PointRow.experiment_id == row.id).order_by(PointRow.id)
    ).all()
    arms = session.scalars(
        select(ArmRow).where(ArmRow.experiment_id == row.id).order_by(ArmRow.position)
    ).all()
    trees = {arm.tree for arm in arms if arm.tree is not None}
    builds = session.scalars(
        select(BuildRow)
        .where(BuildRow.tree.in_(trees), BuildRow.recipe_digest == row.recipe_digest)
        .order_by(BuildRow.id)
    ).all()
    wheels = wheels_of(session, row, trees)
    return {
        "answer": experiment_queries.answer_of(session, row),
        "request": row.request or _request_of_bisection(session, row),
        "recipe": row.recipe,
        "benchmark": row.benchmark,
        "decisions": _decisions(experiment_queries.decisions_of(session, row.id)),
        "builds": _builds(builds, None),
        "wheels": [
            {"commit": arm.name, "filename": wheel.filename, "sha256": wheel.sha256}
            for arm in arms
            if arm.tree is not None and (wheel := wheels.get(arm.tree)) is not None
        ][:_MOST_WHEELS],
        **_surroundings(points),
    }


def _request_of_bisection(session: Session, row: ExperimentRow) -> dict[str, Any]:
    """Return the names of a proof's repository, recipe and benchmark: its bisection has them."""
    parent = session.get(BisectionRow, row.bisection_id) if row.bisection_id else None
    names = ("repository", "recipe", "benchmark")
    return {} if parent is None else {name: parent.request.get(name) for name in names}


def _decisions(rows: Iterable[DecisionRow]) -> list[dict[str, Any]]:
    return [
        {"kind": row.kind, "position": row.position, "host": row.host, "reason": row.reason}
        for row in rows
    ]


def _builds(rows: Iterable[BuildRow], commits: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return how wheels were built that matter: of some commits, or all."""
    return [
        {
            "commit": row.commit_sha,
            "commands": row.environment.get("commands") or [],
            "image": row.environment.get("image_tag") or "",
            "place": {key: row.environment[key] for key in _PLACE if row.environment.get(key)},
        }
        for row in rows
        if row.state is WorkState.SUCCEEDED and (commits is None or row.commit_sha in commits)
    ]


def _surroundings(points: Sequence[PointRow]) -> dict[str, Any]:
    """Return hosts, Pythons, images and commands of the runs that count, each once."""
    hosts: dict[str, dict[str, Any]] = {}
    commands: dict[str, dict[str, Any]] = {}
    pythons: dict[str, None] = {}
    images: dict[str, None] = {}
    for point in points:
        if point.rejected:
            continue
        told = point.environment
        facts = told.get("host") if isinstance(told.get("host"), dict) else {}
        hosts[point.host] = {"name": point.host, "facts": facts}
        if told.get("python"):
            pythons[str(told["python"])] = None
        image = [str(told[key]) for key in ("image", "image_digest") if told.get(key)]
        if image:
            images[" ".join(image)] = None
        if told.get("command"):
            commands[point.host] = {
                "host": point.host,
                "command": told["command"],
                "variables": told.get("variables") or {},
            }
    return {
        "hosts": list(hosts.values()),
        "pythons": list(pythons),
        "images": list(images),
        "commands": list(commands.values()),
    }
