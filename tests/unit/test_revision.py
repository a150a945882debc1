"""Revisions as text, as values and as digests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect.core.revision import (
    Action,
    Change,
    Revision,
    RevisionSyntaxError,
    parse_revision,
    picking,
    reverting,
)

_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_NUMBERS = st.none() | st.integers(1, 9)
_COMMITS = st.builds(Change, st.sampled_from([Action.REVERT, Action.PICK]), _WORDS, _NUMBERS)
_PATCHES = st.builds(Change, st.just(Action.PATCH), _WORDS)
_REVISIONS = st.builds(Revision, _WORDS, st.lists(_COMMITS | _PATCHES, max_size=5).map(tuple))


@given(_REVISIONS)
def test_what_is_written_is_read_back(revision: Revision) -> None:
    """parse(str(revision)) is the revision, whatever its names contain."""
    assert parse_revision(str(revision)) == revision


@given(_REVISIONS, _REVISIONS)
def test_digests_tell_revisions_apart(one: Revision, other: Revision) -> None:
    """Equal revisions have equal digests, and different ones different digests."""
    assert (one.digest == other.digest) == (one == other)


def test_a_revision_reads_like_a_sentence() -> None:
    """The written form is what a person would type."""
    text = "r2.0 revert ef9f0e8 pick 96a407a parent 1 patch 'my fix.diff'"
    revision = parse_revision(text)
    assert revision == Revision(
        "r2.0",
        (
            Change(Action.REVERT, "ef9f0e8"),
            Change(Action.PICK, "96a407a", 1),
            Change(Action.PATCH, "my fix.diff"),
        ),
    )
    assert str(revision) == text
    assert str(reverting("v1", "a", "b")) == "v1 revert a revert b"
    assert str(picking("v1", "a").then(Change(Action.REVERT, "c"))) == "v1 pick a revert c"


def test_a_commit_may_be_called_like_a_keyword() -> None:
    """A branch named 'revert' or 'parent' is no trouble where a commit is due."""
    assert parse_revision("revert pick parent parent 2") == Revision(
        "revert", (Change(Action.PICK, "parent", 2),)
    )


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("", "begins with its base"),
        ("  ", "begins with its base"),
        ("v1 revrt abc", "'revrt' where one of 'revert', 'pick', 'patch'"),
        ("v1 revert", "'revert' needs a commit"),
        ("v1 pick ''", "'pick' needs a commit"),
        ("v1 pick a parent", "a number from 1, got ''"),
        ("v1 pick a parent 0", "a number from 1, got '0'"),
        ("v1 pick a parent -1", "a number from 1, got '-1'"),
        ("v1 pick a parent ²", "a number from 1"),
        ("v1 pick a parent 1 parent 2", "its parent twice"),
        ("v1 patch f parent 1", "a patch has no parent"),
        ("v1 parent 1", "'parent' where one of"),
        ("v1 pick 'a", "no closing quotation"),
    ],
)
def test_what_is_no_revision_is_refused(text: str, telling: str) -> None:
    """The error names the word at fault and what may stand there."""
    with pytest.raises(RevisionSyntaxError, match=telling):
        parse_revision(text)


def test_renaming_leaves_patches_alone() -> None:
    """Short names become full ones; the name of a patch is no commit."""
    revision = parse_revision("v1 revert ab patch ab")
    assert str(revision.renamed(lambda name: name * 2)) == "v1v1 revert abab patch ab"
