"""Which commits must come along with a fix that does not apply to a release branch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.repositories import Workshop

from perfbisect.core.revision import picking
from perfbisect.errors import BadInputError
from perfbisect.history import Conflict, Mirror, NearestMiss, PickSet, Resolved, open_mirror


def _numbered(**changed: str) -> str:
    text = [f"line {number}" for number in range(60)]
    for place, content in changed.items():
        text[int(place[1:])] = content
    return "\n".join(text) + "\n"


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """master with a chain helper -> uses helper -> fix, and noise on the same file; r1 at base."""
    made = Workshop(tmp_path / "source")
    made.commit("base", {"f": _numbered(), "g": "g\n"})
    made.git("branch", "r1")
    made.git("tag", "noise", made.commit("noise", {"f": _numbered(L50="noise")}))
    helper = {"f": _numbered(L50="noise", L10="helper")}
    made.git("tag", "helper", made.commit("helper", helper))
    user = {"f": _numbered(L50="noise", L10="helper", L11="uses helper"), "h": "new\n"}
    made.git("tag", "user", made.commit("user", user))
    made.git("tag", "more", made.commit("more", {"g": "more\n", "big": "x\n" * 100}))
    fix = {"f": _numbered(L50="noise", L10="helper", L11="fixed")}
    made.git("tag", "fix", made.commit("fix", fix))
    made.switch("r1")
    made.commit("release", {"version": "1\n"})
    made.switch("master")
    return made


@pytest.fixture
def mirror(shop: Workshop, tmp_path: Path) -> Mirror:
    return open_mirror(shop.path, tmp_path / "mirrors")


def _subjects(found: PickSet | NearestMiss) -> list[str]:
    assert isinstance(found, PickSet), found
    return [prerequisite.commit.subject for prerequisite in found.prerequisites]


def test_the_chain_that_a_fix_needs_is_found_and_nothing_else(mirror: Mirror) -> None:
    """The fix needs 'user', which needs 'helper'; noise in the same file stays out."""
    assert isinstance(mirror.resolve_revision(picking("r1", "fix")), Conflict)
    found = mirror.prerequisites("r1", "fix")
    assert _subjects(found) == ["helper", "user"]
    assert isinstance(found, PickSet)
    assert found.smallest


def test_the_set_resolves_to_the_tree_that_is_told(mirror: Mirror) -> None:
    """The revision can be built as it stands: base, prerequisites, fix."""
    found = mirror.prerequisites("r1", "fix")
    assert isinstance(found, PickSet)
    outcome = mirror.resolve_revision(found.revision)
    assert isinstance(outcome, Resolved)
    assert outcome.tree == found.tree
    text = mirror.read_file(found.tree, "f") or ""
    assert text == _numbered(L10="helper", L11="fixed")
    assert mirror.read_file(found.tree, "version") == "1\n"


def test_what_comes_along_is_shown_with_its_size(mirror: Mirror) -> None:
    """Lines added and removed, and every file that is dragged in."""
    found = mirror.prerequisites("r1", "fix")
    assert isinstance(found, PickSet)
    user = found.prerequisites[1]
    assert (user.added, user.removed, user.paths) == (2, 1, ("f", "h"))


def test_a_fix_that_applies_needs_nobody(mirror: Mirror) -> None:
    """No conflict, no prerequisites."""
    found = mirror.prerequisites("r1", "noise")
    assert _subjects(found) == []


def test_a_removal_that_a_fix_builds_on_is_found(shop: Workshop, tmp_path: Path) -> None:
    """Lines that are gone have no last writer: who removed them is looked for."""
    lines = _numbered().splitlines(keepends=True)
    shop.git("checkout", "--quiet", "-B", "other", "r1~1")
    shop.commit("remove a line", {"f": "".join(lines[:20] + lines[21:])})
    shop.commit("other file", {"g": "1\n"})
    changed = [*lines[:19], "changed\n", "changed\n", *lines[22:]]
    shop.commit("build on it", {"f": "".join(changed)})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    assert _subjects(mirror.prerequisites("r1", "other")) == ["remove a line"]


def test_a_fix_to_a_file_that_the_branch_has_not_brings_its_maker(
    shop: Workshop, tmp_path: Path
) -> None:
    """Where lines tell nothing, whoever touched the file is taken."""
    shop.commit("fix new file", {"h": "newer\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    assert _subjects(mirror.prerequisites("r1", "master")) == ["helper", "user"]


def test_a_conflict_with_the_branch_itself_is_a_nearest_miss(
    shop: Workshop, tmp_path: Path
) -> None:
    """If the release branch changed the very lines, no set helps: what conflicts is shown."""
    shop.switch("r1")
    shop.commit("own way", {"f": _numbered(L11="own way")})
    shop.switch("master")
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    found = mirror.prerequisites("r1", "fix")
    assert isinstance(found, NearestMiss)
    assert [file.path for file in found.conflict.files] == ["f"]
    assert "own way" in found.conflict.files[0].hunks[0]
    assert found.why == "no earlier commit touches what still conflicts"


def test_out_of_time_tells_what_there_is(mirror: Mirror) -> None:
    """Without time to look, the conflict itself is the answer."""
    found = mirror.prerequisites("r1", "fix", max_seconds=0)
    assert isinstance(found, NearestMiss)
    assert found.why == "it took too long"
    assert found.conflict.files[0].hunks


def test_progress_is_told(mirror: Mirror) -> None:
    """Whoever waits sees how many commits are taken along."""
    lines: list[str] = []
    mirror.prerequisites("r1", "fix", progress=lines.append)
    assert any("taken along" in line for line in lines)


def test_a_fix_that_is_there_is_bad_input(shop: Workshop, tmp_path: Path) -> None:
    """Nothing to pick: an ancestor, or the same change under another name."""
    shop.switch("r1")
    shop.commit("noise by hand", {"f": _numbered(L50="noise")})
    shop.git("checkout", "--quiet", "--orphan", "island")
    shop.commit("alone", {"i": "1\n"})
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    with pytest.raises(BadInputError, match=r"contains .* already"):
        mirror.prerequisites("master", "helper")
    with pytest.raises(BadInputError, match=r"contains what .* does already"):
        mirror.prerequisites("r1", "noise")
    with pytest.raises(BadInputError, match="no commit in common"):
        mirror.prerequisites("r1", "island")


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("xyz")), min_size=3, max_size=6),
)
def test_no_member_of_a_set_can_be_left_out(edits: list[tuple[int, str]]) -> None:
    """On random histories: the set applies, and without any one member it does not."""
    with tempfile.TemporaryDirectory() as name:
        shop = Workshop(Path(name) / "source")
        lines = [f"line {number}" for number in range(10)]
        base = shop.commit("base", {"f": "\n".join(lines) + "\n"})
        for index, (place, letter) in enumerate(edits):
            lines[place] = f"{letter}{index}"
            shop.commit(f"edit {index}", {"f": "\n".join(lines) + "\n"})
        mirror = open_mirror(shop.path, Path(name) / "mirrors")
        found = mirror.prerequisites(base, "master")
        assert isinstance(found, PickSet)
        picks = [prerequisite.commit.sha for prerequisite in found.prerequisites]
        whole = mirror.resolve_revision(picking(base, *picks, "master"))
        assert isinstance(whole, Resolved)
        for left_out in picks:
            rest = [sha for sha in picks if sha != left_out]
            assert isinstance(mirror.resolve_revision(picking(base, *rest, "master")), Conflict)
