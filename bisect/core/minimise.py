"""Finding a smallest set that does it: delta debugging, as a pure function of the answers so far.

Whether a set of commits, reverted together, restores a value takes builds and runs to answer, and
the process may be killed between two answers. So the search is replayed from what is stored: the
same answers lead to the same next question.

The result is 1-minimal: no single member can be left out. Members that work only together are
found, because sets shrink from the whole, never grow from single members (Zeller and Hildebrandt,
"Simplifying and Isolating Failure-Inducing Input", 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class Answer(StrEnum):
    """Whether a set does it."""

    HOLDS = "holds"
    FAILS = "fails"
    #: It can't be told: the set conflicts, does not build, or the points don't decide it.
    UNRESOLVED = "unresolved"


#: A set, as ascending places in the list of items.
Subset = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """The answer for this set is needed next."""

    subset: Subset


@dataclass(frozen=True, slots=True)
class Found:
    """The search is over."""

    #: The smallest set found, empty if not even the whole list holds.
    subset: Subset
    holds: bool
    #: Sets that could not be told and might have been smaller.
    unresolved: tuple[Subset, ...] = ()


def next_question(
    count: int, answers: Mapping[Subset, Answer], *, monotone: bool = True
) -> Ask | Found:
    """Return what to ask next about ``count`` items, or what was found.

    Args:
        answers: of all sets asked so far; others may be there too, and save questions.
        monotone: what holds for a set also holds for every larger one, so that some answers follow
            from others. False asks about each set.
    """
    search = _shrink(tuple(range(count)))
    unresolved: list[Subset] = []
    answer: Answer | None = None
    while True:
        try:
            subset = next(search) if answer is None else search.send(answer)
        except StopIteration as end:
            found: Subset | None = end.value
            if found is None:
                return Found((), holds=False)
            smaller = tuple(dict.fromkeys(s for s in unresolved if len(s) < len(found)))
            return Found(found, holds=True, unresolved=smaller)
        answer = _known(subset, answers, monotone)
        if answer is None:
            return Ask(subset)
        if answer is Answer.UNRESOLVED:
            unresolved.append(subset)


def minimise(
    count: int, ask: Callable[[Subset], Answer], *, monotone: bool = True
) -> tuple[Found, dict[Subset, Answer]]:
    """Search to the end with a function that answers; return what was found and every answer."""
    answers: dict[Subset, Answer] = {}
    while isinstance(step := next_question(count, answers, monotone=monotone), Ask):
        answers[step.subset] = ask(step.subset)
    return step, answers


def _known(subset: Subset, answers: Mapping[Subset, Answer], monotone: bool) -> Answer | None:
    answer = answers.get(subset)
    if answer is not None or not monotone:
        return answer
    members = set(subset)
    for other, told in answers.items():
        if told is Answer.HOLDS and members.issuperset(other):
            return Answer.HOLDS
        if told is Answer.FAILS and members.issubset(other):
            return Answer.FAILS
    return None


def _shrink(items: Subset) -> Generator[Subset, Answer, Subset | None]:
    """Ask about the whole, then about parts and what is left without them, ever finer."""
    if not items or (yield items) is not Answer.HOLDS:
        return None
    parts = 2
    while len(items) > 1:
        chunks = _split(items, parts)
        rests = [tuple(i for i in items if i not in set(chunk)) for chunk in chunks]
        for size, tried in ((2, chunks), (max(parts - 1, 2), rests if parts > 2 else [])):
            smaller = yield from _first_that_holds(tried)
            if smaller is not None:
                items, parts = smaller, min(size, len(smaller))
                break
        else:
            if parts >= len(items):
                break
            parts = min(2 * parts, len(items))
    return items


def _first_that_holds(subsets: Sequence[Subset]) -> Generator[Subset, Answer, Subset | None]:
    for subset in subsets:
        if (yield subset) is Answer.HOLDS:
            return subset
    return None


def _split(items: Subset, parts: int) -> list[Subset]:
    ends = [len(items) * part // parts for part in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def prune(count: int, holds: Callable[[Subset], bool]) -> Subset:
    """Return a 1-minimal set by leaving out ever smaller runs of members until none can go.

    For cheap, certain questions where most of the work of an answer is shared with the one before:
    the last members go first, so that the beginning of the set stays the same longest.

    Args:
        holds: must be true of all ``count`` items.
    """
    kept = tuple(range(count))
    size = max(count // 2, 1)
    while True:
        before = kept
        for end in range(len(before), 0, -size):
            run = set(before[max(end - size, 0) : end])
            without = tuple(item for item in kept if item not in run)
            if len(without) < len(kept) and holds(without):
                kept = without
        if size == 1 and kept == before:
            return kept
        size = max(size // 2, 1)
