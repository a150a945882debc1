from __future__ import annotations

from pathlib import Path

import pytest

from perfbisect.core.states import ChangeKind
from perfbisect.demo.history import DemoCommit, Edit, load_history, load_source
from perfbisect.errors import InternalError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_an_edit_replaces_the_one_place_it_names() -> None:
    """An edit changes its own file, at the one place where the old text stands."""
    tree = {"a": "one two", "b": "two"}
    Edit("a", old="two", new="three").apply(tree)
    assert tree == {"a": "one three", "b": "two"}


@pytest.mark.parametrize("text", ["", "two two"])
def test_an_edit_refuses_a_place_that_is_missing_or_ambiguous(text: str) -> None:
    """An edit whose old text occurs never or twice is an error, not a guess."""
    with pytest.raises(InternalError, match="times in a, not once"):
        Edit("a", old="two", new="three").apply({"a": text})


def test_an_append_makes_a_file_and_adds_to_it() -> None:
    """Appended text starts a file that is not there and follows one that is."""
    tree: dict[str, str] = {}
    for line in ("x\n", "y\n"):
        Edit("a", append=line).apply(tree)
    assert tree == {"a": "x\ny\n"}


def test_the_inverse_of_an_edit_restores_the_tree() -> None:
    """A rollback is the inverse edits in reverse order, and gives the tree back."""
    tree = {"a": "one two"}
    edits = [Edit("a", old="two", new="three"), Edit("a", old="one three", new="four")]
    for edit in [*edits, *(edit.inverse for edit in reversed(edits))]:
        edit.apply(tree)
    assert tree == {"a": "one two"}


def test_an_append_has_no_inverse() -> None:
    """A commit that appends can't be rolled back, and says so."""
    with pytest.raises(InternalError, match="can't be rolled back"):
        _ = Edit("a", append="x").inverse


def test_a_rollback_must_name_an_earlier_commit(tmp_path: Path) -> None:
    """A history in which a commit rolls back an unknown one is refused."""
    text = '[[commit]]\nsubject = "x"\nrolls_back = "later"\n'
    with pytest.raises(InternalError, match="no earlier commit is named 'later'"):
        load_history(write(tmp_path / "history.toml", text))


def test_a_history_needs_both_ends(tmp_path: Path) -> None:
    """A history with a single tag has no good and bad end, and is refused."""
    text = '[[commit]]\nsubject = "x"\ntag = "v1"\n'
    with pytest.raises(InternalError, match="need a tag"):
        load_history(write(tmp_path / "history.toml", text))


def test_the_shipped_history_tells_its_story() -> None:
    """Two regressions last, a third is rolled back, and the unbuildable commits stand together."""
    history = load_history()
    steps = [commit.step for commit in history if commit.step]
    assert steps == [
        ChangeKind.REGRESSION,
        ChangeKind.REGRESSION,
        ChangeKind.RECOVERY,
        ChangeKind.REGRESSION,
    ]
    broken = [index for index, commit in enumerate(history) if not commit.builds]
    assert broken == list(range(broken[0], broken[0] + 3))
    assert 38 <= len(history) <= 45
    assert len({commit.subject for commit in history}) == len(history)


def test_every_shipped_edit_applies_and_changes_something() -> None:
    """Each commit of the shipped history finds the places it edits and leaves another tree."""
    tree = load_source()
    for commit in load_history():
        before = dict(tree)
        for edit in commit.edits:
            edit.apply(tree)
        assert (tree != before) == bool(commit.edits), commit.subject


def test_the_source_has_its_hidden_files() -> None:
    """Template names become real ones: the ending goes, a leading dot comes."""
    tree = load_source()
    assert {".bazelrc", ".gitignore", "WORKSPACE", "tensorflow/python/__init__.py"} <= set(tree)
    assert not [path for path in tree if path.endswith(".in") or "dot_" in path]


def test_a_commit_changes_nothing_unless_told() -> None:
    """A commit builds and leaves the benchmark alone by default."""
    commit = DemoCommit("x")
    assert commit.builds
    assert commit.step is None
