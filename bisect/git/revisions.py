"""From a revision (a base and changes) to the tree it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perfbisect.core.revision import Action, Change, Revision
from perfbisect.errors import BadInputError
from perfbisect.git.axis import is_ancestor
from perfbisect.git.merging import ConflictFile, Merger
from perfbisect.git.objects import Objects
from perfbisect.git.patching import LARGEST_PATCH, apply_patch
from perfbisect.git.process import Git, check_argument
from perfbisect.git.values import BareCommit

#: Most changes of one revision.
MOST_CHANGES = 500

#: Reads a revision's commit: (what was typed, field) -> commit.
Resolve = Callable[[str, str], BareCommit]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The revision is this tree."""

    tree: str
    #: Full SHA of the base commit.
    base: str
    #: The same revision, with full SHAs.
    revision: Revision


@dataclass(frozen=True, slots=True)
class Conflict:
    """A change does not apply to what the changes before it gave."""

    change: Change
    files: tuple[ConflictFile, ...]
    #: What may explain it; empty where nothing does.
    note: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """A change changes nothing: building it would measure the same wheel again."""

    change: Change
    why: str


@dataclass(frozen=True, slots=True)
class Delta:
    """A change of trees: what a commit did, or its reverse."""

    before: str
    after: str
    commit: BareCommit


def resolve_revision(
    path: Path,
    revision: Revision,
    resolve: Resolve,
    patches: Mapping[str, bytes],
) -> Resolved | Conflict | Empty:
    """Return the tree of a revision; see ``Mirror.resolve_revision``.

    Args:
        resolve: asked about what is not plainly a commit of the mirror; finds or explains it.
    """
    if len(revision.changes) > MOST_CHANGES:
        raise BadInputError(
            f"changes: a revision has at most {MOST_CHANGES} changes, this has "
            f"{len(revision.changes)}",
            field="changes",
            value=len(revision.changes),
        )
    with Objects(path) as objects, Merger(path, objects) as merger:
        named = [(revision.base, "base")]
        named += [(c.ref, c.kind.value) for c in revision.changes if c.kind is not Action.PATCH]
        objects.read_commits({check_argument(rev, field) for rev, field in named})

        def look_up(rev: str, field: str) -> BareCommit:
            return objects.commit(check_argument(rev, field)) or resolve(rev, field)

        return _applied(path, merger, revision, look_up, patches)


def _applied(
    path: Path,
    merger: Merger,
    revision: Revision,
    resolve: Resolve,
    patches: Mapping[str, bytes],
) -> Resolved | Conflict | Empty:
    base = resolve(revision.base, "base")
    tree = base.tree
    named: list[Change] = []
    for change in revision.changes:
        if change.kind is Action.PATCH:
            outcome = _patched(path, tree, change, patches)
        else:
            delta = read_delta(Git(path), change, resolve)
            change = replace(change, ref=delta.commit.sha)
            outcome = _merged(path, merger, base.sha, tree, change, delta, tuple(named))
        if not isinstance(outcome, str):
            return outcome
        tree = outcome
        named.append(change)
    return Resolved(tree, base.sha, Revision(base.sha, tuple(named)))


def read_delta(git: Git, change: Change, resolve: Resolve) -> Delta:
    """Return what a revert or pick does to a tree.

    Raises:
        BadInputError: no such commit, or a merge without its parent, or a parent it has not.
    """
    commit = resolve(change.ref, change.kind.value)
    parent = _parent_of(change, commit)
    before = _empty_tree(git) if parent is None else resolve(parent, change.kind.value).tree
    if change.kind is Action.REVERT:
        return Delta(commit.tree, before, commit)
    return Delta(before, commit.tree, commit)


def _parent_of(change: Change, commit: BareCommit) -> str | None:
    count = len(commit.parents)
    field = change.kind.value
    if change.parent is None:
        if count > 1:
            listed = ", ".join(f"{i} is {p[:12]}" for i, p in enumerate(commit.parents, 1))
            raise BadInputError(
                f"{field}: {commit.sha[:12]} is a merge, so say against which parent it is seen: "
                f"`{field} {change.ref} parent N` ({listed})",
                field=field,
                value=change.ref,
            )
        return commit.parents[0] if commit.parents else None
    if not 1 <= change.parent <= count:
        raise BadInputError(
            f"{field}: {commit.sha[:12]} has {count} parent{'' if count == 1 else 's'}, "
            f"so there is no parent {change.parent}",
            field=field,
            value=change.ref,
        )
    return commit.parents[change.parent - 1]


def _empty_tree(git: Git) -> str:
    return git.text("hash-object", "-t", "tree", "-w", "--stdin")


def _merged(
    path: Path,
    merger: Merger,
    base: str,
    tree: str,
    change: Change,
    delta: Delta,
    before: tuple[Change, ...],
) -> str | Conflict | Empty:
    """Return the tree after a revert or pick, or why there is none."""
    if delta.before == delta.after:
        return Empty(change, "the commit itself changes nothing")
    labels = ("the revision so far", str(replace(change, ref=change.ref[:12])))
    merged = merger.merge(delta.before, tree, delta.after, labels)
    if not merged.conflicts and merged.tree != tree:
        return merged.tree
    inside = is_ancestor(Git(path), delta.commit.sha, base)
    undone = any(c.ref == change.ref and c.kind is not change.kind for c in before)
    if merged.conflicts:
        return Conflict(change, merged.conflicts, _note(change, inside, undone))
    if change.kind is Action.PICK:
        return Empty(change, "already there: the base contains what it does")
    if inside or undone:
        return Empty(change, "already reverted: nothing of it is left")
    return Empty(change, "the base does not contain it, so there is nothing to revert")


def _note(change: Change, inside: bool, undone: bool) -> str:
    if undone:
        return ""
    if change.kind is Action.PICK and inside:
        return "the commit is part of the base already; later commits changed the same lines"
    if change.kind is Action.REVERT and not inside:
        return "the commit is not part of the base"
    return ""


def _patched(
    path: Path, tree: str, change: Change, patches: Mapping[str, bytes]
) -> str | Conflict | Empty:
    if change.ref not in patches:
        raise BadInputError(
            f"patch: the text of '{change.ref}' was not given", field="patch", value=change.ref
        )
    text = patches[change.ref]
    if len(text) > LARGEST_PATCH:
        raise BadInputError(
            f"patch: '{change.ref}' has {len(text)} bytes; at most {LARGEST_PATCH} are taken",
            field="patch",
            value=change.ref,
        )
    done = apply_patch(path, tree, text)
    if done.malformed:
        raise BadInputError(
            f"patch: '{change.ref}' is no patch that git can read: {done.malformed}",
            field="patch",
            value=change.ref,
        )
    if done.conflicts:
        return Conflict(change, done.conflicts)
    if done.there or done.tree == tree:
        return Empty(change, "already there: the tree contains all of the patch")
    return done.tree
