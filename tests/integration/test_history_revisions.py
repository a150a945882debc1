"""Revisions as merged trees, against what git revert and git cherry-pick do in a working copy."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.repositories import Workshop

from perfbisect.core.revision import (
    Action,
    Change,
    Revision,
    parse_revision,
    picking,
    reverting,
)
from perfbisect.errors import BadInputError
from perfbisect.history import Conflict, Empty, Mirror, Resolved, open_mirror


def _lines(*numbers: int, **changed: str) -> str:
    """A file of forty lines, with some replaced: ``_lines(L3="x")``."""
    text = [f"line {number}" for number in range(40)]
    for place, content in changed.items():
        text[int(place[1:])] = content
    return "\n".join(text) + "\n"


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """master: base, top (line 3), bottom (line 30), over (line 3 again)."""
    made = Workshop(tmp_path / "source")
    made.commit("base", {"f": _lines(), "g": "g\n"})
    made.git("tag", "base")
    made.git("tag", "top", made.commit("top", {"f": _lines(L3="top")}))
    made.git("tag", "bottom", made.commit("bottom", {"f": _lines(L3="top", L30="bottom")}))
    made.git("tag", "over", made.commit("over", {"f": _lines(L3="over", L30="bottom")}))
    return made


@pytest.fixture
def mirror(shop: Workshop, tmp_path: Path) -> Mirror:
    return open_mirror(shop.path, tmp_path / "mirrors")


def _content(mirror: Mirror, outcome: Resolved | Conflict | Empty, name: str = "f") -> str:
    assert isinstance(outcome, Resolved), outcome
    return mirror.read_file(outcome.tree, name) or ""


def test_a_base_alone_is_its_own_tree(shop: Workshop, mirror: Mirror) -> None:
    """Without changes a revision is the base's tree, and shares its wheel."""
    outcome = mirror.resolve_revision(Revision("over"))
    assert outcome == Resolved(shop.tree("over"), shop.head, Revision(shop.head))


def test_a_revert_takes_back_one_commit_and_keeps_the_later_ones(mirror: Mirror) -> None:
    """Reverting an inner commit leaves what came after it."""
    assert _content(mirror, mirror.resolve_revision(reverting("over", "bottom"))) == _lines(
        L3="over"
    )


def test_changes_apply_in_order(shop: Workshop, mirror: Mirror) -> None:
    """'over' sits on 'top': reverting both works from the newer to the older one only."""
    outcome = mirror.resolve_revision(reverting("master", "over", "top"))
    assert _content(mirror, outcome) == _lines(L30="bottom")
    assert isinstance(mirror.resolve_revision(reverting("master", "top", "over")), Conflict)


def test_names_are_resolved_to_full_shas(shop: Workshop, mirror: Mirror) -> None:
    """What was built can be said again later, when tags have moved on."""
    outcome = mirror.resolve_revision(parse_revision("base pick bottom"))
    assert isinstance(outcome, Resolved)
    base, bottom = shop.git("rev-parse", "base"), shop.git("rev-parse", "bottom")
    assert str(outcome.revision) == f"{base} pick {bottom}"
    assert outcome.base == base


def test_a_conflict_tells_files_and_hunks(shop: Workshop, mirror: Mirror) -> None:
    """The file, the kind and the place are named, with readable labels in the markers."""
    outcome = mirror.resolve_revision(reverting("master", "top"))
    assert isinstance(outcome, Conflict)
    top = shop.git("rev-parse", "top")
    assert outcome.change == Change(Action.REVERT, top)
    (file,) = outcome.files
    assert (file.path, file.kind) == ("f", "contents")
    (hunk,) = file.hunks
    assert hunk.split("\n") == [
        "@@ line 4 @@",
        "<<<<<<< the revision so far",
        "over",
        "=======",
        "line 3",
        f">>>>>>> revert {top[:12]}",
    ]


def test_a_conflict_of_deleting_and_changing_is_told(shop: Workshop, tmp_path: Path) -> None:
    """A file that one side removed has no hunks, but a kind."""
    shop.commit("remove", {"f": None})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    outcome = mirror.resolve_revision(reverting("master", "over"))
    assert isinstance(outcome, Conflict)
    assert [(file.path, file.kind) for file in outcome.files] == [("f", "modify/delete")]


def test_changes_that_change_nothing_are_recognised(shop: Workshop, tmp_path: Path) -> None:
    """Picked before, reverted before, never there, empty by itself: each says which."""
    shop.git("tag", "empty", shop.commit("empty"))
    shop.git("revert", "--no-edit", "bottom")
    shop.git("tag", "undone")
    shop.switch("side", "base")
    shop.git("tag", "elsewhere", shop.commit("elsewhere", {"g": "other\n"}))
    shop.git("tag", "never", shop.commit("never", {"g": "g\n"}))
    mirror = open_mirror(shop.path, tmp_path / "mirrors")

    def why(text: str) -> str:
        outcome = mirror.resolve_revision(parse_revision(text))
        assert isinstance(outcome, Empty), outcome
        return outcome.why

    assert why("over pick bottom").startswith("already there")
    assert why("undone revert bottom").startswith("already reverted")
    assert why("over revert bottom revert bottom").startswith("already reverted")
    assert why("base revert bottom").startswith("the base does not contain it")
    assert why("over revert empty").startswith("the commit itself changes nothing")
    assert why("elsewhere pick elsewhere").startswith("already there")


def test_a_conflict_notes_what_may_explain_it(mirror: Mirror) -> None:
    """Picking what is there, or reverting what is not, is pointed out."""
    there = mirror.resolve_revision(picking("over", "top"))
    assert isinstance(there, Conflict)
    assert "part of the base already" in there.note
    absent = mirror.resolve_revision(reverting("base", "over"))
    assert isinstance(absent, Conflict)
    assert "not part of the base" in absent.note


def test_a_merge_needs_its_parent(shop: Workshop, tmp_path: Path) -> None:
    """Which side of a merge to take back is the person's choice; the error lists them."""
    shop.switch("side", "base")
    shop.commit("side", {"h": "h\n"})
    shop.switch("master")
    merge = shop.merge("side")
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    with pytest.raises(BadInputError, match=r"is a merge.*revert master parent N.*1 is .*2 is "):
        mirror.resolve_revision(reverting("master", "master"))
    first = mirror.resolve_revision(parse_revision(f"master revert {merge} parent 1"))
    assert isinstance(first, Resolved)
    assert first.tree == shop.tree("over")
    with pytest.raises(BadInputError, match="no parent 3"):
        mirror.resolve_revision(parse_revision("master revert master parent 3"))
    with pytest.raises(BadInputError, match="has 1 parent,"):
        mirror.resolve_revision(parse_revision("master revert over parent 2"))


def test_a_root_commit_can_be_picked_and_reverted(shop: Workshop, tmp_path: Path) -> None:
    """What comes before a root is the empty tree."""
    shop.git("checkout", "--quiet", "--orphan", "island")
    shop.git("rm", "-rfq", ".")
    shop.commit("alone", {"i": "1\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    outcome = mirror.resolve_revision(picking("over", "island"))
    assert _content(mirror, outcome, "i") == "1\n"
    undone = mirror.resolve_revision(parse_revision("over pick island revert island"))
    assert isinstance(undone, Resolved)
    assert undone.tree == shop.tree("over")


def test_unknown_commits_are_named_with_their_change(mirror: Mirror) -> None:
    """The error says which part of the revision is at fault."""
    for text, field in [("nope", "base"), ("over revert nope", "revert"), ("over pick -x", "pick")]:
        with pytest.raises(BadInputError) as caught:
            mirror.resolve_revision(parse_revision(text.replace(" -x", " '-x'")))
        assert caught.value.field == field
    with pytest.raises(BadInputError, match="at most 500 changes"):
        mirror.resolve_revision(reverting("over", *["top"] * 501))


def test_the_source_and_the_refs_stay_as_they_were(shop: Workshop, mirror: Mirror) -> None:
    """Resolving writes objects into the mirror only, on no branch."""
    before = subprocess.check_output(["git", "-C", mirror.path, "for-each-ref"])
    outcome = mirror.resolve_revision(reverting("over", "bottom"))
    assert isinstance(outcome, Resolved)
    assert subprocess.check_output(["git", "-C", mirror.path, "for-each-ref"]) == before
    assert shop.try_git("cat-file", "-e", outcome.tree).returncode != 0
    assert shop.git("status", "--porcelain") == ""


@pytest.mark.parametrize("form", ["diff", "format-patch"])
def test_a_patch_is_applied(form: str, shop: Workshop, mirror: Mirror) -> None:
    """A plain diff and a mail give the tree that picking the commit gives."""
    make = (
        ["diff", "top", "bottom"]
        if form == "diff"
        else ["format-patch", "--stdout", "-1", "bottom"]
    )
    text = (shop.git(*make) + "\n").encode()
    outcome = mirror.resolve_revision(parse_revision("base patch 'my fix'"), {"my fix": text})
    assert isinstance(outcome, Resolved)
    assert _content(mirror, outcome) == _lines(L30="bottom")
    again = mirror.resolve_revision(parse_revision("over patch p"), {"p": text})
    assert again == Empty(
        Change(Action.PATCH, "p"), "already there: the tree contains all of the patch"
    )


def test_a_patch_that_does_not_fit_tells_where(shop: Workshop, mirror: Mirror) -> None:
    """Files and hunks that failed are named."""
    text = (shop.git("diff", "bottom", "over") + "\n").encode()
    outcome = mirror.resolve_revision(parse_revision("base patch p"), {"p": text})
    assert isinstance(outcome, Conflict)
    (file,) = outcome.files
    assert file.path == "f"
    assert "-top" in file.hunks[0]
    gone = b"--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"
    missing = mirror.resolve_revision(parse_revision("base patch p"), {"p": gone})
    assert isinstance(missing, Conflict)
    assert (missing.files[0].path, missing.files[0].kind) == ("none", "does not exist in index")


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        (b"", "No valid patches"),
        (b"hello\n", "No valid patches"),
        (b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n x\n", "corrupt patch|unexpected"),
        (b"--- a/../x\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n", "invalid path|no patch"),
        (b"--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n", "invalid path|no patch"),
    ],
)
def test_what_is_no_patch_is_refused(text: bytes, telling: str, mirror: Mirror) -> None:
    """Nothing to apply, broken hunks and paths outside the tree are bad input."""
    with pytest.raises(BadInputError, match=telling) as caught:
        mirror.resolve_revision(parse_revision("base patch p"), {"p": text})
    assert caught.value.field == "patch"


def test_a_patch_must_be_given_by_its_text(mirror: Mirror) -> None:
    """No file is opened by name: a revision from elsewhere can't read this machine."""
    with pytest.raises(BadInputError, match="text of '/etc/passwd' was not given"):
        mirror.resolve_revision(parse_revision("base patch /etc/passwd"))


_EDITS = st.lists(
    st.tuples(st.sampled_from(["f", "g"]), st.integers(0, 11), st.sampled_from("xyz")),
    min_size=3,
    max_size=7,
)
_FEW = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _history(place: Path, edits: list[tuple[str, int, str]]) -> tuple[Workshop, list[str]]:
    """A random history: each edit replaces one line of one of two files."""
    shop = Workshop(place / "source")
    files = {name: [f"{name}{number}" for number in range(12)] for name in ("f", "g")}
    made = []
    for index, (name, line, letter) in enumerate([("f", 0, "f0"), *edits]):
        files[name][line] = letter
        contents = {key: "\n".join(value) + "\n" for key, value in files.items()}
        made.append(shop.commit(f"edit {index}", contents))
    return shop, made


def _in_a_working_copy(shop: Workshop, verb: str, start: str, sha: str) -> str | None:
    """The tree that git itself makes of it; None for a conflict; '' if nothing is left to do."""
    shop.git("checkout", "--quiet", "--detach", start)
    flags = ["--no-edit"] if verb == "revert" else []
    done = shop.try_git(verb, *flags, sha)
    if done.returncode == 0:
        return shop.tree()
    unmerged = shop.git("ls-files", "--unmerged")
    shop.try_git(verb, "--quit")
    shop.git("reset", "--quiet", "--hard")
    return None if unmerged else ""


@_FEW
@given(edits=_EDITS, choice=st.data())
def test_reverts_and_picks_give_the_tree_that_git_gives(
    edits: list[tuple[str, int, str]], choice: st.DataObject
) -> None:
    """On random histories: the same tree, conflict, or emptiness as git in a working copy."""
    with tempfile.TemporaryDirectory() as name:
        shop, made = _history(Path(name), edits)
        verb, action = choice.draw(
            st.sampled_from([("revert", Action.REVERT), ("cherry-pick", Action.PICK)])
        )
        start = choice.draw(st.sampled_from(made))
        sha = choice.draw(st.sampled_from(made[1:]))
        mirror = open_mirror(shop.path, Path(name) / "mirrors")
        outcome = mirror.resolve_revision(Revision(start, (Change(action, sha),)))
        expected = _in_a_working_copy(shop, verb, start, sha)
        if expected is None:
            assert isinstance(outcome, Conflict)
        elif expected in ("", shop.tree(start)):
            assert isinstance(outcome, Empty)
        else:
            assert isinstance(outcome, Resolved)
            assert outcome.tree == expected


@_FEW
@given(edits=_EDITS, choice=st.data())
def test_a_pick_after_its_revert_restores_the_tree(
    edits: list[tuple[str, int, str]], choice: st.DataObject
) -> None:
    """Where a revert applies, picking the commit again gives the base's tree."""
    with tempfile.TemporaryDirectory() as name:
        shop, made = _history(Path(name), edits)
        sha = choice.draw(st.sampled_from(made[1:]))
        mirror = open_mirror(shop.path, Path(name) / "mirrors")
        if isinstance(mirror.resolve_revision(reverting("master", sha)), Resolved):
            both = parse_revision(f"master revert {sha} pick {sha}")
            outcome = mirror.resolve_revision(both)
            assert isinstance(outcome, Resolved)
            assert outcome.tree == shop.tree("master")


@_FEW
@given(
    places=st.lists(st.sampled_from([1, 5, 9]), min_size=2, max_size=3, unique=True),
    choice=st.data(),
)
def test_the_order_of_changes_that_do_not_touch_is_of_no_account(
    places: list[int], choice: st.DataObject
) -> None:
    """Commuting changes give one tree, so they share one wheel."""
    with tempfile.TemporaryDirectory() as name:
        shop, made = _history(Path(name), [("f", place, f"new {place}") for place in places])
        order = choice.draw(st.permutations(made[1:]))
        mirror = open_mirror(shop.path, Path(name) / "mirrors")
        outcome = mirror.resolve_revision(reverting("master", *order))
        assert isinstance(outcome, Resolved)
        assert outcome.tree == shop.tree(made[0])
