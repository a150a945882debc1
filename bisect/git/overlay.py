"""The easy part of a three-way merge: where no path was changed on both sides.

Most commits of a large repository touch a few files that nobody else has touched since. Their
merge is then a matter of directories alone. Where git would look closer (contents, renames of files
or directories), the answer is left to git: what is answered here is what git would answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfbisect.git.objects import Entry, Objects, Tree


class _LeftToGitError(Exception):
    """Both sides changed something: only git can tell."""


def overlay(objects: Objects, base: str, ours: str, theirs: str) -> str | None:
    """Return tree ``ours`` with what differs between ``base`` and ``theirs``; None: git must look.

    Args:
        base: and the others: full names of trees.
    """
    objects.read_trees((base, ours, theirs))
    try:
        merged = _merged(objects, base, ours, theirs)
    except _LeftToGitError:
        return None
    return merged if merged is not None else objects.write_tree({}, len(ours))


def _merged(objects: Objects, base: str, ours: str, theirs: str) -> str | None:
    """Return the merged directory; None if it is empty."""
    before, mine, other = objects.tree(base), objects.tree(ours), objects.tree(theirs)
    _refuse_renames(before, mine, other)
    result = dict(mine)
    deeper: dict[bytes, tuple[str, str, str]] = {}
    for name, old, here, there in _changed(before, mine, other):
        if here == old:
            if there is None:
                del result[name]
            else:
                result[name] = there
        elif here is None or here != there or here.is_tree:
            # Equal directories too: what both sides removed may have been renamed on one of them.
            deeper[name] = _directories(old, here, there)
    objects.read_trees(sha for three in deeper.values() for sha in three)
    for name, three in deeper.items():
        merged = _merged(objects, *three)
        if merged is None:
            del result[name]
        else:
            result[name] = Entry(result[name].mode, merged)
    return objects.write_tree(result, len(ours)) if result else None


def _refuse_renames(before: Tree, mine: Tree, other: Tree) -> None:
    """A side that removes and another that adds: git may see a rename, and would follow it."""
    if other.keys() - before.keys() and before.keys() - mine.keys():
        raise _LeftToGitError
    if before.keys() - other.keys() and mine.keys() - before.keys():
        raise _LeftToGitError


def _changed(
    before: Tree, mine: Tree, other: Tree
) -> Iterator[tuple[bytes, Entry | None, Entry | None, Entry | None]]:
    """Yield the entries that differ between ``before`` and ``other``, with what ``mine`` has."""
    for name in before.keys() | other.keys():
        old, there = before.get(name), other.get(name)
        if old != there:
            yield name, old, mine.get(name), there


def _directories(
    old: Entry | None, here: Entry | None, there: Entry | None
) -> tuple[str, str, str]:
    """Return the three directories in which to look on; anything else is git's."""
    if old is None or here is None or there is None:
        raise _LeftToGitError
    if not (old.is_tree and here.is_tree and there.is_tree):
        raise _LeftToGitError
    return old.sha, here.sha, there.sha
