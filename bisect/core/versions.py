"""Published wheels on a commit axis, and what else changed between two of them. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

#: ``.dev20231003``, also with hours and minutes behind the day.
_NIGHT = re.compile(r"[._-]?dev(\d{8})(?:\d{2}|\d{4}|\d{6})?(?![0-9])")
_DESCRIBED = re.compile(r"-\d+-g([0-9a-f]{7,64})$")
_BARE = re.compile(r"g?([0-9a-f]{7,64})")


def night_of(version: str) -> date | None:
    """Return the day in a nightly's version (``2.15.0.dev20231003``); None: it is no nightly."""
    found = _NIGHT.search(version)
    if not found:
        return None
    try:
        return datetime.strptime(found[1], "%Y%m%d").date()
    except ValueError:
        return None


def commit_prefix(git_version: str) -> str | None:
    """Return the (short) SHA in a git version, or None.

    Args:
        git_version: what ``git describe`` prints (``v2.14.0-rc1-21-g4dacf3f368e``), or a SHA.
    """
    found = _DESCRIBED.search(git_version) or _BARE.fullmatch(git_version)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class DependencyChange:
    """A dependency that is another one after a step."""

    name: str
    #: Version before and after; None: it is not installed.
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.name} {self.after} added"
        if self.after is None:
            return f"{self.name} {self.before} removed"
        return f"{self.name} {self.before} → {self.after}"


def also_changed(
    before: Mapping[str, str], after: Mapping[str, str], *, without: Collection[str] = ()
) -> list[DependencyChange]:
    """Return how the installed distributions differ, by name.

    Args:
        before: name -> version as installed on the earlier side of a step.
        after: the same on the later side.
        without: distributions that are meant to differ: the one that is bisected.
    """
    left_out = {_canonical(name) for name in without}
    earlier = {_canonical(name): version for name, version in before.items()}
    later = {_canonical(name): version for name, version in after.items()}
    return [
        DependencyChange(name, earlier.get(name), later.get(name))
        for name in sorted({*earlier, *later} - left_out)
        if earlier.get(name) != later.get(name)
    ]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, slots=True)
class StampedWheel:
    """A published wheel and what it says about the commit it was built from."""

    #: Whatever names it to the caller: its version, file name or digest.
    name: str
    #: As read from the wheel; None: it says nothing.
    git_version: str | None
    uploaded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A wheel that is not on the axis."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Wheels on a commit axis."""

    #: position -> name of the wheel built from that commit.
    wheels: Mapping[int, str]
    #: In the order given.
    unplaced: tuple[Unplaced, ...]


def place_wheels(
    shas: Sequence[str], dates: Sequence[datetime], wheels: Sequence[StampedWheel]
) -> Placement:
    """Put published wheels on the positions of the commits they were built from.

    A wheel is placed by the SHA that it carries and by nothing else: a date proves no commit.
    Where several wheels are of one commit, the first one given is taken.

    Args:
        shas: full SHAs of the candidates, by position.
        dates: when they were committed, by position; only for the words of reasons.
        wheels: what was read from the wheels.
    """
    by_start: dict[str, list[int]] = defaultdict(list)
    for position, sha in enumerate(shas):
        by_start[sha[:7]].append(position)
    placed: dict[int, str] = {}
    unplaced = []
    for wheel in wheels:
        prefix = commit_prefix(wheel.git_version or "")
        near = by_start.get(prefix[:7], []) if prefix else []
        fits = [position for position in near if shas[position].startswith(prefix or "")]
        if len(fits) == 1 and fits[0] not in placed:
            placed[fits[0]] = wheel.name
            continue
        others = [placed[position] for position in fits if position in placed]
        unplaced.append(Unplaced(wheel.name, _reason(wheel, prefix, len(fits), others, dates)))
    return Placement(placed, tuple(unplaced))


def _reason(
    wheel: StampedWheel,
    prefix: str | None,
    fits: int,
    others: Sequence[str],
    dates: Sequence[datetime],
) -> str:
    """Say why a wheel has no place."""
    if wheel.git_version is None:
        return "the wheel does not say which commit it was built from"
    if prefix is None:
        return f"no commit can be read from its version '{wheel.git_version}'"
    if fits > 1:
        return f"{fits} commits of the axis start with {prefix}"
    if fits == 1:
        return f"built from the same commit as {others[0]}"
    when = wheel.uploaded_at
    if when is not None and dates and when < min(dates):
        return f"built from {prefix}, before the axis begins: published {when:%Y-%m-%d}"
    if when is not None and dates and when > max(dates):
        return f"built from {prefix}, not on the axis: published {when:%Y-%m-%d}, after its end"
    return f"built from {prefix}, which is not on the axis (on another branch?)"
