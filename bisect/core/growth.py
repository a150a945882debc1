"""A set of commits applies, but does it build? Which set to try next, from the builds so far.

As in ``minimise``, the search is replayed from what is stored: the same attempts lead to the same
next step. The set grows by what the failing build misses until one builds; then what came along
only for the build is dropped again as far as the builds allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfbisect.core.minimise import Answer, Ask, Subset, next_question

#: Sets that are built, at most, and times that the set grows.
MOST_BUILDS = 12
MOST_GROWTHS = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """A set that was tried."""

    #: Commits, oldest first.
    members: tuple[str, ...]
    #: None: not known yet.
    builds: bool | None
    #: Whether it applies; one that does not is not built.
    applies: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """A build is still to come."""


@dataclass(frozen=True, slots=True)
class Grow:
    """This attempt does not build: find what it misses."""

    index: int


@dataclass(frozen=True, slots=True)
class Try:
    """Build this set next."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """This attempt builds and is the answer."""

    index: int
    #: False: the builds allowed ran out, or a smaller set could not be told.
    smallest: bool


@dataclass(frozen=True, slots=True)
class GaveUp:
    """No set that builds was found."""

    why: str


Step = Wait | Grow | Try | Settled | GaveUp


def next_step(attempts: Sequence[Attempt], nothing_more: str = "") -> Step:
    """Return what to do after these attempts, the first of which is the smallest that applies.

    Args:
        nothing_more: why the last attempt can't grow any further; empty if that was not asked yet.
    """
    if any(attempt.builds is None for attempt in attempts):
        return Wait()
    good = [index for index, attempt in enumerate(attempts) if attempt.builds]
    if good:
        return _smaller(attempts, good[0])
    if nothing_more:
        return GaveUp(nothing_more)
    if len(attempts) > MOST_GROWTHS:
        return GaveUp(f"none of {len(attempts)} sets builds")
    return Grow(len(attempts) - 1)


def _smaller(attempts: Sequence[Attempt], first_good: int) -> Step:
    """Drop what the first set that builds has more than the smallest that applies."""
    needed, whole = set(attempts[0].members), attempts[first_good].members
    spare = [member for member in whole if member not in needed]
    answers: dict[Subset, Answer] = {}
    for attempt in attempts:
        places = tuple(place for place, member in enumerate(spare) if member in attempt.members)
        if set(attempt.members) <= set(whole):
            answers[places] = _answer(attempt)
    step = next_question(len(spare), answers, monotone=False) if spare else None
    if isinstance(step, Ask):
        if sum(attempt.applies for attempt in attempts) >= MOST_BUILDS:
            return Settled(_least(attempts), smallest=False)
        chosen = {spare[place] for place in step.subset}
        return Try(tuple(m for m in whole if m in needed or m in chosen))
    return Settled(_least(attempts), smallest=step is None or not step.unresolved)


def _answer(attempt: Attempt) -> Answer:
    if not attempt.applies:
        return Answer.UNRESOLVED
    return Answer.HOLDS if attempt.builds else Answer.FAILS


def _least(attempts: Sequence[Attempt]) -> int:
    good = [index for index, attempt in enumerate(attempts) if attempt.builds]
    return min(good, key=lambda index: len(attempts[index].members))
