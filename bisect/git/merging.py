"""Three-way merges of trees without a working copy.

What no two sides have touched is put together here (``overlay``); the rest is git's.
``git merge-tree --write-tree`` merges commits, so each merge gets three synthetic ones: the base,
and both sides with the base as their only parent. They lie in the object store, on no branch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from perfbisect.git.merge_stream import MergeStream
from perfbisect.git.objects import Objects
from perfbisect.git.overlay import overlay
from perfbisect.git.process import Git, GitError

_WHO = "perfbisect <perfbisect@localhost> 0 +0000"

#: Most conflicting files of which hunks are shown, most lines of one hunk, most hunks of one file.
_MOST_FILES = 50
_MOST_LINES = 60
_MOST_HUNKS = 20
#: Larger files are named without hunks, bytes.
_LARGEST_FILE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConflictFile:
    """A file that two sides changed in ways that don't fit."""

    path: str
    #: Git's word for it, e.g. ``contents`` or ``modify/delete``; for a patch what failed, if told.
    kind: str = ""
    #: The places, each with its markers, as git would leave them in a working copy.
    hunks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge gave: a tree, whole only if there are no conflicts."""

    tree: str
    conflicts: tuple[ConflictFile, ...] = ()


class Merger:
    """Merges trees of one repository, and remembers the synthetic commits it made.

    Who merges more than once talks to one git process from then on, so use ``with``.
    """

    def __init__(self, git_dir: Path, objects: Objects) -> None:
        self._git = Git(git_dir)
        self._objects = objects
        self._known: dict[tuple[str, str], str] = {}
        self._merges = 0
        self._stream: MergeStream | None = None

    def __enter__(self) -> Merger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def merge(
        self, base: str, ours: str, theirs: str, labels: tuple[str, str] | None = None
    ) -> Merged:
        """Apply the difference from tree ``base`` to tree ``theirs`` to tree ``ours``.

        Args:
            labels: what the two sides are called in the hunks of a conflict; None: no hunks are
                read, only which files conflict.
        """
        if base in (ours, theirs):
            # One side changed nothing: the other is the answer.
            return Merged(theirs if base == ours else ours)
        if ours == theirs:
            return Merged(ours)
        # A git process that is there already is no slower.
        easy = overlay(self._objects, base, ours, theirs) if self._stream is None else None
        return Merged(easy) if easy is not None else self._by_git(base, ours, theirs, labels)

    def _by_git(self, base: str, ours: str, theirs: str, labels: tuple[str, str] | None) -> Merged:
        root = self._commit(base)
        left, right = self._commit(ours, root), self._commit(theirs, root)
        clean, told = self._ask(left, right)
        if clean:
            return Merged(told.partition(b"\0")[0].decode())
        tree, kinds = _read_conflicts(told)
        if labels is None:
            return Merged(tree, tuple(ConflictFile(path, kind) for path, kind in kinds.items()))
        names = {left: labels[0], right: labels[1]}
        return Merged(tree, self._conflicts(tree, kinds, names))

    def _ask(self, left: str, right: str) -> tuple[bool, bytes]:
        """Merge two commits; return whether it is clean, and what git prints of it."""
        self._merges += 1
        if self._merges == 2:
            stream = MergeStream(self._git, left)
            if stream.answers():
                self._stream = stream
            else:
                stream.close()
        if self._stream is not None:
            return self._stream.merge(left, right)
        done = self._git.run(
            "merge-tree", "--write-tree", "-z", "--end-of-options", left, right, ok=(0, 1)
        )
        return done.returncode == 0, done.stdout

    def _commit(self, tree: str, parent: str = "") -> str:
        """Return a synthetic commit of a tree."""
        known = self._known.get((tree, parent))
        if known is None:
            above = f"parent {parent}\n" if parent else ""
            text = f"tree {tree}\n{above}author {_WHO}\ncommitter {_WHO}\n\nperfbisect\n"
            known = self._objects.write("commit", text.encode(), len(tree))
            self._known[tree, parent] = known
        return known

    def _conflicts(
        self, tree: str, kinds: dict[str, str], names: dict[str, str]
    ) -> tuple[ConflictFile, ...]:
        found = []
        for index, (path, kind) in enumerate(kinds.items()):
            hunks = self._hunks(tree, path, names) if index < _MOST_FILES else ()
            found.append(ConflictFile(path, kind, hunks))
        return tuple(found)

    def _hunks(self, tree: str, path: str, names: dict[str, str]) -> tuple[str, ...]:
        try:
            content, cut = self._git.head("cat-file", "blob", f"{tree}:{path}", limit=_LARGEST_FILE)
        except GitError:
            return ()
        if cut or b"\0" in content:
            return ()
        text = content.decode("utf-8", "replace")
        for sha, name in names.items():
            text = text.replace(sha, name)
        return cut_hunks(text)


def cut_hunks(text: str) -> tuple[str, ...]:
    """Return the regions between conflict markers, each after a line that says where it begins."""
    hunks: list[str] = []
    current: list[str] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("<<<<<<< ") and current is None:
            current = [f"@@ line {number} @@"]
        if current is None:
            continue
        if len(current) <= _MOST_LINES or line.startswith((">>>>>>> ", "=======")):
            current.append(line)
        if line.startswith(">>>>>>> "):
            hunks.append("\n".join(current))
            current = None
    return tuple(hunks[:_MOST_HUNKS])


def _read_conflicts(output: bytes) -> tuple[str, dict[str, str]]:
    """Read ``merge-tree -z``: a tree; entries of the index; an empty token; messages.

    Returns:
        The tree, and path -> kind of conflict, in git's order.
    """
    tokens = [token.decode("utf-8", "replace") for token in output.split(b"\0")]
    tree, place = tokens[0], 1
    kinds: dict[str, str] = {}
    while place < len(tokens) and tokens[place]:
        # "<mode> <object> <stage>\t<path>"
        kinds.setdefault(tokens[place].partition("\t")[2], "")
        place += 1
    place += 1
    while place < len(tokens) and re.fullmatch(r"\d+", tokens[place]):
        count = int(tokens[place])
        paths, kind = tokens[place + 1 : place + 1 + count], tokens[place + 1 + count]
        if found := re.fullmatch(r"CONFLICT \((.+)\)", kind):
            for path in paths:
                kinds[path] = kinds.get(path) or found[1]
        place += count + 3
    return tree, kinds
