"""Delta debugging: minimal sets, interactions, answers that can't be told, and replay."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect.core.minimise import (
    Answer,
    Ask,
    Found,
    Subset,
    minimise,
    next_question,
    prune,
)

_NEEDED = st.sets(st.integers(0, 11), min_size=1)


def _needs(*needed: int):  # type: ignore[no-untyped-def]
    def ask(subset: Subset) -> Answer:
        return Answer.HOLDS if set(needed) <= set(subset) else Answer.FAILS

    return ask


@given(_NEEDED, st.booleans())
def test_exactly_the_needed_members_are_found(needed: set[int], monotone: bool) -> None:
    """Whatever must go together is found together, and nothing else."""
    found, _ = minimise(12, _needs(*needed), monotone=monotone)
    assert found == Found(tuple(sorted(needed)), holds=True)


@given(_NEEDED)
def test_pruning_finds_the_needed_members_too(needed: set[int]) -> None:
    """Leaving out one at a time gives the same answer where the question is certain."""
    assert prune(12, lambda subset: needed <= set(subset)) == tuple(sorted(needed))


def test_two_commits_that_only_restore_together_are_found() -> None:
    """A alone does nothing, B alone does nothing, A and B restore."""
    found, answers = minimise(8, _needs(2, 6))
    assert found.subset == (2, 6)
    assert answers[(2, 6)] is Answer.HOLDS
    assert len(answers) < 20


def test_one_of_many_takes_few_questions() -> None:
    """A single culprit among 64 is found by halving."""
    _, answers = minimise(64, _needs(37))
    assert len(answers) <= 14


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_whole_that_does_not_hold_ends_the_search(count: int) -> None:
    """If not even all of them do it, nothing smaller is tried."""
    found, answers = minimise(count, lambda subset: Answer.FAILS)
    assert found == Found((), holds=False)
    assert len(answers) == min(count, 1)


@given(_NEEDED, st.randoms(use_true_random=False))
def test_what_can_not_be_told_never_makes_the_result_wrong(
    needed: set[int], chance: random.Random
) -> None:
    """Conflicting subsets may cost minimality, never truth, and are reported where they might."""
    told: dict[Subset, Answer] = {tuple(range(12)): Answer.HOLDS}

    def ask(subset: Subset) -> Answer:
        if subset not in told:
            unresolved = chance.random() < 0.3
            told[subset] = Answer.UNRESOLVED if unresolved else _needs(*needed)(subset)
        return told[subset]

    found, _ = minimise(12, ask)
    assert needed <= set(found.subset)
    for item in set(found.subset) - needed:
        without = tuple(other for other in found.subset if other != item)
        assert told.get(without) is Answer.UNRESOLVED
        assert without in found.unresolved


@given(_NEEDED, st.integers(0, 30))
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(needed: set[int], stop: int) -> None:
    """The next question follows from the stored answers alone."""
    _, answers = minimise(12, _needs(*needed))
    first = dict(list(answers.items())[:stop])
    step = next_question(12, first)
    if stop < len(answers):
        assert step == Ask(list(answers)[stop])
    else:
        assert step == Found(tuple(sorted(needed)), holds=True)


def test_answers_that_follow_from_others_are_not_asked_for() -> None:
    """What was measured for other reasons (the proof by revert, say) saves questions."""
    proven = {(1,): Answer.HOLDS, (0, 2, 3): Answer.FAILS}
    assert next_question(4, proven) == Found((1,), holds=True)
    assert next_question(4, proven, monotone=False) == Ask((0, 1, 2, 3))
