"""Published wheels as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, Self

from perfbisect.core.versions import night_of


@dataclass(frozen=True, slots=True)
class Published:
    """One wheel file of an index."""

    #: Canonical name of the project.
    package: str
    #: Normalised version.
    version: str
    filename: str
    #: Where the file is; without credentials.
    url: str
    #: Hexadecimal, in lower case.
    sha256: str
    #: Bytes; None where the index does not tell.
    size: int | None = None
    #: When the index received it, in UTC; None where the index does not tell.
    upload_time: datetime | None = None
    #: Version specifier of the Pythons it is for; empty: any.
    requires_python: str = ""

    @property
    def night(self) -> date | None:
        """The day of a nightly; None: it is no nightly."""
        return night_of(self.version)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; ``from_dict`` reads it back."""
        uploaded = self.upload_time.isoformat() if self.upload_time else None
        return {**asdict(self), "upload_time": uploaded}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return what ``to_dict`` wrote."""
        uploaded = stored["upload_time"]
        when = datetime.fromisoformat(uploaded) if uploaded else None
        return cls(**{**stored, "upload_time": when})


@dataclass(frozen=True, slots=True)
class Skipped:
    """A version between the ends that is not on the axis."""

    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class PublishedRange:
    """The published wheels of an axis."""

    #: The earlier end first, both ends included, one wheel per version.
    wheels: tuple[Published, ...]
    #: In the same order.
    skipped: tuple[Skipped, ...] = ()
    #: What people should know about the ends.
    notes: tuple[str, ...] = ()
    #: Canonical name of the project.
    package: str = ""
