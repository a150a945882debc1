"""A fix does not apply to a release branch: which earlier commits must come along?

The set grows on demand: where a commit conflicts, whoever made the lines that it meets otherwise
comes along, and may conflict in turn (``causes``). Once the fix applies, the set is pruned until no
member can go. Merges are remembered by the tree they started from, so that little is done twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perfbisect.core.minimise import Subset, prune
from perfbisect.core.revision import Action, Change, Revision
from perfbisect.errors import BadInputError, InternalError
from perfbisect.git.causes import Causes
from perfbisect.git.log import read_commits
from perfbisect.git.merging import ConflictFile, Merger
from perfbisect.git.objects import Objects
from perfbisect.git.process import Git, Progress
from perfbisect.git.revisions import Conflict, Delta, Resolve, read_delta
from perfbisect.git.values import BareCommit, CommitInfo

#: Most commits taken together while the set grows.
MOST_COMMITS = 400


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """A commit that must come along."""

    commit: CommitInfo
    #: Size of its patch, lines.
    added: int
    removed: int
    #: What it touches: all of this is dragged in.
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PickSet:
    """A smallest set with which the fix applies: none of its members can be left out."""

    #: Oldest first; empty if the fix applies by itself.
    prerequisites: tuple[Prerequisite, ...]
    #: Base, the prerequisites, the fix.
    revision: Revision
    tree: str
    #: False: time ran out, and some members may not be needed.
    smallest: bool
    #: Commits that were tried, and merges it took.
    considered: int
    merges: int


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """No set was found: what still conflicts with the most that could be applied."""

    prerequisites: tuple[CommitInfo, ...]
    conflict: Conflict
    #: Why the search ended.
    why: str
    considered: int
    merges: int


def find_prerequisites(
    path: Path,
    base: CommitInfo,
    fix: Change,
    resolve: Resolve,
    *,
    max_seconds: float,
    progress: Progress | None,
) -> PickSet | NearestMiss:
    """Return a smallest set of commits with which a fix applies; see ``Mirror.prerequisites``."""
    with Objects(path) as objects, Merger(path, objects) as merger:
        return _found(path, objects, merger, base, fix, resolve, max_seconds, progress)


def _found(
    path: Path,
    objects: Objects,
    merger: Merger,
    base: CommitInfo,
    fix: Change,
    resolve: Resolve,
    max_seconds: float,
    progress: Progress | None,
) -> PickSet | NearestMiss:
    git = Git(path)
    delta = read_delta(git, fix, resolve)
    between = _between(git, base, delta.commit)
    search = _Search(git, objects, merger, base, delta, between, time.monotonic() + max_seconds)
    if search.does_nothing():
        named = f"the base {base.sha[:12]} contains what {delta.commit.sha[:12]} does"
        raise BadInputError(f"pick: {named} already", field="pick", value=fix.ref)
    miss = search.grow(progress)
    change = Change(Action.PICK, delta.commit.sha, fix.parent)
    if miss is not None:
        found = tuple(between[place] for place in sorted(search.chosen))
        labels = ("the nearest that was found", f"pick {delta.commit.sha[:12]}")
        shown = merger.merge(delta.before, miss.tree, delta.after, labels)
        conflict = Conflict(change, shown.conflicts)
        return NearestMiss(found, conflict, miss.why, len(search.tried), search.merges)
    kept = search.pruned(progress)
    picks = [between[place] for place in kept]
    changes = tuple(Change(Action.PICK, commit.sha) for commit in picks)
    return PickSet(
        tuple(map(partial(_measured, git), picks)),
        Revision(base.sha, (*changes, change)),
        search.tree_with(kept),
        not search.late(),
        len(search.tried),
        search.merges,
    )


def _between(git: Git, base: CommitInfo, fix: BareCommit) -> list[CommitInfo]:
    """Return the commits that the fix builds on and the base has not, without merges, oldest first.

    Raises:
        BadInputError: the base contains the fix, or they have nothing in common.
    """
    common = git.run("merge-base", "--end-of-options", base.sha, fix.sha, ok=(0, 1)).stdout.split()
    if not common:
        raise BadInputError(
            f"pick: {fix.sha[:12]} and the base {base.sha[:12]} have no commit in common",
            field="pick",
            value=fix.sha,
        )
    if common[0].decode() == fix.sha:
        raise BadInputError(
            f"pick: the base {base.sha[:12]} contains {fix.sha[:12]} already",
            field="pick",
            value=fix.sha,
        )
    selection = ["--topo-order", "--reverse", "--no-merges"]
    return read_commits(git, *selection, f"{fix.sha}^@", f"^{base.sha}", "--")


def _measured(git: Git, commit: CommitInfo) -> Prerequisite:
    shown = git.text("diff-tree", "--root", "--no-commit-id", "-r", "--numstat", "-z", commit.sha)
    rows = [row.split("\t", 2) for row in shown.split("\0") if row.count("\t") >= 2]
    added, removed = (sum(int(row[i]) for row in rows if row[i].isdigit()) for i in (0, 1))
    return Prerequisite(commit, added, removed, tuple(row[2] for row in rows))


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
class _Miss:
    #: What the fix did not apply to.
    tree: str
    why: str


class _Search:
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
        self.chosen: set[int] = set()
        self.tried: set[int] = set()
        self.merges = 0

    def grow(self, progress: Progress | None) -> _Miss | None:
        """Choose commits until the fix applies; return why it can't be done, if so."""
        while True:
            applied = self._apply(sorted(self.chosen), past_conflicts=True)
            last = applied.stops[-1] if applied.stops else None
            if last is None or last.place is not None:
                # What conflicted on the way was not needed after all.
                self.chosen = set(applied.places)
                return None
            wanted: set[int] = set()
            for stop in applied.stops:
                if not self.late():
                    wanted |= self._wanted(stop)
            why = ""
            if self.late():
                why = "it took too long"
            elif len(self.chosen | wanted) > MOST_COMMITS:
                why = f"more than {MOST_COMMITS} commits would be needed"
            elif wanted <= self.chosen:
                why = "no earlier commit touches what still conflicts"
            if why:
                self.chosen = set(applied.places)
                return _Miss(last.tree, why)
            self.chosen |= wanted
            self.tried |= wanted
            if progress is not None:
                progress(f"{len(self.chosen)} commits taken along")

    def pruned(self, progress: Progress | None) -> tuple[int, ...]:
        """Return the places of a smallest set with which the fix applies."""
        grown = sorted(self.chosen)

        def holds(subset: Subset) -> bool:
            # Out of time: what is left is a set that does it, only perhaps not the smallest.
            return not self.late() and not self._apply([grown[i] for i in subset]).stops

        if progress is not None:
            progress(f"it applies with {len(grown)}; leaving out what is not needed")
        kept = prune(len(grown), holds)
        return self._apply([grown[i] for i in kept]).places

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
