"""Merges that are put together here, and those that git is asked for in one conversation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.helpers.repositories import Workshop

from perfbisect.errors import InternalError
from perfbisect.git.merge_stream import MergeStream
from perfbisect.git.merging import Merger
from perfbisect.git.objects import Entry, Objects
from perfbisect.git.overlay import overlay
from perfbisect.git.process import Git, GitError

_WHO = "author a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nx\n"

#: Path -> content, as a tree.
Files = Mapping[str, str]


class Bench:
    """A repository to write trees into, and git in one process to merge them."""

    def __init__(self, directory: Path, held: ExitStack) -> None:
        self.git_dir = Workshop(directory).path / ".git"
        self.objects = held.enter_context(Objects(self.git_dir))
        idle = self.commit(self.write({"f": "1"}))
        self.stream = held.enter_context(MergeStream(Git(self.git_dir), idle))
        assert self.stream.answers()

    def write(self, files: Files) -> str:
        """Store files as a tree."""
        entries: dict[bytes, Entry] = {}
        below: dict[str, dict[str, str]] = {}
        for name, content in files.items():
            folder, slash, rest = name.partition("/")
            if slash:
                below.setdefault(folder, {})[rest] = content
            else:
                blob = self.objects.write("blob", content.encode(), 40)
                entries[name.encode()] = Entry(b"100644", blob)
        for folder, inside in below.items():
            entries[folder.encode()] = Entry(b"40000", self.write(inside))
        return self.objects.write_tree(entries, 40)

    def commit(self, tree: str, parent: str = "") -> str:
        above = f"parent {parent}\n" if parent else ""
        return self.objects.write("commit", f"tree {tree}\n{above}{_WHO}".encode(), 40)

    def by_git(self, base: str, ours: str, theirs: str) -> str | None:
        """The tree that git merges; None for a conflict."""
        root = self.commit(base)
        clean, told = self.stream.merge(self.commit(ours, root), self.commit(theirs, root))
        return told.split(b"\0")[0].decode() if clean else None


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        yield Bench(Path(name) / "repository", held)


_PATHS = ("a", "b", "d/a", "d/b", "d/e/a", "d/e/b", "g/a", "g/h/a")
#: One edit: what is done, to which path or folder, and to what.
_EDIT = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(_PATHS), st.sampled_from("xyz")),
    st.tuples(st.just("remove"), st.sampled_from(_PATHS), st.just("")),
    st.tuples(
        st.just("move"),
        st.sampled_from((*_PATHS, "d", "d/e", "g", "g/h")),
        st.sampled_from(("a", "n", "d/n", "g/n", "k/n", "d/e", "h")),
    ),
)


def _text(word: str) -> str:
    """Long enough for git to see a rename although a line was changed."""
    return "".join(f"{word} {number}\n" for number in range(12))


_BASE = {path: _text(path) for path in _PATHS}


def _edited(edits: list[tuple[str, str, str]]) -> dict[str, str]:
    files = dict(_BASE)
    for deed, place, what in edits:
        if deed == "write":
            files[place] = files.get(place, _text(place)) + f"{what}\n"
        elif deed == "remove":
            files.pop(place, None)
        else:
            moved = {n: t for n, t in files.items() if n == place or n.startswith(f"{place}/")}
            for name, text in moved.items():
                del files[name]
                files[what + name.removeprefix(place)] = text
    # No name can be a file and a folder.
    return {n: t for n, t in files.items() if not any(o.startswith(f"{n}/") for o in files)}


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ours=st.lists(_EDIT, max_size=4), theirs=st.lists(_EDIT, max_size=4))
@example(ours=[("move", "d", "k/n")], theirs=[("write", "d/new", "x")])
@example(ours=[("write", "d/new", "x")], theirs=[("move", "d", "k/n")])
@example(ours=[("move", "a", "n")], theirs=[("move", "a", "h")])
@example(ours=[("remove", "d/e/a", ""), ("remove", "d/e/b", "")], theirs=[("write", "d/a", "x")])
@example(ours=[], theirs=[("remove", "g/h/a", "")])
@example(ours=[("remove", "d/a", "")], theirs=[("move", "d/a", "n")])
def test_what_is_put_together_here_is_what_git_merges(
    bench: Bench, ours: list[tuple[str, str, str]], theirs: list[tuple[str, str, str]]
) -> None:
    """With files written, removed, renamed, and folders moved: git's very tree, or no answer."""
    base, mine, other = (bench.write(files) for files in (_BASE, _edited(ours), _edited(theirs)))
    found = overlay(bench.objects, base, mine, other)
    if found is not None:
        assert found == bench.by_git(base, mine, other)


def test_changes_to_different_files_need_no_git(bench: Bench) -> None:
    """The common case: each side has files of its own, in folders that both changed."""
    ours, theirs = _edited([("write", "d/e/a", "x")]), _edited([("write", "d/e/b", "y")])
    base, mine, other = (bench.write(files) for files in (_BASE, ours, theirs))
    both = bench.write({**ours, "d/e/b": theirs["d/e/b"]})
    assert overlay(bench.objects, base, mine, other) == both


def test_a_folder_that_becomes_empty_is_gone(bench: Bench) -> None:
    """As in git: the last file takes its folder with it, and the last of all leaves nothing."""
    base, theirs = bench.write({"d/e": "1"}), bench.write({})
    ours = bench.write({"d/e": "1", "f": "2"})
    assert overlay(bench.objects, base, ours, theirs) in (None, bench.write({"f": "2"}))
    kept = bench.write({"d/e": "1", "f": "1"})
    assert overlay(bench.objects, kept, kept, bench.write({"f": "1"})) == bench.write({"f": "1"})
    assert overlay(bench.objects, kept, kept, theirs) == theirs


def test_many_merges_in_one_conversation_are_told_apart(bench: Bench) -> None:
    """Clean ones, conflicts with their files and kinds, and clean ones again: none is mixed up."""
    base = bench.write(_BASE)
    one, two = (bench.write(_edited([("write", "a", letter)])) for letter in "xy")
    moved = bench.write(_edited([("write", "g/h/a", "x")]))
    gone = bench.write(_edited([("remove", "a", "")]))
    with Objects(bench.git_dir) as objects, Merger(bench.git_dir, objects) as merger:
        for _ in range(3):
            conflict = merger.merge(base, one, two, ("ours", "theirs"))
            assert [(file.path, file.kind) for file in conflict.conflicts] == [("a", "contents")]
            assert "<<<<<<< ours" in conflict.conflicts[0].hunks[0]
            assert merger.merge(base, one, moved).conflicts == ()
            (file,) = merger.merge(base, one, gone).conflicts
            assert (file.path, file.kind) == ("a", "modify/delete")


def test_a_conversation_that_broke_off_is_an_error(bench: Bench) -> None:
    """Git ends when it is asked for what is no commit; the caller is told, and does not hang."""
    stream = MergeStream(Git(bench.git_dir), bench.commit(bench.write(_BASE)))
    assert stream.answers()
    with pytest.raises(GitError):
        stream.merge("0" * 40, "1" * 40)
    stream.close()


def test_objects_that_are_not_there_are_told(bench: Bench) -> None:
    """A commit that is none is None; a tree that is not there is a mistake of ours."""
    assert bench.objects.commit("0" * 40) is None
    assert bench.objects.commit(bench.write(_BASE)) is None
    with pytest.raises(InternalError, match="has no tree"):
        bench.objects.tree("0" * 40)
