"""Published wheels as candidates of a bisection: nightlies and releases of a package index.

``published`` makes an axis of versions. `WheelCache` gets their files when they are run, and
``as_of`` says as of when their dependencies are to be installed. ``read_stamps`` and
``place_on_commits`` put nightlies on an axis of commits, where they are wheels that cost no build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfbisect.core.states import Find
from perfbisect.core.versions import (
    DependencyChange,
    Placement,
    StampedWheel,
    also_changed,
    commit_prefix,
    place_wheels,
)
from perfbisect.errors import NotFoundError
from perfbisect.git.values import CommitInfo
from perfbisect.ports import CancelToken
from perfbisect.publishing.access import IndexAccess, index_access
from perfbisect.publishing.cache import CacheUsage, WheelCache
from perfbisect.publishing.git_version import Stamp, find_stamp
from perfbisect.publishing.index import PackageIndex
from perfbisect.publishing.listing import choose_around, choose_range, choose_version
from perfbisect.publishing.stamps import read_stamps
from perfbisect.publishing.target import Target
from perfbisect.publishing.values import Published, PublishedRange, Skipped

__all__ = [
    "CacheUsage",
    "DependencyChange",
    "IndexAccess",
    "Placement",
    "Published",
    "PublishedRange",
    "Skipped",
    "Stamp",
    "Target",
    "WheelCache",
    "also_changed",
    "as_of",
    "commit_of",
    "dating_options",
    "git_version_of",
    "index_access",
    "place_on_commits",
    "published",
    "published_around",
    "published_version",
    "read_stamps",
]

#: Siblings of a release (TensorFlow and TensorBoard) are published within hours of each other.
GRACE = timedelta(days=1)
#: Nightlies are published within so long of the commit that they are built from.
DELAY = timedelta(days=4)
#: Later than anything that was ever published.
_ANY_DATE = "2999-01-01T00:00:00Z"


def published(
    package: str,
    good: str,
    bad: str,
    *,
    find: Find = Find.ALL,
    prereleases: bool | None = None,
    access: IndexAccess | None = None,
    target: Target | None = None,
    cancel: CancelToken | None = None,
) -> PublishedRange:
    """Return the published wheels from the earlier end to the later, both included.

    In the order of versions; between two nightlies only nightlies, in the order of their dates.

    Args:
        package: name of the project.
        good: version of the good end, or the day of a nightly (``2026-04-01``).
        bad: the same of the bad end; the earlier one with ``find = fix``.
        find: decides which end must be the older one.
        prereleases: take them between the ends; None: if both ends are pre-releases themselves.
        access: which index and how; None: this machine's configuration.
        target: for which Python and platform; None: this one.
        cancel: ends the waits between repeated requests.

    Raises:
        BadInputError: an end is no version, has no wheel that fits, or is not on its side.
        NotFoundError: the index has no such project, or no such version.
        TransientError: the index can't be reached.
        CancelledWork: the token asked for the end.
    """
    with PackageIndex(access or index_access()) as index:
        page = index.project(package, cancel)
    return choose_range(
        str(canonicalize_name(package)),
        page.packages,
        good,
        bad,
        target or Target.here(),
        find=find,
        prereleases=prereleases,
    )


def published_version(
    package: str, version: str, *, access: IndexAccess | None = None, field: str = "at"
) -> Published:
    """Return the published wheel of one version, or of a nightly's day, for this machine.

    Args:
        field: what to call the version in messages.

    Raises: as ``published``.
    """
    with PackageIndex(access or index_access()) as index:
        page = index.project(package, None)
    name = str(canonicalize_name(package))
    return choose_version(name, page.packages, version, Target.here(), field)


def published_around(
    package: str,
    first: datetime,
    last: datetime,
    *,
    access: IndexAccess | None = None,
    target: Target | None = None,
    cancel: CancelToken | None = None,
) -> PublishedRange:
    """Return the wheels that may be of commits between two dates, in the order of publication.

    Args:
        package: name of the project.
        first: when the earliest commit was made.
        last: when the latest was made; wheels come out up to some days later.
        access, target, cancel: as for ``published``.

    Raises:
        NotFoundError: the index has no such project.
        TransientError: the index can't be reached.
        CancelledWork: the token asked for the end.
    """
    with PackageIndex(access or index_access()) as index:
        page = index.project(package, cancel)
    name = str(canonicalize_name(package))
    latest = last + DELAY
    return choose_around(name, page.packages, first - GRACE, latest, target or Target.here())


def as_of(wheel: Published, grace: timedelta = GRACE) -> datetime | None:
    """Return the moment whose dependencies a wheel is to be installed with (``--exclude-newer``).

    That is when it was published; where the index does not tell, the end of a nightly's day; for
    others None: nothing is known.
    """
    if wheel.upload_time is not None:
        return wheel.upload_time + grace
    if wheel.night is not None:
        return datetime.combine(wheel.night, time(), UTC) + timedelta(days=1) + grace
    return None


def dating_options(moment: datetime | None, requirements: Sequence[str] = ()) -> tuple[str, ...]:
    """Return uv's options that install dependencies as they were at a moment.

    Args:
        moment: e.g. of ``as_of``; None: as they are now.
        requirements: what a benchmark asks for itself: taken whatever its date, as it is pinned.
    """
    if moment is None:
        return ()
    names = sorted({canonicalize_name(Requirement(text).name) for text in requirements})
    exempt = [("--exclude-newer-package", f"{name}={_ANY_DATE}") for name in names]
    return ("--exclude-newer", moment.isoformat(), *(word for pair in exempt for word in pair))


def git_version_of(wheel: Path) -> str | None:
    """Return the git version that a wheel's build left in it, or None; nothing is imported.

    Raises:
        BadInputError: the file is no wheel, or damaged.
        OSError: it can't be read.
    """
    stamp = find_stamp(wheel)
    return stamp.git_version if stamp else None


def commit_of(wheel: Path, resolve: Callable[[str], CommitInfo]) -> CommitInfo:
    """Return the commit that a wheel was built from.

    Args:
        wheel: its file.
        resolve: (short) SHA -> commit, e.g. a mirror's ``resolve``.

    Raises:
        NotFoundError: the wheel does not say; and what ``resolve`` raises.
        BadInputError: the file is no wheel, or damaged.
    """
    git_version = git_version_of(wheel)
    prefix = commit_prefix(git_version or "")
    if prefix is None:
        raise NotFoundError(
            f"{wheel.name} does not say which commit it was built from",
            field="wheel",
            value=wheel.name,
        )
    return resolve(prefix)


def place_on_commits(
    candidates: Sequence[CommitInfo],
    wheels: Sequence[Published],
    stamps: Mapping[str, Stamp | None],
) -> Placement:
    """Put published wheels on the positions of the commits that they were built from.

    Args:
        candidates: the commit axis, by position.
        wheels: e.g. of ``published``.
        stamps: version -> what ``read_stamps`` found.

    Returns:
        position -> version, and the wheels without a place, each with the reason.
    """
    stamped = []
    for wheel in wheels:
        stamp = stamps.get(wheel.version)
        git_version = stamp.git_version if stamp else None
        stamped.append(StampedWheel(wheel.version, git_version, wheel.upload_time))
    shas = [candidate.sha for candidate in candidates]
    return place_wheels(shas, [candidate.committed_at for candidate in candidates], stamped)
