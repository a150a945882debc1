"""Checks of this machine, by subject. Each returns one `Check` and raises nothing.

They leave no trace and start nothing that outlives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Status(StrEnum):
    """What a check found."""

    OK = "ok"
    #: It works, but something will be slow, noisy or short.
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's."""

    name: str
    status: Status
    #: What was found, in a few words.
    detail: str
    #: What to do about it; empty where nothing needs doing.
    advice: str = ""
    #: Nothing works without it; the rest is needed for some recipes or benchmarks only.
    required: bool = False


def existing_parent(path: Path) -> Path:
    """Return the nearest directory at or above ``path`` that is there."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.is_dir())


def dotted(version: Sequence[int]) -> str:
    """Return a version as people write it."""
    return ".".join(str(part) for part in version)
