"""A fix does not apply to a release branch: which earlier commits must come along?

Here is what is asked and answered; the search itself is in ``pick_search``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perfbisect.core.revision import Action, Change, Revision
from perfbisect.errors import BadInputError
from perfbisect.git.log import read_commits
from perfbisect.git.merging import Merger
from perfbisect.git.objects import Objects
from perfbisect.git.pick_search import PickSearch
from perfbisect.git.process import Git, Progress
from perfbisect.git.revisions import Conflict, Resolve, read_delta
from perfbisect.git.values import BareCommit, CommitInfo


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
    keep: Sequence[str] = (),
    max_seconds: float,
    progress: Progress | None,
    make_merger: Callable[[Path, Objects], Merger] = Merger,
) -> PickSet | NearestMiss:
    """Return a smallest set of commits with which a fix applies; see ``Mirror.prerequisites``.

    Args:
        keep: full SHAs of commits that come along in any case, as far as they apply.
    """
    git = Git(path)
    delta = read_delta(git, fix, resolve)
    between = _between(git, base, delta.commit)
    deadline = time.monotonic() + max_seconds
    change = Change(Action.PICK, delta.commit.sha, fix.parent)
    with Objects(path) as objects, make_merger(path, objects) as merger:
        search = PickSearch(git, objects, merger, base, delta, between, deadline)
        if search.does_nothing():
            named = f"the base {base.sha[:12]} contains what {delta.commit.sha[:12]} does"
            raise BadInputError(f"pick: {named} already", field="pick", value=fix.ref)
        search.require(keep)
        miss = search.grow(progress)
        if miss is None:
            return _found(git, search, base, between, change, progress)
        nearest = tuple(between[place] for place in sorted(search.chosen))
        labels = ("the nearest that was found", f"pick {delta.commit.sha[:12]}")
        shown = merger.merge(delta.before, miss.tree, delta.after, labels)
        conflict = Conflict(change, shown.conflicts)
        return NearestMiss(nearest, conflict, miss.why, len(search.tried), search.merges)


def _found(
    git: Git,
    search: PickSearch,
    base: CommitInfo,
    between: Sequence[CommitInfo],
    change: Change,
    progress: Progress | None,
) -> PickSet:
    kept = search.pruned(progress)
    picks = [between[place] for place in kept]
    changes = tuple(Change(Action.PICK, commit.sha) for commit in picks)
    return PickSet(
        tuple(map(partial(measured, git), picks)),
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


def measured(git: Git, commit: CommitInfo) -> Prerequisite:
    """Return a commit with the size of its patch."""
    shown = git.text("diff-tree", "--root", "--no-commit-id", "-r", "--numstat", "-z", commit.sha)
    rows = [row.split("\t", 2) for row in shown.split("\0") if row.count("\t") >= 2]
    added, removed = (sum(int(row[i]) for row in rows if row[i].isdigit()) for i in (0, 1))
    return Prerequisite(commit, added, removed, tuple(row[2] for row in rows))
