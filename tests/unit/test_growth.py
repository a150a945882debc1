"""Which pick set to try next, from the builds so far; and what a failing build misses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect.core.growth import (
    MOST_BUILDS,
    MOST_GROWTHS,
    Attempt,
    GaveUp,
    Grow,
    Settled,
    Try,
    Wait,
    next_step,
)
from perfbisect.core.missing import what_is_missing

_LETTERS = "abcdefgh"


def test_the_smallest_set_that_applies_is_the_answer_if_it_builds() -> None:
    """Nothing larger or smaller is tried."""
    assert next_step([Attempt(("a", "b"), None)]) == Wait()
    assert next_step([Attempt(("a", "b"), True)]) == Settled(0, smallest=True)


def test_a_set_that_does_not_build_grows_from_the_last_one() -> None:
    """Until there is nothing more to add, or often enough."""
    failed = [Attempt(("a",), False), Attempt(("a", "b"), False)]
    assert next_step(failed) == Grow(1)
    assert next_step(failed, "nothing") == GaveUp("nothing")
    many = [Attempt(("a",), False)] * (MOST_GROWTHS + 1)
    assert isinstance(next_step(many), GaveUp)


@given(
    st.sets(st.sampled_from(_LETTERS), min_size=1),
    st.sets(st.sampled_from(_LETTERS[2:]), max_size=2),
)
def test_what_the_build_does_not_need_is_dropped(first: set[str], needed: set[str]) -> None:
    """From the first set that builds to one from which nothing can go, within the bound."""
    start = tuple(sorted(first))

    def attempt(members: tuple[str, ...]) -> Attempt:
        return Attempt(members, needed <= set(members))

    attempts = [attempt(start)]
    if not attempts[0].builds:
        attempts.append(attempt(tuple(_LETTERS)))
    while isinstance(step := next_step(attempts), Try):
        assert step.members not in [each.members for each in attempts]
        attempts.append(attempt(step.members))
    assert isinstance(step, Settled)
    assert len(attempts) <= MOST_BUILDS
    if step.smallest:
        assert set(attempts[step.index].members) == first | needed


def test_a_set_that_does_not_apply_is_not_taken_for_one_that_does_not_build() -> None:
    """It could not be told, and so the answer is not called the smallest."""
    attempts = [
        Attempt(("a",), False),
        Attempt(("a", "b", "c"), True),
        Attempt(("a", "b"), False, applies=False),
        Attempt(("a", "c"), False),
    ]
    assert next_step(attempts) == Settled(1, smallest=False)


def test_the_builds_allowed_are_kept() -> None:
    """With many spare commits the search ends with what it has."""
    whole = tuple(f"c{number:02}" for number in range(40))
    attempts = [Attempt(whole[:1], False), Attempt(whole, True)]
    while isinstance(step := next_step(attempts), Try):
        attempts.append(Attempt(step.members, False))
    assert step == Settled(1, smallest=False)
    assert len(attempts) == MOST_BUILDS


@pytest.mark.parametrize(
    ("line", "names", "paths"),
    [
        ("a.cc:3:5: error: ‘MakeFlags’ was not declared in this scope", ("MakeFlags",), ()),
        ("undefined reference to `tf::Graph::Copy(int, char)'", ("Copy",), ()),
        ("error: 'struct Opts' has no member named 'fast_path'", ("Opts", "fast_path"), ()),
        ("fatal error: core/util/flags.h: No such file or directory", (), ("core/util/flags.h",)),
        ("ERROR: no such target '//core/util:env_var': not declared", ("env_var",), ()),
        ("ImportError: cannot import name 'helper' from 'a.b'", ("helper",), ()),
        ("ModuleNotFoundError: No module named 'a.late'", ("late",), ("a/late.py",)),
        ("make: *** [all] Error 2", (), ()),
    ],
)
def test_what_a_build_misses_is_read_from_its_lines(
    line: str, names: tuple[str, ...], paths: tuple[str, ...]
) -> None:
    """Compilers, linkers, Bazel and Python: the name that counts, without its surroundings."""
    found = what_is_missing([line])
    assert (found.names, found.paths) == (names, paths)
