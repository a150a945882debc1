"""What may go when space is wanted: by age first, then the longest unused until the rest fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_DAY = 86_400.0


class Kind(StrEnum):
    """What is kept, and can be made again."""

    WHEEL = "wheel"
    TREE = "tree"
    BUILD_CACHE = "build-cache"
    IMAGE = "image"
    LOG = "log"
    ARTIFACT = "artifact"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is kept."""

    kind: Kind
    #: For people: a file's name, an image's tag.
    name: str
    #: Bytes.
    size: int
    #: Seconds since 1970.
    last_used: float
    #: What removes it: a path, an id.
    handle: str
    #: Why it must stay; empty: it need not.
    needed: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What may be kept of one kind."""

    #: Bytes; None: any number.
    size: int | None = None
    #: Days since it was last used; 0: any age.
    days: float = 0.0


@dataclass(frozen=True, slots=True)
class Removal:
    """One thing that goes, and why."""

    item: Item
    reason: str


def choose(items: Iterable[Item], limit: Limit, now: float) -> list[Removal]:
    """Return what goes of one kind, the longest unused first. What is needed never does.

    Args:
        items: all that is kept of the kind.
        limit: what may stay.
        now: seconds since 1970.
    """
    removals: list[Removal] = []
    left = []
    for item in sorted(items, key=lambda each: (each.last_used, each.name)):
        days = (now - item.last_used) / _DAY
        if limit.days and days > limit.days and not item.needed:
            removals.append(Removal(item, f"not used for {days:.0f} days"))
        else:
            left.append(item)
    if limit.size is None:
        return removals
    total = sum(item.size for item in left)
    for item in left:
        if total <= limit.size:
            break
        if not item.needed:
            removals.append(Removal(item, "more than may be kept of its kind"))
            total -= item.size
    return removals
