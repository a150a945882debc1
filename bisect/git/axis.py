"""The ordered candidates between two commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfbisect.core.states import Find
from perfbisect.errors import BadInputError, PerfbisectError
from perfbisect.git.log import read_candidates
from perfbisect.git.process import Git, GitError, hides_something
from perfbisect.git.resolving import SHALLOW_ADVICE, commit_info, is_shallow
from perfbisect.git.values import Candidate, CommitInfo


def candidates(
    path: Path,
    good: CommitInfo,
    bad: CommitInfo,
    *,
    find: Find,
    all_parents: bool,
    paths: Sequence[str],
) -> list[Candidate]:
    """Return the axis, earlier end first and both included; see ``Mirror.candidates``."""
    earlier, later = (bad, good) if find is Find.FIX else (good, bad)
    git = Git(path)
    _check_ends(git, path, good, bad, find)
    _check_filters(paths)
    between = f"{earlier.sha}..{later.sha}"
    options = ["--reverse", "--topo-order"]
    options.append("--full-history" if all_parents else "--first-parent")
    try:
        chosen = read_candidates(git, *options, "--end-of-options", between, "--", *paths)
    except GitError as error:
        raise _bad_filters(error, paths) from error
    if not chosen:
        raise _bad_range(
            good,
            bad,
            f"no commit between them touches {', '.join(paths)}; widen the filter",
            "paths",
        )
    if not paths and not all_parents and earlier.sha not in chosen[0].parents[:1]:
        raise _off_the_line(good, bad, earlier, chosen)
    if chosen[-1].sha != later.sha:
        chosen.append(_one(git, later.sha))
    return [_one(git, earlier.sha), *chosen]


def same_wheel(
    axis: Sequence[Candidate], irrelevant: Callable[[str], bool] | None = None
) -> dict[int, int]:
    """Return position -> smallest position with the same wheel; own representatives are left out.

    Equal trees share a wheel. With ``irrelevant``, so does a commit with its parent on the axis if
    all that it touches is irrelevant to the build.
    """
    first: dict[str, int] = {}
    found: list[int] = []
    for position, candidate in enumerate(axis):
        representative = first.get(candidate.tree, position)
        if (
            representative == position
            and irrelevant is not None
            and position > 0
            and candidate.parents[:1] == (axis[position - 1].sha,)
            and not candidate.paths_cut
            and all(map(irrelevant, candidate.paths))
        ):
            representative = found[position - 1]
        first.setdefault(candidate.tree, representative)
        found.append(representative)
    return {position: own for position, own in enumerate(found) if own != position}


def _one(git: Git, sha: str) -> Candidate:
    (found,) = read_candidates(git, "--no-walk", "--end-of-options", sha, "--")
    return found


def _check_ends(git: Git, path: Path, good: CommitInfo, bad: CommitInfo, find: Find) -> None:
    """Refuse ends that span no range, and say what to do.

    Raises:
        BadInputError: equal ends, ends the wrong way round, or neither an ancestor of the other.
    """
    if good.sha == bad.sha:
        raise _bad_range(good, bad, "they are the same commit, so there is nothing between them")
    earlier, later = (bad, good) if find is Find.FIX else (good, bad)
    if is_ancestor(git, earlier.sha, later.sha):
        return
    if is_ancestor(git, later.sha, earlier.sha):
        if find is Find.FIX:
            advice = "good is the older one; to find what made it bad, leave out `--find fix`"
        else:
            advice = "bad is the older one: swap them, or look for what made it good: `--find fix`"
        raise _bad_range(good, bad, advice)
    older = "good" if earlier is good else "bad"
    bases = git.run("merge-base", "--end-of-options", good.sha, bad.sha, ok=(0, 1))
    names = bases.stdout.decode().split()
    if names:
        base = commit_info(git, names[0])
        why = (
            f"{older} is not an ancestor of the other end; their merge base is {_shown(base)}: "
            f"if that is {older} too, give it as {older}"
        )
    else:
        why = "their histories have no commit in common"
    if is_shallow(path):
        why += f"; {SHALLOW_ADVICE}"
    raise _bad_range(good, bad, why)


def is_ancestor(git: Git, earlier: str, later: str) -> bool:
    """Return whether ``later`` contains ``earlier``."""
    arguments = ("merge-base", "--is-ancestor", "--end-of-options", earlier, later)
    return git.run(*arguments, ok=(0, 1)).returncode == 0


def _check_filters(paths: Sequence[str]) -> None:
    for text in paths:
        if not text or hides_something(text):
            raise BadInputError(
                f"paths: {text!r} is no path; give paths or globs as git takes them after --",
                field="paths",
                value=text,
            )


def _bad_filters(error: GitError, paths: Sequence[str]) -> PerfbisectError:
    """Return what to say of a failed log: filters that git can't use are its caller's mistake."""
    said = error.stderr.lower()
    if not paths or not ("outside repository" in said or "pathspec" in said):
        return error
    return BadInputError(
        f"paths: git can't use {', '.join(map(repr, paths))}; give paths or globs inside the "
        "repository, from its root",
        field="paths",
        value=list(paths),
    )


def _off_the_line(
    good: CommitInfo, bad: CommitInfo, earlier: CommitInfo, chosen: Sequence[Candidate]
) -> BadInputError:
    """Explain that the earlier end came in by a merge: the first parents never pass through it."""
    older = "good" if earlier is good else "bad"
    start = chosen[0].parents[0] if chosen[0].parents else chosen[0].sha
    return _bad_range(
        good,
        bad,
        f"{older} was merged in from a side branch, so the line of first parents does not pass "
        f"through it; begin at {start[:12]} on that line, or walk every commit with --all-parents",
        older,
    )


def _shown(commit: CommitInfo) -> str:
    return f"{commit.sha[:12]} ('{commit.subject[:80]}', {commit.committed_at:%Y-%m-%d})"


def _bad_range(good: CommitInfo, bad: CommitInfo, why: str, field: str = "good") -> BadInputError:
    return BadInputError(
        f"good {good.sha[:12]} and bad {bad.sha[:12]}: {why}", field=field, value=good.sha
    )
