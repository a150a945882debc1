"""The axis of a companion's commits, all measured with one and the same wheel.

The wheel is published, or was built here before. It stands for every commit of the companion: what
differs along the axis is the benchmark, not what it measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.axes import Origin, PreparedAxis, Progress, commit_columns
from perfbisect.companions import Companions
from perfbisect.core.recipe import digest_of
from perfbisect.definitions import Definitions, Measured
from perfbisect.errors import BadInputError
from perfbisect.git.values import CommitInfo
from perfbisect.history import open_mirror
from perfbisect.packages import Published, index_access, published_version
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.store.tables import WheelRow

#: Kind of the origin of a wheel that is the same along the axis.
PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class Along:
    """How a benchmark's companions go along an axis."""

    axis: PreparedAxis
    #: The benchmark itself, with its companions as far as they are the same everywhere.
    measured: Measured
    #: By position: the benchmark there; empty: the same everywhere.
    by_position: tuple[Measured, ...] = ()
    #: What is stored with the bisection; None: no companion moves.
    told: dict[str, Any] | None = None
    #: Columns of a wheel that was built here and stands for every position; None: others do.
    built: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Pinned:
    """The wheel that all positions are measured with."""

    name: str
    sha256: str
    published: Published | None = None
    built: Mapping[str, Any] | None = None
    #: For companions that follow a date: that of the wheel.
    at: Any = field(default=None)


def along(
    services: Services,
    measured: Measured,
    axis: PreparedAxis,
    *,
    allow_local: bool,
    progress: Progress | None,
) -> Along:
    """Resolve the companions of a benchmark at every position of an axis.

    Raises: as ``companions.Companions`` and its ``commits_at``.
    """
    if not measured.benchmark.companions:
        return Along(axis, measured)
    companions = Companions(
        services, measured.benchmark, allow_local=allow_local, progress=progress
    )
    if not companions.moving:
        return Along(axis, companions.resolved(measured, companions.commits_at(None)))
    commits = [companions.commits_at(each["committed_at"]) for each in axis.candidates]
    resolved: dict[tuple[str, ...], Measured] = {}
    by_position = []
    for each in commits:
        key = tuple(commit.sha for commit in each.values())
        if key not in resolved:
            resolved[key] = companions.resolved(measured, each)
        by_position.append(resolved[key])
    moving = {
        name: {"first": commits[0][name].sha, "last": commits[-1][name].sha}
        for name in companions.moving_names
    }
    return Along(axis, companions.with_urls(measured), tuple(by_position), {"moving": moving})


def companion_axis(
    services: Services,
    request: BisectionRequest,
    measured: Measured,
    *,
    allow_local: bool,
    progress: Progress | None,
) -> Along:
    """Return the commits of a companion between the ends, with one wheel on all of them.

    Raises:
        BadInputError: no such companion, an end is no commit of it, or the wheel is not there.
        NotFoundError: no such package or version.
        TransientError: a repository or the index can't be reached.
    """
    name = request.bisect_companion
    assert name is not None
    companions = Companions(
        services, measured.benchmark, allow_local=allow_local, progress=progress
    )
    mirror = companions.mirror(name)
    candidates = mirror.candidates(
        request.good,
        request.bad,
        find=request.find,
        all_parents=request.all_parents,
        paths=request.paths,
    )
    wheel = _wheel(services, request, measured, progress)
    by_position = []
    for candidate in candidates:
        chosen: Mapping[str, CommitInfo] = {name: candidate}
        commits = companions.commits_at(wheel.at, chosen)
        by_position.append(companions.resolved(measured, commits))
    source = {"wheel": wheel.sha256, "companion": companions.url(name)}
    origin = Origin(digest_of(source), wheel.name, {"name": wheel.name, "kind": PINNED, **source})
    wheels = dict.fromkeys(range(len(candidates)), wheel.published) if wheel.published else {}
    axis = PreparedAxis(
        origin,
        commit_columns(mirror, candidates, {}),
        {at: each for at, each in wheels.items() if each is not None},
        source=companions.url(name),
    )
    told = {"bisected": name, "wheel": wheel.name}
    return Along(axis, companions.with_urls(measured), tuple(by_position), told, wheel.built)


def _wheel(
    services: Services,
    request: BisectionRequest,
    measured: Measured,
    progress: Progress | None,
) -> _Pinned:
    assert request.at is not None
    if isinstance(measured, Definitions):
        return _built(services, request.at, measured, progress)
    assert request.package is not None
    access = index_access(services.settings.index_url)
    wheel = published_version(request.package, request.at, access=access)
    return _Pinned(
        f"{wheel.package} {wheel.version}", wheel.sha256, published=wheel, at=wheel.upload_time
    )


def _built(
    services: Services, at: str, definitions: Definitions, progress: Progress | None
) -> _Pinned:
    """Return the wheel that the recipe has built of a revision, if it has."""
    mirror = open_mirror(
        definitions.source,
        services.settings.mirrors_dir,
        progress=progress,
        fetching=services.settings.fetching,
    )
    commit = mirror.resolve(at, "at")
    with services.database.read() as session:
        row = _built_row(session, commit.tree, definitions.recipe.digest)
    if row is None:
        message = (
            f"at: recipe '{definitions.recipe.name}' has not built {at} here yet: a companion is "
            "bisected with a wheel that is there (after a bisection both of its ends are)"
        )
        raise BadInputError(message, field="at", value=at)
    columns = {
        "build_id": row.build_id,
        "filename": row.filename,
        "sha256": row.sha256,
        "size": row.size,
        "artifact": row.artifact,
    }
    name = f"{definitions.recipe.name} of {commit.sha[:10]}"
    return _Pinned(name, row.sha256, built=columns, at=commit.committed_at)


def _built_row(session: Session, tree: str, recipe: str) -> WheelRow | None:
    query = select(WheelRow).where(WheelRow.tree == tree, WheelRow.recipe_digest == recipe)
    return session.scalar(query)
