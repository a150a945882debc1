"""How long a bisection will still take: a rough word, from what is in doubt and what work took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

#: Bits of doubt that measuring one commit removes, about.
BITS_A_COMMIT = 0.8
#: Runs of a commit that the search measures, and fresh runs that verify a step, about.
SEARCH_RUNS, VERIFY_RUNS = 2, 8
#: A place is settled when its probability is beyond this, or below the opposite.
_SETTLED = 0.98


class Timed(Protocol):
    """A build or a run."""

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it goes on."""

    @property
    def state(self) -> str:
        """State as a word."""


def seconds_left(
    belief: Mapping[str, Any] | None,
    verified: int,
    builds: Iterable[Timed],
    runs: Iterable[Timed],
) -> float | None:
    """Return about how many seconds of work are left until the steps are placed and verified.

    None where nothing can be said: nothing is believed yet, or nothing was run.

    Args:
        belief: what the points say, as stored.
        verified: steps that are verified already.
    """
    run = _typical(runs)
    if belief is None or run is None:
        return None
    shares = [float(share) for _, share in belief.get("step_probability") or []]
    if not shares:
        return None
    commits = math.ceil(doubt(shares) / BITS_A_COMMIT)
    steps = max(round(sum(shares)), 1)
    build = _typical(builds) or 0.0
    search = commits * (build + SEARCH_RUNS * run)
    return search + max(steps - verified, 0) * VERIFY_RUNS * run


def doubt(shares: Sequence[float]) -> float:
    """Return how many bits are missing to know where the steps are."""
    return sum(-share * math.log2(share) for share in shares if 0 < share < _SETTLED)


def _typical(works: Iterable[Timed]) -> float | None:
    """Return how long a work takes that succeeds."""
    took = [work.seconds for work in works if work.state == "succeeded" and work.seconds]
    return sum(took) / len(took) if took else None
