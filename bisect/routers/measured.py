"""What was measured, revision by revision, as reports tell it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect.store import queries
from perfbisect.store.queries import Axis
from perfbisect.store.tables import BisectionRow, CandidateRow, ExperimentRow, PointRow, WheelRow

#: The role of the newest revision that was measured since.
CURRENT = "current"


def measured_revisions(
    session: Session,
    row: BisectionRow,
    axis: Axis,
    points: Sequence[PointRow],
    roles: dict[int, str],
) -> list[dict[str, Any]]:
    """Return the revisions with points, and those that do not build, in order of the axis.

    Last comes what another bisection measured later than all of them, if any did.
    """
    by_tree: dict[str, list[PointRow]] = defaultdict(list)
    for point in points:
        by_tree[point.tree].append(point)
    belief = row.belief or {}
    levels = {int(at): level for at, level in (belief.get("levels") or {}).items()}
    broken = set(queries.broken_positions(session, row, axis))
    wheels = wheels_of(session, row, by_tree)
    dates = _dates(session, row.id)
    rows = []
    for candidate in axis.candidates:
        own, tree = candidate.position, candidate.tree
        # Equal trees share points: only the first of them, and those that the verdict names.
        first = axis.position_of_tree.get(tree, own)
        counts = any(not point.rejected for point in by_tree.get(tree, ()))
        if own not in roles and (own != first or not (counts or own in broken)):
            continue
        told = {
            "position": own,
            "commit": candidate.sha,
            "subject": candidate.subject,
            "role": roles.get(own, ""),
            "date": _day(dates.get(own)),
            "unbuildable": first in broken,
        }
        level = levels.get(own) or levels.get(first)
        rows.append(told | _values(row, by_tree.get(tree, ()), wheels.get(tree), level))
    newest = max((date for date in dates.values() if date is not None), default=None)
    current = _current(session, row, newest) if newest is not None else None
    return [*rows, current] if current is not None else rows


def wheels_of(
    session: Session, row: BisectionRow | ExperimentRow, trees: Iterable[str]
) -> dict[str, WheelRow]:
    """Return tree -> its wheel by the recipe of a bisection or experiment."""
    found = session.scalars(
        select(WheelRow).where(
            WheelRow.tree.in_(set(trees)), WheelRow.recipe_digest == row.recipe_digest
        )
    )
    return {wheel.tree: wheel for wheel in found}


def _values(
    row: BisectionRow,
    points: Sequence[PointRow],
    wheel: WheelRow | None,
    level: Sequence[float] | None,
) -> dict[str, Any]:
    measured = [point.value for point in points if not point.rejected]
    mean = sum(measured) / len(measured) if measured else None
    return {
        "mean": level[0] if level else mean,
        "ci95": [level[1], level[2]] if level else None,
        "lowest": min(measured, default=None),
        "highest": max(measured, default=None),
        "unit": str(row.benchmark.get("unit", "")),
        "runs": len(measured),
        "rejected": len(points) - len(measured),
        "companions": _companions(points),
        "wheel": wheel.filename if wheel else None,
        "wheel_sha256": wheel.sha256 if wheel else None,
    }


def _companions(points: Iterable[PointRow]) -> dict[str, list[str]]:
    """Return companion -> the commits of it that these points were measured with."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for point in points:
        for name, told in (point.environment.get("companions") or {}).items():
            if not point.rejected and isinstance(told, dict) and told.get("commit"):
                found[str(name)].setdefault(str(told["commit"]))
    return {name: list(commits) for name, commits in sorted(found.items())}


def _dates(session: Session, bisection_id: str) -> dict[int, datetime | None]:
    query = select(CandidateRow.position, CandidateRow.committed_at).where(
        CandidateRow.bisection_id == bisection_id
    )
    return {row.position: row.committed_at for row in session.execute(query)}


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.date().isoformat()


def _current(session: Session, row: BisectionRow, newest: datetime) -> dict[str, Any] | None:
    """Return the newest revision of the repository that was measured alike, after ``newest``."""
    if row.repository_id is None:
        return None
    digest = func.coalesce(CandidateRow.benchmark_digest, BisectionRow.benchmark_digest)
    measured = (
        select(PointRow.id)
        .where(
            PointRow.tree == CandidateRow.tree,
            PointRow.benchmark_digest == digest,
            PointRow.recipe_digest == row.recipe_digest,
            PointRow.rejected == "",
        )
        .exists()
    )
    found = session.execute(
        select(CandidateRow, digest)
        .join(BisectionRow, BisectionRow.id == CandidateRow.bisection_id)
        .where(
            BisectionRow.repository_id == row.repository_id,
            BisectionRow.benchmark_digest == row.benchmark_digest,
            CandidateRow.committed_at > newest,
            measured,
        )
        .order_by(CandidateRow.committed_at.desc(), CandidateRow.position.desc())
        .limit(1)
    ).first()
    if found is None:
        return None
    candidate, benchmark_digest = found
    points = session.scalars(
        select(PointRow).where(
            PointRow.tree == candidate.tree,
            PointRow.benchmark_digest == benchmark_digest,
            PointRow.recipe_digest == row.recipe_digest,
        )
    ).all()
    wheel = wheels_of(session, row, [candidate.tree]).get(candidate.tree)
    return {
        "position": None,
        "commit": candidate.sha,
        "subject": candidate.subject,
        "role": CURRENT,
        "date": _day(candidate.committed_at),
        "unbuildable": False,
    } | _values(row, points, wheel, None)
