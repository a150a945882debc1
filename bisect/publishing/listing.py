"""From the files on a project's page to the wheels between two versions. No I/O."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import PurePosixPath

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage

from perfbisect.core.states import Find
from perfbisect.core.versions import night_of
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.git.values import one_line
from perfbisect.publishing.target import Target
from perfbisect.publishing.values import Published, PublishedRange, Skipped

#: Versions that an error names on each side of an unknown one.
_NEAR = 2
#: Longest reason for a yanked file that is shown.
_WHY = 300
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Nightlies are in the order of their dates, whatever the version before the date.
_Key = tuple[date, Version]
#: Rank (smaller is better) and build number of a wheel that fits.
_Fit = tuple[int, tuple[int, str], Published]


@dataclass(slots=True)
class _Release:
    """What an index has of one version."""

    version: Version
    fits: list[_Fit] = field(default_factory=list)
    yanked: list[_Fit] = field(default_factory=list)
    #: Why they were yanked; may be empty.
    yanked_why: str = ""
    #: Tags of the wheels that don't fit.
    others: set[Tag] = field(default_factory=set)
    #: Why wheels that would fit can't be taken.
    unusable: list[str] = field(default_factory=list)

    @property
    def best(self) -> Published | None:
        """The wheel to take; None: there is none that fits."""
        return _pick(self.fits)

    def why_not(self, target: Target) -> str:
        """Say why no wheel of this version is taken."""
        if self.yanked:
            return "yanked" + (f": {self.yanked_why}" if self.yanked_why else "")
        if self.unusable:
            return self.unusable[0]
        if not self.others:
            return "there are no wheels, only sources"
        return f"no wheel for {target}; there are only {_words(self.others, target)}"


def choose_range(
    package: str,
    files: Iterable[DistributionPackage],
    good: str,
    bad: str,
    target: Target,
    *,
    find: Find = Find.ALL,
    prereleases: bool | None = None,
) -> PublishedRange:
    """Return the wheels from the earlier end to the later, both included.

    Args:
        package: canonical name of the project.
        files: everything on its page.
        good: version of the good end, or the day of a nightly (``2026-04-01``).
        bad: the same of the bad end; the earlier one with ``find = fix``.
        target: for which Python and platform.
        find: decides which end must be the older one.
        prereleases: take them between the ends; None: if both ends are pre-releases themselves.

    Raises:
        BadInputError: an end is no version, has no wheel for the target, or is not on its side.
        NotFoundError: the index does not have an end's version.
    """
    releases = _releases(package, files, target)
    if not releases:
        raise NotFoundError(
            f"the index lists no files of '{package}'", field="package", value=package
        )
    ends = {
        "good": _end(package, releases, good, "good"),
        "bad": _end(package, releases, bad, "bad"),
    }
    nightly = all(_night(version) for version in ends.values())
    first, last = ("bad", "good") if find is Find.FIX else ("good", "bad")
    _check_order(ends, first, last, find, nightly=nightly)
    taken = [_end_wheel(package, releases[ends[name]], name, target) for name in (first, last)]
    notes = tuple(note for _wheel, note in taken if note)
    if prereleases is None:
        prereleases = all(version.is_prerelease for version in ends.values())
    between = _between(releases, ends[first], ends[last], nightly=nightly)
    wheels, skipped = [taken[0][0]], []
    for release in between:
        best = release.best
        if release.version.is_prerelease and not prereleases:
            skipped.append(Skipped(str(release.version), "a pre-release"))
        elif best is None:
            skipped.append(Skipped(str(release.version), release.why_not(target)))
        else:
            wheels.append(best)
    return PublishedRange((*wheels, taken[1][0]), tuple(skipped), notes, package)


def choose_version(
    package: str, files: Iterable[DistributionPackage], text: str, target: Target, field: str
) -> Published:
    """Return the wheel of one version, or of a nightly's day.

    Args:
        field: what to call the version in messages.

    Raises:
        BadInputError: it is no version, or has no wheel for the target.
        NotFoundError: the index does not have it.
    """
    releases = _releases(package, files, target)
    version = _end(package, releases, text, field)
    return _end_wheel(package, releases[version], field, target)[0]


def choose_around(
    package: str,
    files: Iterable[DistributionPackage],
    earliest: datetime,
    latest: datetime,
    target: Target,
) -> PublishedRange:
    """Return every wheel that was published from one moment to another, pre-releases included.

    In the order of publication, then of versions. A nightly without a time is of its day's begin;
    other wheels without one are left out, with the reason. Yanked ones are left out.
    """
    releases = _releases(package, files, target)
    dated: list[tuple[datetime, Version, Published]] = []
    skipped = []
    for version, release in sorted(releases.items()):
        best = release.best
        if best is None:
            continue
        when = best.upload_time
        if when is None and best.night is not None:
            when = datetime.combine(best.night, time(), UTC)
        if when is None:
            skipped.append(Skipped(str(version), "the index does not tell when it was published"))
        elif earliest <= when <= latest:
            dated.append((when, version, best))
    wheels = tuple(wheel for _, _, wheel in sorted(dated, key=lambda item: item[:2]))
    return PublishedRange(wheels, tuple(skipped), (), package)


def _releases(
    package: str, files: Iterable[DistributionPackage], target: Target
) -> dict[Version, _Release]:
    """Sort a page's files by version; names that are none of a wheel's only prove the version."""
    releases: dict[Version, _Release] = {}
    for file in files:
        try:
            version = Version(file.version or "")
        except InvalidVersion:
            continue
        release = releases.setdefault(version, _Release(version))
        if file.package_type == "wheel":
            _file(package, release, file, target)
    return releases


def _file(package: str, release: _Release, file: DistributionPackage, target: Target) -> None:
    """Put a wheel where it belongs within its release."""
    try:
        name, _version, build, tags = parse_wheel_filename(file.filename)
    except InvalidWheelFilename:
        return
    if name != package or PurePosixPath(file.filename).name != file.filename:
        return
    rank = target.rank(tags)
    if rank is None:
        release.others |= tags
        return
    if not target.allows(file.requires_python or ""):
        release.unusable.append(f"{file.filename} requires Python {file.requires_python}")
        return
    sha256 = file.digests.get("sha256", "").lower()
    if not _SHA256.fullmatch(sha256):
        release.unusable.append(f"the index gives no SHA-256 of {file.filename}")
        return
    wheel = Published(
        package=package,
        version=str(release.version),
        filename=file.filename,
        url=file.url,
        sha256=sha256,
        size=file.size,
        upload_time=_utc(file.upload_time),
        requires_python=file.requires_python or "",
    )
    if file.is_yanked:
        release.yanked_why = one_line(file.yanked_reason or "")[:_WHY]
    (release.yanked if file.is_yanked else release.fits).append((rank, build or (0, ""), wheel))


def _pick(fits: Sequence[_Fit]) -> Published | None:
    """Return the wheel of the best tag; of several builds the last one, as installers do."""
    best = max(fits, key=lambda fit: (-fit[0], fit[1]), default=None)
    return best[2] if best else None


def _end(package: str, releases: Mapping[Version, _Release], text: str, name: str) -> Version:
    """Return the version that an end names."""
    if (day := _day(text)) is not None:
        return _night_of_day(package, releases, day, name)
    try:
        wanted = Version(text)
    except InvalidVersion:
        raise BadInputError(
            f"{name}: '{text}' is no version of {package}; right is one like {_example(releases)}",
            field=name,
            value=text,
        ) from None
    if wanted in releases:
        return releases[wanted].version
    # ``2.1.0`` for an index that only has ``2.1.0+cpu``.
    same = [version for version in releases if Version(version.public) == wanted]
    if len(same) == 1:
        return same[0]
    known = sorted(release.version for release in releases.values() if release.best)
    at = bisect_left(known, wanted)
    near = [str(version) for version in [*known[max(0, at - _NEAR) : at], *known[at : at + _NEAR]]]
    hint = f"; nearest are {', '.join(near)}" if near else "; it has none that fit here"
    raise NotFoundError(
        f"{name}: the index has no version {wanted} of {package}{hint}", field=name, value=text
    )


def _day(text: str) -> date | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        return None


def _night_of_day(
    package: str, releases: Mapping[Version, _Release], day: date, name: str
) -> Version:
    """Return the nightly of a day; of several versions the last one."""
    usable = [version for version, release in releases.items() if release.best]
    nights = sorted((night, version) for version in usable if (night := _night(version)))
    same = [version for night, version in nights if night == day]
    if same:
        return same[-1]
    at = bisect_left([night for night, _version in nights], day)
    near = [str(night) for night, _version in nights[max(0, at - _NEAR) : at + _NEAR]]
    hint = f"; nearest are {', '.join(near)}" if near else "; it has no nightlies that fit here"
    raise NotFoundError(
        f"{name}: the index has no nightly of {day} of {package}{hint}", field=name, value=str(day)
    )


def _end_wheel(package: str, release: _Release, name: str, target: Target) -> tuple[Published, str]:
    """Return an end's wheel, and a note if it is yanked: who names a version gets it."""
    if best := release.best:
        return best, ""
    if yanked := _pick(release.yanked):
        return yanked, f"the {name} end {release.version} is {release.why_not(target)}"
    raise BadInputError(
        f"{name}: {package} {release.version}: {release.why_not(target)}",
        field=name,
        value=str(release.version),
    )


def _check_order(
    ends: Mapping[str, Version], first: str, last: str, find: Find, *, nightly: bool
) -> None:
    earlier, later = ends[first], ends[last]
    if earlier == later:
        raise BadInputError(
            f"good and bad are the same version {later}: there is nothing between them",
            field="bad",
            value=str(later),
        )
    if _key(earlier, nightly=nightly) > _key(later, nightly=nightly):
        hint = "find = first or all" if find is Find.FIX else "find = fix"
        raise BadInputError(
            f"{last} {later} is older than {first} {earlier}; swap them, or ask for {hint}",
            field=last,
            value=str(later),
        )


def _between(
    releases: Mapping[Version, _Release], first: Version, last: Version, *, nightly: bool
) -> Sequence[_Release]:
    """Return the releases strictly between the ends; among nightlies only nightlies, by date."""
    versions = [version for version in releases if not nightly or _night(version)]
    low, high = _key(first, nightly=nightly), _key(last, nightly=nightly)
    keys = sorted(_key(version, nightly=nightly) for version in versions)
    return [releases[version] for day, version in keys if low < (day, version) < high]


def _key(version: Version, *, nightly: bool) -> _Key:
    return (nightly and _night(version)) or date.min, version


def _night(version: Version) -> date | None:
    return night_of(str(version))


def _words(tags: Iterable[Tag], target: Target) -> str:
    """Say which wheels there are: the Pythons on this platform, or else the platforms."""
    here = {tag.interpreter for tag in tags if tag.platform in target.platforms}
    if here:
        return "those for " + ", ".join(sorted(here, key=lambda name: (len(name), name)))
    return "those for " + ", ".join(sorted({tag.platform for tag in tags}))


def _example(releases: Mapping[Version, _Release]) -> str:
    usable = sorted(release.version for release in releases.values() if release.best)
    return f"'{usable[-1]}'" if usable else "'1.2.3'"


def _utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
