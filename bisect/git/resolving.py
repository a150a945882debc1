"""From what a person typed to one commit."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from perfbisect.errors import BadInputError, InternalError, did_you_mean
from perfbisect.git.fetching import UNCHECKED, Fetching
from perfbisect.git.log import read_commits
from perfbisect.git.mirroring import fetch_commit
from perfbisect.git.process import Git, GitError, check_argument
from perfbisect.git.source import Source
from perfbisect.git.values import CommitInfo

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{4,64}")

#: Most refs among which the nearest name is looked for.
_MOST_REFS = 5000

SHALLOW_ADVICE = (
    "the repository's history is shallow: complete it there with `git fetch --unshallow --tags`"
)


def resolve(
    path: Path,
    source: Source | None,
    rev: str,
    field: str,
    fetching: Fetching = UNCHECKED,
) -> CommitInfo:
    """Return the commit that ``rev`` names: a SHA, a tag, a branch, or an expression on one.

    Raises:
        BadInputError: no such commit; names ``field``, the value and the nearest ref.
    """
    check_argument(rev, field)
    git = Git(path)
    if is_full_sha(rev):
        with contextlib.suppress(GitError):
            return commit_info(git, rev)
    sha = _look_up(git, rev) or _elsewhere(git, path, source, rev, fetching)
    if sha is None:
        raise _unknown(path, source, rev, field)
    return commit_info(git, sha)


def commit_info(git: Git, sha: str) -> CommitInfo:
    """Return the commit with this full SHA."""
    commits = read_commits(git, "--no-walk", "--end-of-options", sha, "--")
    if len(commits) != 1:
        raise InternalError(f"git shows {len(commits)} commits for {sha}")
    return commits[0]


def is_full_sha(text: str) -> bool:
    """Return whether this is the full hexadecimal name of an object."""
    return _FULL.fullmatch(text) is not None


def is_shallow(path: Path) -> bool:
    """Return whether the history of a mirror is cut off somewhere."""
    return (path / "shallow").exists()


def _look_up(git: Git, rev: str) -> str | None:
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
    done = git.run(*arguments, ok=(0, 1, 128))
    found = done.stdout.decode("utf-8", "replace").strip()
    return found if done.returncode == 0 and _FULL.fullmatch(found) else None


def _elsewhere(
    git: Git, path: Path, source: Source | None, rev: str, fetching: Fetching
) -> str | None:
    """Look where git does not: other spellings of a branch, and the source itself."""
    if (remote := _remote_branch(git, rev)) is not None:
        return remote
    if source is None:
        return None
    if not source.local and rev.startswith("origin/"):
        return _look_up(git, f"refs/heads/{rev.removeprefix('origin/')}")
    wanted: str | None = rev
    if source.local:
        # Its reflog, its stash, and commits that are on no branch any more.
        wanted = _look_up(Git(Path(source.url)), rev)
    if wanted and _FULL.fullmatch(wanted) and fetch_commit(source, path, wanted, fetching):
        return _look_up(git, wanted)
    return None


def _remote_branch(git: Git, rev: str) -> str | None:
    """Return the commit of the only remote-tracking branch of this name, as git switch does."""
    if re.search(r"[\[*?~^:@{\\ ]|\.\.", rev):
        return None
    refs = git.text("for-each-ref", "--format=%(objectname)", f"refs/remotes/*/{rev}").split()
    return refs[0] if len(refs) == 1 else None


def _unknown(path: Path, source: Source | None, rev: str, field: str) -> BadInputError:
    why = _reason(Git(path), rev)
    if not why:
        where = f"'{source.shown}'" if source is not None else "the repository"
        near = did_you_mean(rev, _ref_names(Git(path)))
        why = f"{where} has no such revision{near}"
        if _HEXADECIMAL.fullmatch(rev):
            why += "; if it is a commit, it is on none of the branches and tags there"
        elif not near:
            why += "; give a commit, a branch or a tag"
        if is_shallow(path):
            why += f"; {SHALLOW_ADVICE}"
    return BadInputError(f"{field}: '{rev}': {why}", field=field, value=rev)


def _reason(git: Git, rev: str) -> str:
    """Return why a revision names no commit; empty if git just does not know it."""
    if re.match(r"(HEAD|@)\b|@$|@[~^]", rev) and _look_up(git, "HEAD") is None:
        return (
            "the repository's HEAD is on a branch without commits; name another branch or a commit"
        )
    said = git.run("rev-parse", "--verify", "--end-of-options", rev, ok=(0, 1, 128))
    if "ambiguous" in said.stderr and said.returncode != 0:
        names = re.findall(r"^hint:\s+([0-9a-f]{4,64}) commit", said.stderr, re.MULTILINE)
        return f"several objects begin with it ({', '.join(names[:5])}…): give more digits"
    if said.returncode == 0:
        kind = git.run("cat-file", "-t", said.stdout.decode().strip(), ok=(0, 128))
        if kind.returncode == 0:
            return f"this is a {kind.stdout.decode().strip()}, not a commit"
    return ""


def _ref_names(git: Git) -> list[str]:
    kinds = ("refs/heads", "refs/tags", "refs/remotes")
    shown = git.text(
        "for-each-ref", f"--count={_MOST_REFS}", "--format=%(refname:lstrip=2)", *kinds
    )
    return shown.split("\n")
