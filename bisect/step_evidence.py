"""What else is known of the two sides of a step: dependencies, origins, commits of versions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.versions import also_changed, commit_prefix
from perfbisect.errors import PerfbisectError
from perfbisect.packages import (
    Published,
    WheelCache,
    git_version_of,
    index_access,
    read_stamps,
)
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.services import Services
from perfbisect.store.axis_benchmarks import benchmark_at
from perfbisect.store.tables import BisectionRow, CandidateRow, PointRow, WheelRow

log = logging.getLogger(__name__)

#: Seconds that an answer waits for the commits of its wheels: a lease must not run out meanwhile.
_PATIENCE = 20.0
#: Left-out wheels that are named one by one.
_MOST_SKIPPED = 30


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a step, as it was measured last."""

    packages: Mapping[str, str]
    #: Name of the distribution that was measured.
    distribution: str
    #: ``published`` or ``built``.
    origin: str
    #: Name of each companion -> its commit.
    companions: Mapping[str, str]


def sides_of(
    session: Session, row: BisectionRow, before: int | None, after: int | None
) -> dict[str, Any]:
    """Return what a culprit's JSON tells of its sides: ``also_changed`` and ``origins``.

    Args:
        before: position measured before the step; None: not known.
        after: position measured after it.
    """
    earlier, later = _side(session, row, before), _side(session, row, after)
    if earlier is None or later is None:
        return {"also_changed": [], "origins": None}
    own = {earlier.distribution, later.distribution}
    bisected = {_companion((row.companions or {}).get("bisected", ""))}
    changed = also_changed(earlier.companions, later.companions, without=bisected)
    if earlier.packages and later.packages:
        changed += also_changed(earlier.packages, later.packages, without=own)
    return {
        "also_changed": [
            {"name": each.name, "before": each.before, "after": each.after} for each in changed
        ],
        "origins": {"before": earlier.origin, "after": later.origin},
    }


def _companion(name: str) -> str:
    """Return what a companion is called among dependencies."""
    return f"{name} (companion)"


def _side(session: Session, row: BisectionRow, position: int | None) -> _Side | None:
    found = session.execute(
        select(PointRow.environment, WheelRow)
        .join(CandidateRow, CandidateRow.tree == PointRow.tree)
        .join(WheelRow, WheelRow.id == PointRow.wheel_id)
        .where(
            CandidateRow.bisection_id == row.id,
            CandidateRow.position == position,
            PointRow.benchmark_digest == benchmark_at(row),
            PointRow.recipe_digest == row.recipe_digest,
        )
        .order_by(PointRow.id.desc())
        .limit(1)
    ).first()
    if found is None:
        return None
    environment, wheel = found
    return _Side(
        packages=environment.get("packages") or {},
        distribution=canonicalize_name(wheel.filename.split("-", 1)[0]),
        origin="published" if wheel.published is not None else "built",
        companions={
            _companion(name): str(told["commit"])[:10]
            for name, told in (environment.get("companions") or {}).items()
        },
    )


def notes_of(row: BisectionRow, broken: Mapping[str, str]) -> list[str]:
    """Return what people should know of published wheels: ends, left out, unusable.

    Args:
        broken: version or SHA -> why it can't be used.
    """
    published = row.published
    if published is None:
        return []
    package = published["package"]
    skipped = list(published.get("skipped") or ())
    notes = [str(note) for note in published.get("notes") or ()]
    notes += [
        f"{package} {each['version']} is left out: {each['reason']}"
        for each in skipped[:_MOST_SKIPPED]
    ]
    if len(skipped) > _MOST_SKIPPED:
        notes.append(f"{len(skipped) - _MOST_SKIPPED} more wheels of {package} are left out")
    if row.repository_id is None:
        notes += [f"{package} {name} can't be used: {why}" for name, why in broken.items()]
    return notes


def read_git_versions(
    services: Services, wheels: Iterable[tuple[int, Published]]
) -> dict[int, str]:
    """Return position -> git version of published wheels, as far as they tell in reasonable time.

    What was run last lies in the cache; of others a few parts are fetched. Trouble with one keeps
    no answer from anybody.
    """
    token = CancelToken()
    timer = threading.Timer(_PATIENCE, token.cancel)
    timer.daemon = True
    timer.start()
    found = {}
    try:
        for position, wheel in wheels:
            git_version = _git_version(services, wheel, token)
            if git_version is not None:
                found[position] = git_version
    except CancelledWork:
        log.warning("commits of published wheels: not read within %.0f s", _PATIENCE)
    finally:
        timer.cancel()
    return found


def _git_version(services: Services, wheel: Published, token: CancelToken) -> str | None:
    directory = services.settings.published_dir
    try:
        access = index_access(services.settings.index_url)
        cache = WheelCache(directory, access, services.settings.wheel_cache_size)
        if (directory / wheel.sha256 / wheel.filename).exists():
            with cache.hold(wheel, token) as path:
                return git_version_of(path)
        stamp = read_stamps([wheel], access, cache, token)[wheel.version]
    except (PerfbisectError, OSError) as error:
        log.warning("commit of %s %s: %s", wheel.package, wheel.version, error)
        return None
    return stamp.git_version if stamp else None


def published_at(
    session: Session, row: BisectionRow, positions: Iterable[int]
) -> list[tuple[int, Published]]:
    """Return the published wheels that stand on some positions."""
    query = (
        select(CandidateRow.position, WheelRow.published)
        .join(WheelRow, WheelRow.tree == CandidateRow.tree)
        .where(
            CandidateRow.bisection_id == row.id,
            CandidateRow.position.in_(sorted(set(positions))),
            WheelRow.recipe_digest == row.recipe_digest,
            WheelRow.published.is_not(None),
        )
        .order_by(CandidateRow.position)
    )
    return [(position, Published.from_dict(stored)) for position, stored in session.execute(query)]


def add_commit_ranges(culprits: Sequence[dict[str, Any]], git_versions: Mapping[int, str]) -> None:
    """Add to culprits of versions which commits are between: where a repository's search begins."""
    for culprit in culprits:
        before = git_versions.get(culprit["before_position"])
        after = git_versions.get(culprit["position"])
        if before is None or after is None:
            continue
        first, last = commit_prefix(before), commit_prefix(after)
        culprit["commit_range"] = {
            "before": before,
            "after": after,
            "range": f"{first}..{last}" if first and last else None,
        }
