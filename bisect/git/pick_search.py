"""The search for what a fix needs: choose commits until it applies, then leave out what can go.

The set grows on demand: where a commit conflicts, whoever made the lines that it meets otherwise
comes along, and may conflict in turn (``causes``). Merges are remembered by the tree they started
from, so that little is done twice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perfbisect.core.minimise import Subset, prune
from perfbisect.errors import InternalError
from perfbisect.git.causes import Causes
from perfbisect.git.merging import ConflictFile, Merger
from perfbisect.git.objects import Objects
from perfbisect.git.process import Git, Progress
from perfbisect.git.revisions import Delta
from perfbisect.git.values import BareCommit, CommitInfo

#: Most commits taken together while the set grows.
MOST_COMMITS = 400


@dataclass(frozen=True, slots=True)
class _Stop:
    """A commit that conflicted on the way."""

    #: Its place; None for the fix itself.
    place: int | None
    #: The tree that it did not apply to.
    tree: str
    files: tuple[ConflictFile, ...]


@dataclass(frozen=True, slots=True)
class _Applied:
    """What picking a sequence of commits, and then the fix, gave."""

    #: After the last commit that applied.
    tree: str
    places: tuple[int, ...]
    stops: tuple[_Stop, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """Why no set was found."""

    #: What the fix did not apply to.
    tree: str
    why: str


class PickSearch:
    """The state of one search: what is chosen, what was tried, and every merge so far."""

    def __init__(
        self,
        git: Git,
        objects: Objects,
        merger: Merger,
        base: CommitInfo,
        fix: Delta,
        between: Sequence[CommitInfo],
        deadline: float,
    ) -> None:
        self._git = git
        self._objects = objects
        self._merger = merger
        self._causes = Causes(git, base.sha)
        self._base = base
        self._fix = fix
        self._between = between
        self._places = {commit.sha: place for place, commit in enumerate(between)}
        self._trees = {commit.sha: commit.tree for commit in between}
        self._deadline = deadline
        #: (tree before, place) -> tree after, or the conflict; place None is the fix.
        self._known: dict[tuple[str, int | None], str | tuple[ConflictFile, ...]] = {}
        self._asked: dict[tuple[str, int | None], set[int]] = {}
        self._required: set[int] = set()
        self.chosen: set[int] = set()
        self.tried: set[int] = set()
        self.merges = 0

    def require(self, names: Collection[str]) -> None:
        """Take these commits along whatever happens; those that can't be applied are left out."""
        self._required = {self._places[name] for name in names if name in self._places}
        self.chosen |= self._required
        self.tried |= self._required

    def grow(self, progress: Progress | None) -> Miss | None:
        """Choose commits until the fix applies; return why it can't be done, if so."""
        while True:
            applied = self._apply(sorted(self.chosen), past_conflicts=True)
            # What conflicts on the way and is not required was not needed after all.
            unmet = [s for s in applied.stops if s.place is None or s.place in self._required]
            wanted: set[int] = set()
            for stop in applied.stops if unmet else ():
                if not self.late():
                    wanted |= self._wanted(stop)
            why = self._no_further(wanted) if unmet else ""
            if why and unmet[-1].place is None:
                self.chosen = set(applied.places)
                return Miss(unmet[-1].tree, why)
            if why or not unmet:
                self.chosen = set(applied.places)
                self._required &= self.chosen
                return None
            self.chosen |= wanted
            self.tried |= wanted
            if progress is not None:
                progress(f"{len(self.chosen)} commits taken along")

    def _no_further(self, wanted: Collection[int]) -> str:
        """Return why these commits are not to be taken along, too; empty if they are."""
        if self.late():
            return "it took too long"
        if len(self.chosen.union(wanted)) > MOST_COMMITS:
            return f"more than {MOST_COMMITS} commits would be needed"
        if self.chosen.issuperset(wanted):
            return "no earlier commit touches what still conflicts"
        return ""

    def pruned(self, progress: Progress | None) -> tuple[int, ...]:
        """Return the places of a smallest set with which the fix applies."""
        spare = sorted(self.chosen - self._required)

        def places(subset: Subset) -> list[int]:
            return sorted(self._required.union(spare[i] for i in subset))

        def holds(subset: Subset) -> bool:
            # Out of time: what is left is a set that does it, only perhaps not the smallest.
            return not self.late() and not self._apply(places(subset)).stops

        if progress is not None:
            progress(f"it applies with {len(self.chosen)}; leaving out what is not needed")
        return self._apply(places(prune(len(spare), holds))).places

    def late(self) -> bool:
        """Return whether time ran out."""
        return time.monotonic() > self._deadline

    def does_nothing(self) -> bool:
        """Return whether the fix changes nothing on the base as it is."""
        applied = self._apply(())
        return not applied.stops and applied.tree == self._base.tree

    def tree_with(self, places: Sequence[int]) -> str:
        """Return the tree of the base with these commits and the fix, which applies to them."""
        return self._apply(places).tree

    def _apply(self, places: Sequence[int], *, past_conflicts: bool = False) -> _Applied:
        """Pick in order, then the fix; stop at the first conflict or go on without its commit."""
        tree = self._base.tree
        done: list[int] = []
        stops: list[_Stop] = []
        for place in (*places, None):
            outcome = self._known.get((tree, place))
            if outcome is None:
                outcome = self._known[tree, place] = self._merge(tree, place)
            if not isinstance(outcome, str):
                stops.append(_Stop(place, tree, outcome))
                if not past_conflicts:
                    break
                continue
            # What is there already changes nothing, and need not come along.
            if place is not None and outcome != tree:
                done.append(place)
            tree = outcome
        return _Applied(tree, tuple(done), tuple(stops))

    def _merge(self, tree: str, place: int | None) -> str | tuple[ConflictFile, ...]:
        if place is None:
            before, after = self._fix.before, self._fix.after
        else:
            before, after = self._before(self._between[place]), self._between[place].tree
        self.merges += 1
        merged = self._merger.merge(before, tree, after)
        return merged.conflicts or merged.tree

    def _before(self, commit: BareCommit) -> str:
        if not commit.parents:
            return self._git.text("hash-object", "-t", "tree", "-w", "--stdin")
        parent = commit.parents[0]
        if parent not in self._trees:
            found = self._objects.commit(parent)
            if found is None:
                raise InternalError(f"the mirror has no commit {parent}")
            self._trees[parent] = found.tree
        return self._trees[parent]

    def _wanted(self, stop: _Stop) -> set[int]:
        """Return commits that may make a conflicting one apply; the surest not yet chosen."""
        key = (stop.tree, stop.place)
        if key not in self._asked:
            self._asked[key] = set()
            commit = self._fix.commit if stop.place is None else self._between[stop.place]
            for tell in (self._causes.by_lines, self._causes.by_files):
                names = tell(commit, stop.tree, stop.files)
                places = {self._places[name] for name in names if name in self._places}
                if new := places - self.chosen:
                    self._asked[key] = new
                    break
        return self._asked[key]
