"""Who reverted, relanded and picked a commit, read from a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.repositories import Workshop

from perfbisect.core.relations import Relation, RelationKind
from perfbisect.history import Mirror, open_mirror


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """master: base, fast, other, rollback, reland; r1 from base: fast picked by hand."""
    made = Workshop(tmp_path / "source")
    made.git("tag", "base", made.commit("base", {"f": "1\n", "g": "1\n"}))
    fast = made.commit("Fast\n\nPiperOrigin-RevId: 261000000", {"f": "2\n"})
    made.git("tag", "fast", fast)
    made.git("tag", "other", made.commit("other", {"g": "2\n"}))
    rollback = made.commit(f"Automated rollback of commit {fast}", {"f": "1\n"})
    made.git("tag", "rollback", rollback)
    reland = made.commit(f"Roll forward Fast\n\nReverts {rollback}", {"f": "2\n"})
    made.git("tag", "reland", reland)
    made.switch("r1", "base")
    made.git(
        "tag", "picked", made.commit(f"Fast\n\n(cherry picked from commit {fast})", {"f": "2\n"})
    )
    made.switch("master")
    return made


@pytest.fixture
def mirror(shop: Workshop, tmp_path: Path) -> Mirror:
    return open_mirror(shop.path, tmp_path / "mirrors")


def _told(mirror: Mirror, shop: Workshop, rev: str, within: str | None = None) -> dict[str, str]:
    names = {shop.git("rev-parse", tag): tag for tag in shop.git("tag").split()}
    found = mirror.relations(shop.git("rev-parse", rev), within=within)
    return {names[relation.commit]: relation.kind.value for relation in found}


def test_a_commit_knows_who_took_it_back_and_brought_it_back(
    mirror: Mirror, shop: Workshop
) -> None:
    """Rollback, reland and the copy on a release branch are found from the commit they mean."""
    assert _told(mirror, shop, "fast") == {
        "rollback": "reverted_by",
        "reland": "relanded_as",
        "picked": "cherry_picked_as",
    }


def test_only_what_the_given_end_contains_counts(mirror: Mirror, shop: Workshop) -> None:
    """A rollback that came after the bad end says nothing about the range."""
    assert _told(mirror, shop, "fast", within="rollback") == {"rollback": "reverted_by"}
    assert _told(mirror, shop, "fast", within="other") == {}


def test_a_reland_knows_the_whole_chain_before_it(mirror: Mirror, shop: Workshop) -> None:
    """What a commit's own message names is followed back, however old it is."""
    assert _told(mirror, shop, "reland") == {"rollback": "rollback_of", "fast": "reland_of"}
    assert _told(mirror, shop, "rollback") == {"fast": "rollback_of", "reland": "reverted_by"}


def test_a_pick_on_a_branch_knows_its_origin(mirror: Mirror, shop: Workshop) -> None:
    """The trailer of git cherry-pick -x leads to a commit that is no ancestor."""
    assert _told(mirror, shop, "picked") == {"fast": "cherry_picked_from"}


@pytest.mark.parametrize(
    "subject",
    ["Automated g4 rollback of changelist 261000000", 'Revert "Fast"', "Rollback of PR #7"],
)
def test_other_names_of_a_commit_are_looked_up(
    subject: str, shop: Workshop, tmp_path: Path
) -> None:
    """A changelist, a subject and a pull request lead back to the commit, seen from both sides."""
    shop.switch("names", "base")
    shop.git("tag", "target", shop.commit("Fast\n\nPiperOrigin-RevId: 261000000", {"f": "2\n"}))
    if "#7" in subject:
        shop.git("tag", "-f", "target", shop.commit("Merge pull request #7 from x/y", {"f": "3\n"}))
    shop.commit("see #7 and changelist 261000000, not Fast", {"g": "9\n"})
    shop.git("tag", "undo", shop.commit(subject, {"f": "1\n"}))
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    assert _told(mirror, shop, "undo") == {"target": "rollback_of"}
    assert _told(mirror, shop, "target", within="undo") == {"undo": "reverted_by"}


def test_the_same_patch_on_another_branch_is_the_counterpart(
    shop: Workshop, mirror: Mirror
) -> None:
    """Equal patches are certain, whatever their messages say."""
    picked = shop.git("rev-parse", "picked")
    found = mirror.counterpart(shop.git("rev-parse", "fast"), "r1")
    assert found == Relation(RelationKind.CHERRY_PICKED_AS, picked)
    assert mirror.counterpart(shop.git("rev-parse", "other"), "r1") is None


def test_an_equal_subject_on_the_same_files_is_a_likely_counterpart(
    shop: Workshop, tmp_path: Path
) -> None:
    """A pick that was resolved by hand has another patch: found, but called likely."""
    shop.switch("r2", "base")
    by_hand = shop.commit("other", {"g": "resolved\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    found = mirror.counterpart(shop.git("rev-parse", "other"), "r2")
    assert found == Relation(RelationKind.CHERRY_PICKED_AS, by_hand, likely=True)


def test_a_pick_that_says_nothing_is_found_by_its_patch(shop: Workshop, tmp_path: Path) -> None:
    """Seen from both sides, by the dates: from the original, and from the release branch."""
    shop.switch("r3", "base")
    silent = shop.commit("Other words", {"g": "2\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    other = shop.git("rev-parse", "other")
    assert mirror.relations(other) == (Relation(RelationKind.CHERRY_PICKED_AS, silent),)
    assert mirror.relations(silent) == (Relation(RelationKind.CHERRY_PICKED_FROM, other),)
    assert mirror.relations(other, within="reland") == ()


def test_a_pick_resolved_by_hand_is_likely_by_its_subject(shop: Workshop, tmp_path: Path) -> None:
    """Another patch under the same subject on another branch; on its own line it means nothing."""
    shop.switch("r4", "base")
    by_hand = shop.commit("other", {"g": "resolved\n"})
    shop.switch("master")
    shop.commit("other", {"g": "again\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    found = mirror.relations(shop.git("rev-parse", "other"))
    assert found == (Relation(RelationKind.CHERRY_PICKED_AS, by_hand, likely=True),)


def test_the_same_change_made_again_later_is_a_reland(shop: Workshop, tmp_path: Path) -> None:
    """It was taken back by hand and came again, and neither said so."""
    shop.commit("by hand", {"g": "1\n"})
    again = shop.commit("once more", {"g": "2\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    found = mirror.relations(shop.git("rev-parse", "other"))
    assert found == (Relation(RelationKind.RELANDED_AS, again),)
