"""Putting a tree on disk for a build: the files, and a real ``.git`` that borrows the objects."""

from __future__ import annotations

from pathlib import Path

from perfbisect.errors import BadInputError, InternalError
from perfbisect.git.bounds import require_moderate
from perfbisect.git.process import Git, GitError

_WHO = "perfbisect"
_MAIL = "perfbisect@localhost"


def checkout_tree(mirror: Path, tree: str, commit: str, dest: Path) -> None:
    """Write the files of ``tree`` to ``dest``, with a ``.git`` whose HEAD has that tree.

    HEAD is ``commit``; where the tree is not the commit's own, it is a commit of the tree on top of
    it, the same each time. Tags are there, so that ``git describe --tags`` works. Objects are
    borrowed: the mirror must stay readable at the same absolute path as long as git is used there.
    No hook, filter (LFS pointers stay pointers) or submodule is run; symbolic links are written as
    they are and never followed.

    Raises:
        BadInputError: the tree holds what git refuses to write, e.g. a path below ``.git``.
        TransientError: the disk failed.
        InternalError: ``dest`` is there and not empty, or the mirror lacks the objects.
    """
    if dest.exists() and any(dest.iterdir()):
        raise InternalError(f"'{dest}' is not empty, so nothing is checked out there")
    make_git(mirror, tree, commit, dest)
    worktree = Git(dest / ".git", variables={"GIT_WORK_TREE": str(dest)})
    try:
        worktree.run("read-tree", "-u", "--reset", "HEAD", cwd=dest)
    except GitError as error:
        raise refused(error, tree) from error


def make_git(mirror: Path, tree: str, commit: str, dest: Path) -> None:
    """Make ``dest/.git`` as ``checkout_tree`` does, without index and files.

    Raises:
        BadInputError: the tree holds more than any disk.
        TransientError: the disk failed.
        InternalError: the mirror lacks the objects.
    """
    require_moderate(mirror, tree)
    _prepare(mirror, commit, dest)
    git = Git(dest / ".git", variables=_signature(mirror, commit))
    head = commit
    if git.text("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}") != tree:
        message = f"Changes of a revision on top of {commit}\n".encode()
        head = git.text("commit-tree", tree, "-p", commit, "-F", "-", stdin=message)
    git.run("update-ref", "--no-deref", "HEAD", head)


def _prepare(mirror: Path, commit: str, dest: Path) -> None:
    """Make ``dest/.git``: empty, but for the way to the mirror's objects, tags and limits."""
    dest.mkdir(parents=True, exist_ok=True)
    sort = "sha256" if len(commit) == 64 else "sha1"
    Git(None).run(
        "init", "--quiet", "--template=", f"--object-format={sort}", "--", str(dest), cwd=dest
    )
    folder = dest / ".git"
    source = mirror.resolve()
    (folder / "objects/info").mkdir(parents=True, exist_ok=True)
    (folder / "objects/info/alternates").write_text(f"{source}/objects\n")
    shallow = source / "shallow"
    if shallow.exists():
        (folder / "shallow").write_bytes(shallow.read_bytes())
    tags = Git(mirror).text("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
    if tags:
        (folder / "packed-refs").write_text(f"# pack-refs with: sorted\n{tags}\n")


def _signature(mirror: Path, commit: str) -> dict[str, str]:
    """Return the identity of a synthetic commit; its date is the base's, so that it is stable."""
    dated = Git(mirror).text("show", "-s", "--format=@%ct +0000", commit, "--")
    return {
        "GIT_AUTHOR_NAME": _WHO,
        "GIT_AUTHOR_EMAIL": _MAIL,
        "GIT_AUTHOR_DATE": dated,
        "GIT_COMMITTER_NAME": _WHO,
        "GIT_COMMITTER_EMAIL": _MAIL,
        "GIT_COMMITTER_DATE": dated,
    }


def refused(error: GitError, tree: str) -> Exception:
    """Return what to raise where git does not take a tree: it may be the tree's own fault."""
    if "invalid path" in error.stderr:
        return BadInputError(
            f"tree: {tree} can't be checked out: {error.message}", field="tree", value=tree
        )
    return error
