"""Why a commit conflicts with a tree: which earlier commits made the lines that differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfbisect.git.merging import ConflictFile
from perfbisect.git.process import Git
from perfbisect.git.values import BareCommit

#: Most places of one file that are looked into.
_MOST_PLACES = 100
#: Longest text that is looked for, and shortest that tells anything, characters.
_LONGEST_TEXT = 200
_SHORTEST_TEXT = 8

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_BLAMED = re.compile(r"^([0-9a-f]{40,64}) \d+ \d+(?: \d+)?$")


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines of one side replaced by lines of another; a count may be 0."""

    first: int
    count: int
    new_first: int
    new_count: int
    removed: tuple[str, ...]


class Causes:
    """Answers for one repository and one base; what was compared once is remembered."""

    def __init__(self, git: Git, base: str) -> None:
        """Make one.

        Args:
            base: the names sought are of commits that it does not contain.
        """
        self._git = git
        self._base = base
        self._compared: dict[tuple[str, str], tuple[_Hunk, ...]] = {}

    def by_lines(self, commit: BareCommit, tree: str, files: Sequence[ConflictFile]) -> set[str]:
        """Return who wrote or removed the lines that ``commit`` meets otherwise in ``tree``.

        Args:
            tree: what ``commit`` did not apply to.
            files: where they met.
        """
        if not commit.parents:
            return set()
        found: set[str] = set()
        for file in files:
            lines, gone = self._differing(commit, tree, file.path)
            found |= self._writers(commit.parents[0], file.path, lines)
            found |= self._removers(commit.parents[0], file.path, gone)
        return found

    def by_files(self, commit: BareCommit, tree: str, files: Sequence[ConflictFile]) -> set[str]:
        """Return who touched the conflicting files at all; arguments as in ``by_lines``."""
        paths = [f":(literal){file.path}" for file in files]
        log = ("log", "--no-merges", "--format=%H", f"{commit.sha}^@", f"^{self._base}", "--")
        return set(self._git.text(*log, *paths).split())

    def _differing(
        self, commit: BareCommit, tree: str, path: str
    ) -> tuple[list[tuple[int, int]], list[str]]:
        """Return the places, in the parent's lines, that ``commit`` needs and ``tree`` lacks.

        Returns:
            First and last lines; and texts that ``tree`` has where the parent has nothing.
        """
        parent = commit.parents[0]
        mine = self._hunks(f"{parent}:{path}", f"{commit.sha}:{path}")
        # "New" is what the parent has where the tree has something else.
        theirs = self._hunks(f"{tree}:{path}", f"{parent}:{path}")
        lines: list[tuple[int, int]] = []
        gone: list[str] = []
        for hunk in mine:
            # Changes that only touch each other conflict as well.
            first, last = hunk.first - 1, hunk.first + max(hunk.count, 1)
            for other in theirs:
                start, end = other.new_first, other.new_first + max(other.new_count, 1) - 1
                if last < start or end + (other.new_count == 0) < first:
                    continue
                if other.new_count:
                    lines.append((max(first, start), min(last, end)))
                else:
                    gone.append(max(other.removed, key=len, default="").strip())
        return lines, gone

    def _hunks(self, before: str, after: str) -> tuple[_Hunk, ...]:
        known = self._compared.get((before, after))
        if known is None:
            known = self._compared[before, after] = tuple(_compare(self._git, before, after))
        return known

    def _writers(self, parent: str, path: str, lines: Sequence[tuple[int, int]]) -> set[str]:
        """Return who wrote these lines of a file, of those whom the base does not contain."""
        wanted = [(max(a, 1), b) for a, b in lines if b >= max(a, 1)][:_MOST_PLACES]
        if not wanted:
            return set()
        ranges = [option for first, last in wanted for option in ("-L", f"{first},{last}")]
        told = self._git.run(
            "blame", "--porcelain", *ranges, f"^{self._base}", parent, "--", path, ok=(0, 128)
        )
        text = told.stdout.decode("utf-8", "replace")
        return {found[1] for line in text.split("\n") if (found := _BLAMED.match(line))}

    def _removers(self, parent: str, path: str, gone: Sequence[str]) -> set[str]:
        """Return who changed how often these texts occur in a file; their removers among them."""
        found: set[str] = set()
        for text in dict.fromkeys(text[:_LONGEST_TEXT] for text in gone[:_MOST_PLACES]):
            if len(text) >= _SHORTEST_TEXT:
                log = ("log", "--no-merges", "--format=%H", f"-S{text}", parent)
                told = self._git.text(*log, f"^{self._base}", "--", f":(literal){path}")
                found |= set(told.split())
        return found


def _compare(git: Git, before: str, after: str) -> Iterator[_Hunk]:
    """Yield what differs between two files; nothing if one is missing or they are binary."""
    done = git.run("diff", "-U0", "--no-ext-diff", "--no-color", before, after, "--", ok=(0, 128))
    current: tuple[int, int, int, int] | None = None
    removed: list[str] = []
    for line in done.stdout.decode("utf-8", "replace").split("\n"):
        if found := _HUNK.match(line):
            if current is not None:
                yield _Hunk(*current, tuple(removed))
            first, count, new_first, new_count = found.groups(default="1")
            current = (int(first), int(count), int(new_first), int(new_count))
            removed = []
        elif line.startswith("-"):
            removed.append(line[1:])
    if current is not None:
        yield _Hunk(*current, tuple(removed))
