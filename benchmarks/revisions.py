"""How fast a revision becomes a tree: against the bare merge, and against git in a working copy.

    python benchmarks/revisions.py PATH-OF-A-REPOSITORY [--rev master] [--count 20]

Reverts the latest commits of a branch one by one on its head, and prints medians in milliseconds
and ratios as JSON. The repository is mirrored into a temporary directory and never written to.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perfbisect.core.revision import reverting
from perfbisect.git.process import Git
from perfbisect.history import CommitInfo, Mirror, Resolved, open_mirror

_WHO = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--rev", default="HEAD")
    parser.add_argument("--count", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfbisect-benchmark-") as scratch:
        mirror = open_mirror(chosen.repository, Path(scratch) / "mirrors")
        print(json.dumps(measure(mirror, chosen.rev, chosen.count, Path(scratch)), indent=2))


def measure(mirror: Mirror, rev: str, count: int, scratch: Path) -> dict[str, float]:
    """Return medians in milliseconds over the reverts that apply, and their ratios."""
    head = mirror.resolve(rev)
    work = scratch / "work"
    mirror.checkout_tree(head.tree, head.sha, work)
    ours: list[float] = []
    bare: list[float] = []
    worktree: list[float] = []
    for commit in _latest(mirror, head, 10 * count):
        start = time.perf_counter()
        outcome = mirror.resolve_revision(reverting(head.sha, commit.sha))
        seconds = time.perf_counter() - start
        if not isinstance(outcome, Resolved):
            continue
        ours.append(seconds)
        bare.append(_timed(_bare_merge(mirror, head, commit)))
        worktree.append(_timed(_revert(work, head, commit)))
        if len(ours) == count:
            break
    medians = [1000 * statistics.median(values) for values in (ours, bare, worktree)]
    return {
        "reverts": len(ours),
        "revision_ms": medians[0],
        "bare_merge_ms": medians[1],
        "working_copy_ms": medians[2],
        "times_the_bare_merge": medians[0] / medians[1],
        "times_faster_than_a_working_copy": medians[2] / medians[0],
    }


def _latest(mirror: Mirror, head: CommitInfo, count: int) -> list[CommitInfo]:
    names = Git(mirror.path).text("rev-list", "--no-merges", f"--max-count={count}", head.sha)
    return [mirror.commit(name) for name in names.split() if name != head.sha]


def _bare_merge(mirror: Mirror, head: CommitInfo, commit: CommitInfo) -> Callable[[], object]:
    """Return the very merge that the revert is, with its commits made beforehand."""
    git = Git(mirror.path)
    made = (*_WHO, "commit-tree", "-m", "x")
    base = git.text(*made, commit.tree)
    left = git.text(*made, "-p", base, head.tree)
    right = git.text(*made, "-p", base, f"{commit.sha}^^{{tree}}")
    return lambda: git.run("merge-tree", "--write-tree", left, right)


def _revert(work: Path, head: CommitInfo, commit: CommitInfo) -> Callable[[], object]:
    """Return what a person would do in a working copy: go to the head, revert."""
    git = ["git", *_WHO]

    def revert() -> None:
        subprocess.run([*git, "checkout", "-q", "--detach", head.sha], cwd=work, check=True)
        subprocess.run([*git, "revert", "-n", commit.sha], cwd=work, check=True)
        subprocess.run([*git, "reset", "-q", "--hard"], cwd=work, check=True)

    return revert


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
