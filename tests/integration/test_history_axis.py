"""Naming revisions and listing the candidates between two ends, on real repositories."""

from __future__ import annotations

from datetime import UTC
from itertools import pairwise
from pathlib import Path

import pytest
from tests.helpers.repositories import Workshop

from perfbisect.core.states import Find
from perfbisect.errors import BadInputError
from perfbisect.history import Candidate, Mirror, open_mirror, same_wheel


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """master: base, one, [side: s1, s2], two, merge, docs; tag v1 on one."""
    made = Workshop(tmp_path / "source")
    made.commit("base", {"a": "0\n", "docs/x.md": "x\n"})
    made.commit("one", {"a": "1\n"})
    made.git("tag", "-a", "-m", "first", "v1")
    made.switch("side", "HEAD")
    made.commit("s1", {"s": "1\n"})
    made.commit("s2", {"s": "2\n"})
    made.switch("master")
    made.commit("two", {"a": "2\n", "b/c d": "x\n"})
    made.merge("side", "merge side")
    made.commit("docs", {"docs/x.md": "y\n"})
    return made


@pytest.fixture
def mirror(shop: Workshop, tmp_path: Path) -> Mirror:
    return open_mirror(shop.path, tmp_path / "mirrors")


def _subjects(axis: list[Candidate]) -> list[str]:
    return [candidate.subject for candidate in axis]


def test_the_axis_follows_first_parents_from_good_to_bad(mirror: Mirror) -> None:
    """Both ends are on it, the earliest first, and side branches appear as their merge."""
    axis = mirror.candidates("master~4", "master")
    assert _subjects(axis) == ["base", "one", "two", "merge side", "docs"]
    for earlier, later in pairwise(axis):
        assert later.parents[0] == earlier.sha


def test_a_candidate_tells_tree_author_date_and_paths(shop: Workshop, mirror: Mirror) -> None:
    """What the search and the pages need of a commit is read in one pass, exactly."""
    two = mirror.candidates("v1", "master")[1]
    assert two.tree == shop.tree("master~2")
    assert two.author == "A"
    assert two.committed_at.tzinfo is UTC
    assert two.committed_at.timestamp() == int(shop.git("show", "-s", "--format=%ct", "master~2"))
    assert two.paths == ("a", "b/c d")
    assert not two.paths_cut


def test_the_first_end_has_its_paths_too_even_if_it_is_the_root(mirror: Mirror) -> None:
    """A root commit touches all its files."""
    assert mirror.candidates("master~4", "master")[0].paths == ("a", "docs/x.md")


def test_a_merge_touches_what_its_branch_brought(mirror: Mirror) -> None:
    """Seen from the first parent, a merge's paths are those of the merged commits."""
    assert mirror.candidates("v1", "master")[2].paths == ("s",)


def test_all_parents_lists_the_merged_commits(mirror: Mirror) -> None:
    """Every commit between the ends is there once, children after their parents."""
    axis = mirror.candidates("v1", "master", all_parents=True)
    assert sorted(_subjects(axis)) == ["docs", "merge side", "one", "s1", "s2", "two"]
    places = {candidate.sha: position for position, candidate in enumerate(axis)}
    for candidate in axis[1:]:
        assert all(places[parent] < places[candidate.sha] for parent in candidate.parents)


def test_a_path_filter_keeps_what_touches_it_and_both_ends(mirror: Mirror) -> None:
    """Only commits below the given paths are candidates, and each still tells all its paths."""
    axis = mirror.candidates("master~4", "master", paths=["a"])
    assert _subjects(axis) == ["base", "one", "two", "docs"]
    assert axis[2].paths == ("a", "b/c d")
    assert _subjects(mirror.candidates("v1", "master", paths=["docs/*"])) == ["one", "docs"]


def test_a_path_filter_that_leaves_nothing_is_refused(mirror: Mirror) -> None:
    """No commit touches the path: the error names it."""
    with pytest.raises(BadInputError, match=r"touches nowhere.*widen") as caught:
        mirror.candidates("v1", "master", paths=["nowhere"])
    assert caught.value.field == "paths"


@pytest.mark.parametrize("path", ["../..", ":(nonsense)x"])
def test_a_path_filter_that_git_cannot_use_is_refused(path: str, mirror: Mirror) -> None:
    """A path outside of the repository and unknown magic are their giver's mistake."""
    with pytest.raises(BadInputError, match="git can't use") as caught:
        mirror.candidates("v1", "master", paths=[path])
    assert caught.value.field == "paths"


@pytest.mark.parametrize("path", ["", "a\nb", "a\0b"])
def test_a_path_filter_with_control_characters_is_refused(path: str, mirror: Mirror) -> None:
    """Nothing odd reaches git's command line."""
    with pytest.raises(BadInputError, match="is no path"):
        mirror.candidates("v1", "master", paths=[path])


def test_equal_ends_are_refused(mirror: Mirror) -> None:
    """The same commit under two names is no range."""
    with pytest.raises(BadInputError, match="same commit"):
        mirror.candidates("v1", "master~3")


def test_ends_the_wrong_way_round_get_advice(mirror: Mirror) -> None:
    """A bad end that is older than the good one: swap, or ask for the fix."""
    with pytest.raises(BadInputError, match=r"swap them.*--find fix"):
        mirror.candidates("master", "v1")
    assert _subjects(mirror.candidates("master", "v1", find=Find.FIX))[0] == "one"
    with pytest.raises(BadInputError, match="leave out `--find fix`"):
        mirror.candidates("v1", "master", find=Find.FIX)


def test_ends_on_two_branches_are_refused_with_their_merge_base(
    shop: Workshop, tmp_path: Path
) -> None:
    """Good on a release branch: the error names the merge base, which could be the good end."""
    shop.switch("r1", "v1")
    shop.commit("only on r1", {"r": "1\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    base = shop.git("rev-parse", "v1^{commit}")
    with pytest.raises(BadInputError, match=rf"merge base is {base[:12]} \('one'.*give it as good"):
        mirror.candidates("r1", "master")


def test_unrelated_histories_are_refused(shop: Workshop, tmp_path: Path) -> None:
    """Two roots without a common commit: the error says so."""
    shop.git("checkout", "--quiet", "--orphan", "island")
    shop.commit("alone", {"i": "1\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    with pytest.raises(BadInputError, match="no commit in common"):
        mirror.candidates("island", "master")


def test_a_good_end_on_a_merged_branch_needs_all_parents(mirror: Mirror) -> None:
    """The line of first parents does not pass through a side branch: the error says what to do."""
    with pytest.raises(BadInputError, match=r"merged in from a side branch.*--all-parents"):
        mirror.candidates("side~1", "master")
    axis = mirror.candidates("side~1", "master", all_parents=True)
    assert _subjects(axis)[0] == "s1"
    assert _subjects(axis)[-1] == "docs"


@pytest.mark.parametrize(
    ("rev", "telling"),
    [
        ("mastre", r"did you mean 'master'"),
        ("v2", "no such revision"),
        ("0123456789", "on none of the branches"),
        ("-x", "begins with '-'"),
        ("--output=/tmp/x", "begins with '-'"),
        ("", "got nothing"),
        ("  ", "got nothing"),
        ("a\nb", "control characters"),
        ("a\0b", "control characters"),
        ("x" * 600, "at most 500 characters"),
        ("v1..master", "no such revision"),
        ("^master", "no such revision"),
        ("master:a", "blob, not a commit"),
        ("master^{tree}", "tree, not a commit"),
        ("HEAD~99", "no such revision"),
    ],
)
def test_what_is_no_revision_gets_a_clear_error(rev: str, telling: str, mirror: Mirror) -> None:
    """The error names the field, the value, and what would be right."""
    with pytest.raises(BadInputError, match=telling) as caught:
        mirror.resolve(rev, "bad")
    assert caught.value.field == "bad"
    assert str(caught.value).startswith("bad:")


def test_an_ambiguous_beginning_of_a_sha_lists_the_commits(tmp_path: Path) -> None:
    """Too few digits: the error shows the commits that begin with them."""
    shop = Workshop(tmp_path / "many")
    tree = shop.tree(shop.commit("x", {"a": "1\n"}))
    names = [shop.git("commit-tree", tree, "-m", f"{number}") for number in range(600)]
    heads = "".join(f"create refs/heads/b{i} {name}\n" for i, name in enumerate(names))
    shop.git("update-ref", "--stdin", stdin=heads)
    starts = [name[:4] for name in names]
    twice = next(start for start in starts if starts.count(start) > 1)
    with pytest.raises(BadInputError, match=f"several objects begin with it .*{twice}"):
        open_mirror(shop.path, tmp_path / "mirrors").resolve(twice)


def test_hostile_messages_paths_and_dates_are_read_right(tmp_path: Path) -> None:
    """No subject, path or date can break the reading or reach a terminal as a command."""
    shop = Workshop(tmp_path / "hostile")
    base = shop.commit("base", {"a": "1\n"})
    names = [":100644 100644 x", "new\nline", "\x01", "ü", "-rf", f"{base}"]
    shop.commit("\x1b[31mred\x07 \u202egnp", dict.fromkeys(names, "x\n"))
    late = shop.git(
        "hash-object", "-t", "commit", "-w", "--stdin",
        stdin=f"tree {shop.tree()}\nparent {shop.head}\nauthor \x1b <> 1 +0000\n"
        "committer C <c> 99999999999999 +0000\n\nlate\n",
    )  # fmt: skip
    shop.git("update-ref", "refs/heads/late", late)
    axis = open_mirror(shop.path, tmp_path / "mirrors").candidates(base, "late")
    assert sorted(axis[1].paths) == sorted(names)
    assert axis[1].subject == "\ufffd[31mred\ufffd \ufffdgnp"
    assert axis[2].subject == "late"
    assert axis[2].committed_at.year == 9999
    assert axis[2].paths == ()


def test_more_paths_than_are_kept_are_marked_as_cut(tmp_path: Path) -> None:
    """A commit that touches thousands of files costs bounded memory, and is known to be more."""
    shop = Workshop(tmp_path / "wide")
    base = shop.commit("base", {"a": "1\n"})
    shop.commit("wide", {f"d/{number}": "" for number in range(2100)})
    wide = open_mirror(shop.path, tmp_path / "mirrors").candidates(base, "master")[1]
    assert len(wide.paths) == 2000
    assert wide.paths_cut


def test_equal_trees_share_a_wheel(shop: Workshop, tmp_path: Path) -> None:
    """A commit and its revert's result are the same position to the search."""
    shop.commit("break", {"a": "slow\n"})
    shop.git("revert", "--no-edit", "HEAD")
    shop.commit("empty")
    axis = open_mirror(shop.path, tmp_path / "mirrors").candidates("master~3", "master")
    assert same_wheel(axis) == {2: 0, 3: 0}


def test_commits_that_touch_only_what_can_not_matter_share_their_parents_wheel(
    mirror: Mirror,
) -> None:
    """With a rule of what is irrelevant, a documentation commit needs no build of its own."""
    axis = mirror.candidates("master~4", "master")
    assert same_wheel(axis, lambda path: path.startswith("docs/")) == {4: 3}
    filtered = mirror.candidates("master~4", "master", paths=["docs"])
    # "docs" follows "base" here only because of the filter: they do not share a wheel.
    assert same_wheel(filtered, lambda path: path.startswith("docs/")) == {}


def test_diff_message_describe_and_branches(shop: Workshop, mirror: Mirror) -> None:
    """What a commit's page shows of it is read from the mirror."""
    two = shop.git("rev-parse", "master~2")
    diff = mirror.diff(two)
    assert "+2" in diff.text
    assert not diff.cut
    assert mirror.diff(two, max_bytes=10).cut
    assert len(mirror.diff(two, max_bytes=10).text) == 10
    assert "s | 1 +" in mirror.diff(shop.git("rev-parse", "master~1")).text
    assert mirror.message(two) == "two"
    assert mirror.describe(two) == f"v1-1-g{two[:7]}"
    assert mirror.branches_containing(shop.git("rev-parse", "side")) == ("master", "side")
    assert mirror.tags_containing(shop.git("rev-parse", "v1~1")) == ("v1",)
    assert mirror.read_file(two, "a") == "2\n"
    assert mirror.read_file(two, "b") is None
    assert mirror.read_file(two, "none") is None
