"""From a request to its axis: commits, published versions, or commits with nightlies among them.

An axis also says what its wheels are made by. Points serve every axis on which their wheel stands,
so wheels that are not alike must not share a name: a nightly of a commit is not what a recipe makes
of it. The digest that names the origin of wheels is therefore

    a recipe's digest                        commits alone: everything is built by it
    digest of package and index              published versions alone
    digest of recipe, package and index      commits, with nightlies where there are some
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, time
from typing import Any

from perfbisect.building_notes import carry_along, make_carry, survey
from perfbisect.config import recipe_to_dict
from perfbisect.core.prior import path_weights
from perfbisect.core.recipe import digest_of
from perfbisect.definitions import Definitions
from perfbisect.errors import BadInputError
from perfbisect.git.values import Candidate
from perfbisect.history import Mirror, open_mirror
from perfbisect.packages import (
    Published,
    PublishedRange,
    WheelCache,
    index_access,
    place_on_commits,
    published,
    published_around,
    read_stamps,
)
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services

Progress = Callable[[str], None]

#: Kind of the origin of wheels that are published and never built.
PUBLISHED = "published"
#: Characters that a version may have to be the name of a position.
_LONGEST_VERSION = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the wheels of an axis come from: what a recipe is to commits."""

    digest: str
    name: str
    #: A recipe, or package and index of published wheels.
    definition: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PreparedAxis:
    """An axis before it is stored: the earlier end first."""

    origin: Origin
    #: By position: columns of ``candidates`` without the bisection.
    candidates: Sequence[Mapping[str, Any]]
    #: position -> the published wheel that stands there.
    wheels: Mapping[int, Published] = field(default_factory=dict)
    #: Package and index of the published wheels, and what of them is left out; None: none are used.
    published: dict[str, Any] | None = None
    #: What people should know of its builds; see ``BisectionRow.build_notes``.
    build_notes: tuple[dict[str, Any], ...] = ()
    #: What is carried along, as text.
    carried: tuple[str, ...] = ()
    #: Repository of the axis, where it is not the one whose wheels are measured (a companion's).
    source: str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """Names of the earlier and the later end: a SHA or a version."""
        return self.candidates[0]["sha"], self.candidates[-1]["sha"]

    @property
    def identity(self) -> list[str]:
        """What makes two requests for one axis the same: both trees, and every published file."""
        trees = [self.candidates[0]["tree"], self.candidates[-1]["tree"]]
        return [*trees, *(wheel.sha256 for _, wheel in sorted(self.wheels.items()))]


def commit_axis(
    services: Services,
    request: BisectionRequest,
    definitions: Definitions,
    progress: Progress | None,
) -> PreparedAxis:
    """Return the commits between the ends, with the nightlies of ``request.package`` on them.

    Raises:
        BadInputError: an end is no commit or not on its side; no such package.
        TransientError: the repository or the index can't be reached.
    """
    mirror = open_mirror(
        definitions.source,
        services.settings.mirrors_dir,
        progress=progress,
        fetching=services.settings.fetching,
    )
    candidates = mirror.candidates(
        request.good,
        request.bad,
        find=request.find,
        all_parents=request.all_parents,
        paths=request.paths,
    )
    carry = make_carry(mirror, request.carry_pick, request.carry)
    columns, carry_notes = carry_along(
        mirror, commit_columns(mirror, candidates, definitions.recipe.relevance), carry, progress
    )
    surveyed = survey(mirror, definitions.recipe, candidates, [each["tree"] for each in columns])
    recipe, notes = surveyed.recipe, (*surveyed.notes, *carry_notes)
    definition = recipe_to_dict(recipe)
    if request.package is None:
        return PreparedAxis(
            Origin(recipe.digest, recipe.name, definition),
            columns,
            build_notes=notes,
            carried=tuple(carry.identity),
        )
    wheels, told = _nightlies(services, request.package, candidates, progress)
    # A nightly is the commit as it was: it can't stand for one with something on top.
    wheels = {at: wheel for at, wheel in wheels.items() if not columns[at].get("carried")}
    origin = Origin(
        digest_of({"recipe": recipe.digest, **_source_of(told)}),
        f"{recipe.name} with {told['package']}",
        definition,
    )
    return PreparedAxis(
        origin, columns, wheels, told, build_notes=notes, carried=tuple(carry.identity)
    )


def version_axis(services: Services, request: BisectionRequest) -> PreparedAxis:
    """Return the published versions of a package between the ends.

    Raises:
        BadInputError: an end is no version, has no wheel that fits, or is not on its side.
        NotFoundError: the index has no such package or version.
        TransientError: the index can't be reached.
    """
    assert request.package is not None
    access = index_access(services.settings.index_url)
    found = published(
        request.package,
        request.good,
        request.bad,
        find=request.find,
        prereleases=request.prereleases,
        access=access,
    )
    package = found.wheels[0].package
    told = _told(package, access.url, found)
    source = _source_of(told)
    definition = {"name": package, "kind": PUBLISHED, **source}
    return PreparedAxis(
        Origin(digest_of(source), package, definition),
        [_version_columns(position, wheel) for position, wheel in enumerate(found.wheels)],
        dict(enumerate(found.wheels)),
        told,
    )


def _told(package: str, index: str, found: PublishedRange) -> dict[str, Any]:
    return {
        "package": package,
        "index": index,
        "skipped": [asdict(skipped) for skipped in found.skipped],
        "notes": list(found.notes),
    }


def _source_of(told: Mapping[str, Any]) -> dict[str, str]:
    return {"package": told["package"], "index": told["index"]}


def _version_columns(position: int, wheel: Published) -> dict[str, Any]:
    if len(wheel.version) > _LONGEST_VERSION:
        raise BadInputError(
            f"version {wheel.version} is too long: at most {_LONGEST_VERSION} characters",
            field="package",
            value=wheel.package,
        )
    when = published_on(wheel)
    return {
        "position": position,
        "sha": wheel.version,
        "tree": wheel.sha256,
        "subject": f"published {when:%Y-%m-%d}" if when else wheel.filename,
        "author": "",
        "committed_at": when,
        "weight": 1.0 if position else 0.0,
        "relations": [],
    }


def published_on(wheel: Published) -> datetime | None:
    """Return when a wheel was published, as far as index or version tell."""
    if wheel.upload_time is not None or wheel.night is None:
        return wheel.upload_time
    return datetime.combine(wheel.night, time(), UTC)


def commit_columns(
    mirror: Mirror, candidates: Sequence[Candidate], relevance: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return the columns of a commit axis, the earlier end first."""
    weights = path_weights([candidate.paths for candidate in candidates[1:]], dict(relevance))
    related = mirror.relations_between(candidates[0].sha, candidates[-1].sha)
    return [
        {
            "position": position,
            "sha": candidate.sha,
            "tree": candidate.tree,
            "subject": candidate.subject,
            "author": candidate.author,
            "committed_at": candidate.committed_at,
            "weight": 0.0 if position == 0 else float(weights[position - 1]),
            "relations": [asdict(relation) for relation in related.get(candidate.sha, ())],
        }
        for position, candidate in enumerate(candidates)
    ]


def _nightlies(
    services: Services, package: str, candidates: Sequence[Candidate], progress: Progress | None
) -> tuple[dict[int, Published], dict[str, Any]]:
    """Return position -> published wheel of that very commit, and what to tell of the others."""
    settings = services.settings
    access = index_access(settings.index_url)
    first, last = candidates[0].committed_at, candidates[-1].committed_at
    found = published_around(package, first, last, access=access)
    cache = WheelCache(settings.published_dir, access, settings.wheel_cache_size)

    def read(done: int, of: int, wheel: Published) -> None:
        if progress is not None:
            progress(f"commit of {wheel.package} {wheel.version} read ({done} of {of})")

    stamps = read_stamps(found.wheels, access, cache, progress=read)
    placement = place_on_commits(candidates, found.wheels, stamps)
    by_version = {wheel.version: wheel for wheel in found.wheels}
    told = _told(found.package, access.url, found)
    told["skipped"] += [
        {"version": unplaced.name, "reason": unplaced.reason} for unplaced in placement.unplaced
    ]
    if not placement.wheels:
        told["notes"].append(f"no wheel of {found.package} is of a commit between the ends")
    return {at: by_version[version] for at, version in placement.wheels.items()}, told
