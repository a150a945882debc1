"""How far a build is, as its log tells: ``[1,234 / 20,001] Compiling …`` (Bazel), ``[12/345]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COUNT = re.compile(r"^\[\s*([0-9][0-9,]{0,17})\s*/\s*([0-9][0-9,]{0,17})\]", re.MULTILINE)

#: Below this share the speed so far says nothing.
_TOO_EARLY = 0.02
#: Cells of a bar.
_CELLS = 24


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Steps done, and known so far: the latter grows while Bazel still looks around."""

    done: int
    total: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0


def read_progress(log: str) -> BuildProgress | None:
    """Return what the end of a log tells last; None: nothing."""
    last = None
    for found in _COUNT.finditer(log):
        last = found
    if last is None:
        return None
    done, total = (int(group.replace(",", "")) for group in last.groups())
    return BuildProgress(done, total) if total else None


def seconds_left(
    progress: BuildProgress, elapsed: float, usual: float | None = None
) -> float | None:
    """Return about how long a build will still take; None where nothing can be said.

    Args:
        progress: so far.
        elapsed: seconds since it began.
        usual: seconds that such builds took; believed as long as the build itself tells little.
    """
    by_usual = None if usual is None else max(usual - elapsed, 0.0)
    if progress.share < _TOO_EARLY:
        return by_usual
    by_speed = elapsed * (1 - progress.share) / progress.share
    if by_usual is None:
        return by_speed
    # The further it is, the more it knows better than others before it.
    return progress.share * by_speed + (1 - progress.share) * by_usual


def bar(share: float, cells: int = _CELLS) -> str:
    """Return a bar of characters that every terminal has: ``[######......]``."""
    full = round(min(max(share, 0.0), 1.0) * cells)
    return f"[{'#' * full}{'.' * (cells - full)}]"
