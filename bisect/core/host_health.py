"""Whether a host still measures what it did: repeats of the same wheels, early against late."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: The newest repeats, which are compared with those before.
WINDOW = 20
#: Fewer say nothing: of the newest, of those before all together, and of those before of one wheel.
FEWEST_LATE = 6
FEWEST_EARLY = 10
FEWEST_OF_WHEEL = 3
#: A host drifts when its values moved by more than this, relative …
DRIFT = 0.03
#: … and by more than so many standard errors.
ERRORS = 5.0
#: Share of rejected runs at which nothing is left of that part of the score.
REJECTED = 0.2

#: Scale of a normal distribution over its median absolute deviation; and how much wider than a
#: mean's the error of a median is.
_MAD = 1.4826
_MEDIAN = 1.2533
#: Noise can't be told to be less than that.
_LEAST_NOISE = 1e-4


@dataclass(frozen=True, slots=True)
class Repeat:
    """One value of a wheel by a benchmark, on one host."""

    #: Names wheel and benchmark.
    group: str
    #: Seconds on any clock; the order counts.
    at: float
    #: Logarithm of the value.
    value: float


@dataclass(frozen=True, slots=True)
class Health:
    """What repeats tell of a host."""

    #: 100: as good as ever; drift takes 50 of it, noise and rejected runs 25 each.
    score: int
    #: By how much its values moved, relative, and the standard error of that.
    drift: float
    error: float
    #: Noise of late over noise before.
    noise: float
    #: Share of the latest runs that were rejected.
    rejected: float
    #: Late repeats that were compared.
    repeats: int

    @property
    def drifting(self) -> bool:
        """Whether its values moved, beyond doubt and by more than is harmless."""
        return abs(self.drift) > max(DRIFT, ERRORS * self.error)

    @property
    def reason(self) -> str:
        """Why it must not measure, for people; empty: it may."""
        if not self.drifting:
            return ""
        return (
            f"the same wheels measure {self.drift:+.1%} (± {self.error:.1%}) in its last "
            f"{self.repeats} repeats"
        )


def judge(repeats: Iterable[Repeat], rejected: float) -> Health | None:
    """Compare the newest repeats with those before; None: there are too few of either.

    Only wheels measured before and of late count, each against its own median: what differs between
    wheels is what bisections look for.

    Args:
        rejected: share of the latest runs that were rejected.
    """
    ordered = sorted(repeats, key=lambda each: each.at)
    late, early = _split(ordered)
    if len(late) < FEWEST_LATE or sum(map(len, early.values())) < FEWEST_EARLY:
        return None
    medians = {group: statistics.median(values) for group, values in early.items()}
    before = [value - medians[group] for group, values in early.items() for value in values]
    moved = [each.value - medians[each.group] for each in late]
    drift = statistics.median(moved)
    scale = _scale(before)
    noise = _scale([value - drift for value in moved]) / scale
    error = _error(Counter(each.group for each in late), early, scale, noise)
    relative = math.expm1(drift)
    return Health(
        score=_score(relative, error, noise, rejected),
        drift=relative,
        error=error,
        noise=noise,
        rejected=rejected,
        repeats=len(late),
    )


def _split(ordered: Sequence[Repeat]) -> tuple[list[Repeat], Mapping[str, list[float]]]:
    """Return the newest repeats of wheels that were measured enough before, and those before.

    The window slides back until nothing newer is left to compare: a wheel that is new to the host
    tells nothing yet.
    """
    counts = Counter(each.group for each in ordered)
    known = [each for each in ordered if counts[each.group] > FEWEST_OF_WHEEL]
    late, rest = known[-WINDOW:], known[:-WINDOW]
    early: dict[str, list[float]] = defaultdict(list)
    for each in rest:
        early[each.group].append(each.value)
    early = {group: values for group, values in early.items() if len(values) >= FEWEST_OF_WHEEL}
    return [each for each in late if each.group in early], early


def _scale(residuals: Sequence[float]) -> float:
    return max(_MAD * statistics.median(map(abs, residuals)), _LEAST_NOISE)


def _error(
    late: Mapping[str, int], early: Mapping[str, Sequence[float]], scale: float, noise: float
) -> float:
    """Return the standard error of the drift: of the late values, and of what they stand against.

    Args:
        late: how many late values each wheel has.
        early: the values of each wheel before.
    """
    total = sum(late.values())
    own = (scale * max(noise, 1.0)) ** 2 / total
    references = sum(
        (count / total) ** 2 * scale**2 / len(early[group]) for group, count in late.items()
    )
    return _MEDIAN * math.sqrt(own + references)


def _score(drift: float, error: float, noise: float, rejected: float) -> int:
    # A drift within two errors is none that is known.
    known = max(0.0, abs(drift) - 2 * error)
    lost = (
        50 * min(1.0, known / DRIFT)
        + 25 * min(1.0, max(0.0, noise - 1.5))
        + 25 * min(1.0, rejected / REJECTED)
    )
    return round(100 - lost)
