"""How much a host's values spread although nothing changed: repeats of the same wheel (A/A)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.store.database import now
from perfbisect.store.tables import BenchmarkRow, PointRow

#: Only what was measured lately: hosts change.
LATELY = timedelta(days=30)
#: Points that are looked at, the newest.
MOST_POINTS = 20_000
#: Fewer repeats say nothing.
FEWEST_REPEATS = 4
#: Scale of a normal distribution over its median absolute deviation.
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Noise:
    """What repeats of one benchmark on one host tell."""

    host: str
    benchmark: str
    #: Standard deviation of one run, relative; not moved by a few runs that are far too slow.
    scale: float
    #: Pairs of values that could differ only by noise, and of how many wheels.
    repeats: int
    wheels: int
    #: Share of runs further than five scales from the median of their wheel.
    outliers: float


def host_noise(session: Session) -> list[Noise]:
    """Return the noise of each host and benchmark with enough repeats, by host and benchmark."""
    rows = session.execute(
        select(PointRow.host, BenchmarkRow.name, PointRow.wheel_id, PointRow.value)
        .join(BenchmarkRow, BenchmarkRow.digest == PointRow.benchmark_digest)
        .where(PointRow.rejected == "", PointRow.measured_at >= now() - LATELY)
        .order_by(PointRow.id.desc())
        .limit(MOST_POINTS)
    )
    by_wheel: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for host, benchmark, wheel, value in rows:
        if value > 0:
            by_wheel[host, benchmark][wheel].append(math.log(value))
    found = []
    for (host, benchmark), wheels in sorted(by_wheel.items()):
        noise = noise_of(host, benchmark, wheels.values())
        if noise is not None:
            found.append(noise)
    return found


def noise_of(host: str, benchmark: str, wheels: Iterable[list[float]]) -> Noise | None:
    """Return what groups of logarithms of repeated values tell; None where they are too few."""
    groups = [values for values in wheels if len(values) > 1]
    # Differences within a wheel are free of its level; medians of few values would not be.
    differences = [abs(a - b) for values in groups for a, b in pairwise(values)]
    if len(differences) < FEWEST_REPEATS:
        return None
    scale = _MAD * statistics.median(differences) / math.sqrt(2)
    values = [value - statistics.median(group) for group in groups for value in group]
    far = sum(abs(value) > 5 * scale for value in values) if scale else 0
    return Noise(host, benchmark, scale, len(differences), len(groups), far / len(values))
