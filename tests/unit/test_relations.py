"""Relations read from messages, in the forms that TensorFlow's and other histories use."""

from __future__ import annotations

import pytest

from perfbisect.core.relations import (
    Deed,
    Mention,
    Naming,
    Relation,
    RelationKind,
    Said,
    changelist_of,
    pull_request_of,
    read_mentions,
    relate,
)

A, B, C, D = (letter * 40 for letter in "abcd")

_UNDO, _REDO, _PICK = Deed.UNDO, Deed.REDO, Deed.PICK
_SHA, _CL, _PR, _SUBJECT = Naming.SHA, Naming.CHANGELIST, Naming.PULL_REQUEST, Naming.SUBJECT


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"Automated rollback of commit {A}", [Mention(_UNDO, _SHA, A)]),
        ("Automated g4 rollback of changelist 190858242", [Mention(_UNDO, _CL, "190858242")]),
        ("Automated rollback of changelist 190858242.", [Mention(_UNDO, _CL, "190858242")]),
        (f"This reverts commit {A}.", [Mention(_UNDO, _SHA, A)]),
        (f"This reverts commit {A}, reversing", [Mention(_UNDO, _SHA, A)]),
        (f"This reverts commit {A}, reversing\nchanges made to {B}.", [Mention(_UNDO, _SHA, A)]),
        (f"Reverts {A}", [Mention(_UNDO, _SHA, A)]),
        ("Reverts changelist 668370165", [Mention(_UNDO, _CL, "668370165")]),
        ("Reverts cl/668370165", [Mention(_UNDO, _CL, "668370165")]),
        (f"Reverts {A} and {B}", [Mention(_UNDO, _SHA, A), Mention(_UNDO, _SHA, B)]),
        ("Reverts abcdef1, 89abcde", [Mention(_UNDO, _SHA, n) for n in ("abcdef1", "89abcde")]),
        ('Revert "Turn it on"', [Mention(_UNDO, _SUBJECT, "Turn it on")]),
        ('Revert "Revert "Turn it on""', [Mention(_UNDO, _SUBJECT, 'Revert "Turn it on"')]),
        ("Rollback of PR #29796", [Mention(_UNDO, _PR, "29796")]),
        ("Roll back #123", [Mention(_UNDO, _PR, "123")]),
        ("Rolling back commit 1234567 for now", [Mention(_UNDO, _SHA, "1234567")]),
        ("Partial rollback of #24", [Mention(_UNDO, _PR, "24", partial=True)]),
        ("This is a partial roll-forward of #24.", [Mention(_REDO, _PR, "24", partial=True)]),
        ("Roll forward #22076", [Mention(_REDO, _PR, "22076")]),
        (f"Rollforward of commit {A}", [Mention(_REDO, _SHA, A)]),
        (f"[ROLLFORWARD] {A}", [Mention(_REDO, _SHA, A)]),
        ('Reland "Turn it on"', [Mention(_REDO, _SUBJECT, "Turn it on")]),
        ("Re-land https://github.com/x/y/pull/21847", [Mention(_REDO, _PR, "21847")]),
        ("Reapply https://github.com/x/y/commit/1234567", [Mention(_REDO, _SHA, "1234567")]),
        (f"(cherry picked from commit {A})", [Mention(_PICK, _SHA, A)]),
        (f"Cherry-pick of {A}", [Mention(_PICK, _SHA, A)]),
        (f"* Reverts commit {A}", [Mention(_UNDO, _SHA, A)]),
    ],
)  # fmt: skip
def test_a_message_says_what_it_does_to_whom(line: str, expected: list[Mention]) -> None:
    """Each form in use is understood, in the subject and further down."""
    assert list(read_mentions(line)) == expected
    assert list(read_mentions(f"Subject\n\nSome text.\n{line}\n\nPiperOrigin-RevId: 1")) == expected


@pytest.mark.parametrize(
    "line",
    [
        "Revert to the old version of the test runner",
        "This can be reverted once #12 is fixed",
        "Unroll loops in commit 1234567",
        "Controller for 1234567",
        "Roll back",
        "Reverts",
        "Fix a bug introduced in commit 1234567",
        "Add rollback of transactions to the store",
        "Revert 12 lines",
        "rollback of commit deadbeef-and-more",
        "",
    ],
)
def test_other_talk_is_no_relation(line: str) -> None:
    """Words that only look alike say nothing about another commit."""
    assert read_mentions(line) == ()


def test_a_huge_message_is_read_in_bounded_time() -> None:
    """Only the beginning of a message and of its lines is looked at."""
    assert read_mentions("Reverts " + "a" * 10_000_000) == ()
    assert read_mentions("x\n" * 1000 + f"Reverts {A}") == ()
    assert read_mentions("_" * 300 + "partially " * 10_000) == ()


def test_names_of_a_commit_are_read_from_its_message() -> None:
    """Changelists and pull requests are found where exporters and forges write them."""
    assert changelist_of("x\n\nPiperOrigin-RevId: 262345\n") == "262345"
    assert changelist_of("x\n\nsee PiperOrigin-RevId: 262345\n") == ""
    assert pull_request_of("Merge pull request #17 from x/y\n\nText") == "17"
    assert pull_request_of("PR #18: Faster") == "18"
    assert pull_request_of("Faster (#19)") == "19"
    assert pull_request_of("Faster than #20 was") == ""


def _kinds(relations: tuple[Relation, ...]) -> list[tuple[str, str]]:
    return [(relation.kind.value, relation.commit) for relation in relations]


def test_a_rollback_is_told_on_both_sides() -> None:
    """The commit taken back knows by whom, and the other knows of whom."""
    found = relate([Said(A, "Fast"), Said(B, f"Automated rollback of commit {A}")])
    assert found == {
        A: (Relation(RelationKind.REVERTED_BY, B),),
        B: (Relation(RelationKind.ROLLBACK_OF, A),),
    }


def test_a_rollback_of_a_rollback_is_a_reland() -> None:
    """Chains are followed to their root, over any number of turns."""
    found = relate(
        [
            Said(A, "Fast"),
            Said(B, f"Automated rollback of commit {A}"),
            Said(C, f"Automated rollback of commit {B}"),
            Said(D, f"Roll back again\n\nReverts {C}"),
        ]
    )
    assert _kinds(found[A]) == [("reverted_by", B), ("relanded_as", C), ("reverted_by", D)]
    assert _kinds(found[B]) == [("rollback_of", A), ("reverted_by", C), ("relanded_as", D)]
    assert _kinds(found[D])[0] == ("rollback_of", C)


def test_a_sure_word_beats_a_likely_one() -> None:
    """A subject may mislead; where the SHA is given too, the relation is certain, and told once."""
    by_both = f'Revert "Fast"\n\nThis reverts commit {A}.'
    assert relate([Said(A, "Fast"), Said(B, by_both)])[A] == (
        Relation(RelationKind.REVERTED_BY, B),
    )
    assert relate([Said(A, "Fast"), Said(B, 'Revert "Fast"')])[A] == (
        Relation(RelationKind.REVERTED_BY, B, likely=True),
    )


def test_a_subject_means_the_last_commit_before_that_bears_it() -> None:
    """Of two commits with one subject, the nearer one is meant; later ones never."""
    found = relate([Said(A, "Fast"), Said(B, "Fast"), Said(C, 'Revert "Fast"'), Said(D, "Fast")])
    assert set(found) == {B, C}


def test_a_changelist_means_the_commit_exported_from_it() -> None:
    """Old TensorFlow rollbacks name changelists; trailers tell which commit that is."""
    found = relate(
        [
            Said(A, "Fast\n\nPiperOrigin-RevId: 190858242"),
            Said(
                B, "Automated g4 rollback of changelist 190858242\n\nPiperOrigin-RevId: 190878279"
            ),
        ]
    )
    assert found[A] == (Relation(RelationKind.REVERTED_BY, B),)


def test_short_names_must_be_unambiguous() -> None:
    """A beginning that fits two commits names neither."""
    twins = [Said("1234567a" + "0" * 32, "x"), Said("1234567b" + "0" * 32, "y")]
    assert relate([*twins, Said(C, "Reverts 1234567")]) == {}
    assert set(relate([*twins, Said(C, "Reverts 1234567b")])) == {twins[1].sha, C}


def test_cherry_picks_and_strangers() -> None:
    """A pick is told on both sides; a commit that is not at hand is left out."""
    found = relate([Said(A, "Fix"), Said(B, f"Fix\n\n(cherry picked from commit {A})")])
    assert _kinds(found[A]) == [("cherry_picked_as", B)]
    assert _kinds(found[B]) == [("cherry_picked_from", A)]
    assert relate([Said(B, f"(cherry picked from commit {A})")]) == {}
    assert relate([Said(A, f"Reverts {A}")]) == {}
