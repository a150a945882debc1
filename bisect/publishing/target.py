"""Which wheels fit: a Python and a platform."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags, sys_tags

from perfbisect.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Target:
    """A Python on a platform."""

    #: Supported tags, the best first.
    tags: tuple[Tag, ...]
    #: Version of the Python, e.g. ``3.11.4``.
    python: str
    _ranks: dict[Tag, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ranks = {tag: rank for rank, tag in reversed([*enumerate(self.tags)])}
        object.__setattr__(self, "_ranks", ranks)

    @classmethod
    def here(cls) -> Self:
        """Return this very interpreter."""
        return cls(tuple(sys_tags()), platform.python_version())

    @classmethod
    def of_python(cls, version: str) -> Self:
        """Return CPython of another version on this platform.

        Args:
            version: ``3.9`` or ``3.9.18``.

        Raises:
            BadInputError: no such form.
        """
        found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,9})?", version)
        if not found:
            raise BadInputError(
                f"python: '{version}' is not a version like '3.9'", field="python", value=version
            )
        pair = (int(found[1]), int(found[2]))
        interpreter = f"cp{pair[0]}{pair[1]}"
        platforms = list(platform_tags())
        tags = [
            *cpython_tags(pair, platforms=platforms),
            *compatible_tags(pair, interpreter, platforms),
        ]
        return cls(tuple(tags), version)

    @property
    def platforms(self) -> frozenset[str]:
        """Every platform that wheels may be for."""
        return frozenset(tag.platform for tag in self.tags)

    def rank(self, tags: Iterable[Tag]) -> int | None:
        """Return how well a wheel of these tags fits, 0 the best; None: not at all."""
        return min((self._ranks[tag] for tag in tags if tag in self._ranks), default=None)

    def allows(self, requires_python: str) -> bool:
        """Return whether a wheel's ``requires-python`` lets this Python in."""
        try:
            return SpecifierSet(requires_python).contains(self.python, prereleases=True)
        except InvalidSpecifier:
            return True  # as installers do: what can't be read forbids nothing

    def __str__(self) -> str:
        best = self.tags[0]
        return f"{best.interpreter} on {best.platform}"
