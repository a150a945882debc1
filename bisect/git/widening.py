"""A set of picks applies but does not build: which commits made what the build misses?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfbisect.core.missing import what_is_missing
from perfbisect.core.revision import Change
from perfbisect.git.prerequisites import NearestMiss, PickSet, find_prerequisites
from perfbisect.git.process import Git
from perfbisect.git.revisions import Resolve
from perfbisect.git.values import CommitInfo

#: Most files in which a name is looked for, and most commits that come along for their files.
_MOST_FILES = 40
_MOST_BY_FILES = 40


@dataclass(frozen=True, slots=True)
class Wider:
    """A larger set, and why it may build where the smaller one did not."""

    found: PickSet
    why: str


@dataclass(frozen=True, slots=True)
class NothingWider:
    """There is nothing more to add."""

    why: str


def widen(
    path: Path,
    base: CommitInfo,
    fix: Change,
    members: Sequence[str],
    lines: Sequence[str],
    resolve: Resolve,
    *,
    max_seconds: float,
) -> Wider | NothingWider:
    """Return a set that applies and has the members, and more of what a failed build points at.

    Args:
        members: full SHAs, without the fix.
        lines: the telling lines of the failed build.
    """
    git = Git(path)
    deadline = time.monotonic() + max_seconds
    tip = resolve(fix.ref, "pick").sha
    for why, names in _suspects(git, base.sha, tip, members, lines):
        new = [name for name in names if name not in members]
        if not new or time.monotonic() > deadline:
            continue
        found = find_prerequisites(
            path,
            base,
            fix,
            resolve,
            keep=(*members, *new),
            max_seconds=deadline - time.monotonic(),
            progress=None,
        )
        if isinstance(found, NearestMiss):
            continue
        if {each.commit.sha for each in found.prerequisites} - set(members):
            return Wider(found, why)
    return NothingWider("no earlier commit was found that makes what the build misses")


def _suspects(
    git: Git, base: str, tip: str, members: Sequence[str], lines: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield commits to try together, the surest first, each time with the reason."""
    between = (f"{tip}^@", f"^{base}")
    missing = what_is_missing(lines)
    makers: dict[str, str] = {}
    for name in missing.names:
        makers |= _first_new(name, _makers(git, tip, between, name), members)
    for file in missing.paths:
        makers |= _first_new(file, _log(git, between, f":(glob)**/{file}"), members)
    if makers:
        told = ", ".join(f"'{what}'" for what in dict.fromkeys(makers.values()))
        yield f"the build misses {told}", list(makers)
    for shas, whose in (([tip], "the fix"), (members, "the set")):
        touched = _log(git, between, *(f":(literal){file}" for file in _files(git, shas)))
        new = [sha for sha in touched if sha not in members]
        if 0 < len(new) <= _MOST_BY_FILES:
            yield f"these touch the files of {whose}", new


def _first_new(what: str, found: Sequence[str], members: Sequence[str]) -> dict[str, str]:
    """Return the oldest commit that is not a member, with what it makes."""
    return next(({sha: what} for sha in found if sha not in members), {})


def _makers(git: Git, tip: str, between: Sequence[str], name: str) -> list[str]:
    """Return who changed how often a name occurs where the fix's own tree has it, oldest first."""
    told = git.run("grep", "-l", "-z", "-w", "-F", "-e", name, tip, "--", ok=(0, 1)).stdout
    files = [file.decode("utf-8", "replace").partition(":")[2] for file in told.split(b"\0")]
    spelled = [f":(literal){file}" for file in files if file][:_MOST_FILES]
    return _log(git, (*between, f"-S{name}"), *spelled) if spelled else []


def _files(git: Git, shas: Sequence[str]) -> list[str]:
    """Return the files that commits touch."""
    listed = "".join(f"{sha}\n" for sha in shas).encode()
    arguments = ("diff-tree", "--stdin", "-r", "--no-commit-id", "--name-only", "-z")
    told = git.run(*arguments, stdin=listed).stdout.decode("utf-8", "replace")
    return list(dict.fromkeys(name for name in told.split("\0") if name))


def _log(git: Git, selection: Sequence[str], *paths: str) -> list[str]:
    """Return the commits that touch paths, oldest first."""
    if not paths:
        return []
    shown = git.text("log", "--no-merges", "--reverse", "--format=%H", *selection, "--", *paths)
    return shown.split()
