"""Which files differ between two trees, and writing those alone into a directory that has one.

All git here runs in a ``.git`` that was made just now: what a build left in its own is never read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from perfbisect.git.checkout import refused
from perfbisect.git.process import Git, GitError

_MODULE = b"160000"
_NOTHING = b"000000"


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What leads from one tree to another. Paths are relative, as ``os.fsdecode`` gives them."""

    #: Paths that the old tree has, and the new one has otherwise or not at all.
    gone: frozenset[str]
    #: Paths that the new tree has, and the old one has otherwise or not at all.
    come: frozenset[str]


@dataclass(frozen=True, slots=True)
class Listing:
    """The paths of a tree."""

    files: frozenset[str]
    #: Submodules: empty directories.
    modules: frozenset[str]


def changes_between(mirror: Path, old: str, new: str) -> TreeChange:
    """Return what differs between two trees, by their full names.

    Raises:
        InternalError: the mirror lacks one of them.
    """
    arguments = ("diff-tree", "-r", "--raw", "-z", "--no-renames", "--end-of-options", old, new)
    tokens = Git(mirror).tokens(*arguments)
    gone: set[str] = set()
    come: set[str] = set()
    # Without renames each record is ``:MODE MODE SHA SHA STATUS`` and one path.
    for record, path in zip(tokens, tokens, strict=True):
        before, after = record[1:].split(b" ")[:2]
        name = os.fsdecode(path)
        if before != _NOTHING:
            gone.add(name)
        if after != _NOTHING:
            come.add(name)
    return TreeChange(frozenset(gone), frozenset(come))


def read_index(folder: Path, worktree: Path, tree: str, kept: Path) -> Listing:
    """Give a new ``.git`` the index of its HEAD, with what is known of files that stay.

    Args:
        folder: the ``.git``.
        worktree: directory of the files.
        tree: name of HEAD's tree, for messages.
        kept: index of what the directory holds; may be missing.

    Raises:
        BadInputError: the tree holds what git refuses to write.
    """
    if kept.exists():
        shutil.copyfile(kept, folder / "index")
    git = _git(folder, worktree)
    try:
        git.run("read-tree", "--reset", "HEAD", cwd=worktree)
    except GitError as error:
        raise refused(error, tree) from error
    return list_index(folder)


def list_index(folder: Path) -> Listing:
    """Return the paths of a ``.git``'s index."""
    files: set[str] = set()
    modules: set[str] = set()
    for line in Git(folder).tokens("ls-files", "--stage", "-z"):
        facts, _, path = line.partition(b"\t")
        (modules if facts.startswith(_MODULE) else files).add(os.fsdecode(path))
    return Listing(frozenset(files), frozenset(modules))


def write_files(folder: Path, worktree: Path, paths: Collection[str]) -> None:
    """Write files of the index, where nothing is in their way.

    Raises:
        TransientError: the disk failed.
    """
    asked = b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))
    if asked:
        command = ("checkout-index", "--quiet", "--force", "--index", "-z", "--stdin")
        _git(folder, worktree).run(*command, stdin=asked, cwd=worktree)


def refresh_index(folder: Path, worktree: Path) -> None:
    """Let an index know the files that are there, where they are what it says."""
    _git(folder, worktree).run("update-index", "-q", "--refresh", ok=(0, 1), cwd=worktree)


def _git(folder: Path, worktree: Path) -> Git:
    return Git(folder, variables={"GIT_WORK_TREE": str(worktree)})
