"""How fast a revision becomes a tree, and how fast what a fix needs is found: against bare git.

    python -m benchmarks.revisions [--clone PATH] [--rev master] [--count 40] [--rounds 3]

Without a clone, a repository of TensorFlow's size is made up (``benchmarks.synthetic``). Prints
medians in milliseconds and ratios as JSON. All that is compared takes turns on the same machine.
The repository is mirrored into a temporary directory and never written to.

- ``revert``: the latest commits reverted one by one on the head of ``--rev``: as a revision, as the
  bare ``git merge-tree`` of commits made beforehand, and in a working copy.
- ``prerequisites``: what the fix needs on the release branch; beside it every merge that this took,
  repeated as a bare ``git merge-tree``.

A clone of TensorFlow that has the commits is also asked what is known of them: whether ef9f0e8 can
be reverted on 3205135, in how many files 96a407a conflicts there, and what it needs.
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
from typing import Any

from benchmarks.synthetic import make_synthetic

from perfbisect.core.revision import Action, Change, picking, reverting
from perfbisect.errors import BadInputError
from perfbisect.git.merging import Merged, Merger
from perfbisect.git.prerequisites import find_prerequisites
from perfbisect.git.process import Completed, Git
from perfbisect.history import CommitInfo, Conflict, Mirror, PickSet, Resolved, open_mirror

#: Of TensorFlow: the bad end, the commit that made it slow, the fix, and what it is known to need.
BAD, CULPRIT, FIX, NEEDED = "3205135", "ef9f0e8", "96a407a", "6d8f05a"

_WHO = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clone", type=Path, help="a repository that is there, e.g. TensorFlow")
    parser.add_argument("--rev", default="master")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfbisect-benchmark-") as name:
        scratch = Path(name)
        made = None if chosen.clone else make_synthetic(scratch / "synthetic")
        mirror = open_mirror(made.path if made else chosen.clone, scratch / "mirrors")
        found = {"revert": measure_reverts(mirror, chosen.rev, chosen.count, scratch)}
        if made is not None:
            found["prerequisites"] = measure_prerequisites(mirror, "r2.0", made.fix, chosen.rounds)
        else:
            found["tensorflow"] = tensorflow_facts(mirror, chosen.rounds)
        print(json.dumps(found, indent=2))


def measure_reverts(mirror: Mirror, rev: str, count: int, scratch: Path) -> dict[str, Any]:
    """Return medians over the reverts that apply, and the medians of their ratios."""
    head = mirror.resolve(rev)
    work = scratch / "work"
    mirror.checkout_tree(head.tree, head.sha, work)
    rows: list[tuple[float, float, float]] = []
    for commit in _latest(mirror, head, 10 * count):
        revision = reverting(head.sha, commit.sha)
        bare = _bare_merge(mirror, head, commit)
        if bare().returncode != 0:
            continue
        # In turn, so that neither always finds the disk's cache warmed by the other.
        work_of = {"ours": lambda: mirror.resolve_revision(revision), "bare": bare}  # noqa: B023
        order = ("ours", "bare") if len(rows) % 2 else ("bare", "ours")
        seconds = {name: _timed(work_of[name]) for name in order}
        rows.append((seconds["ours"], seconds["bare"], _timed(_revert(work, head, commit))))
        if len(rows) == count:
            break
    ours, bare_merge, working_copy = (
        1000 * statistics.median(column) for column in zip(*rows, strict=True)
    )
    return {
        "reverts": len(rows),
        "revision_ms": ours,
        "bare_merge_ms": bare_merge,
        "working_copy_ms": working_copy,
        "times_the_bare_merge": statistics.median(a / b for a, b, _ in rows),
        "times_faster_than_a_working_copy": statistics.median(c / a for a, _, c in rows),
    }


def measure_prerequisites(mirror: Mirror, base: str, fix: str, rounds: int) -> dict[str, Any]:
    """Return what a fix needs, and the time it takes beside that of its bare merges."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        found = mirror.prerequisites(base, fix)
        ours.append(time.perf_counter() - start)
        bare.append(_sum_of_bare_merges(mirror, base, fix))
    answer: dict[str, Any] = {
        "found": isinstance(found, PickSet),
        "commits": len(found.prerequisites),
        "considered": found.considered,
        "merges": found.merges,
        "seconds": statistics.median(ours),
        "bare_merges_seconds": statistics.median(bare),
        "times_its_bare_merges": statistics.median(a / b for a, b in zip(ours, bare, strict=True)),
    }
    if isinstance(found, PickSet):
        answer["needs"] = [each.commit.sha for each in found.prerequisites]
    return answer


class _BareMerger(Merger):
    """Merges as ever, and then once more with a git of its own, which is timed."""

    #: Seconds of all the merges of git's own.
    seconds = 0.0

    def merge(
        self, base: str, ours: str, theirs: str, labels: tuple[str, str] | None = None
    ) -> Merged:
        """Merge, and time the bare merge."""
        root = self._commit(base)
        left, right = self._commit(ours, root), self._commit(theirs, root)
        _BareMerger.seconds += _timed(
            lambda: self._git.run("merge-tree", "--write-tree", left, right, ok=(0, 1))
        )
        return super().merge(base, ours, theirs, labels)


def _sum_of_bare_merges(mirror: Mirror, base: str, fix: str) -> float:
    """Return the seconds of every merge of a search, each by a git of its own."""
    _BareMerger.seconds = 0.0
    find_prerequisites(
        mirror.path,
        mirror.resolve(base),
        Change(Action.PICK, fix),
        mirror.resolve,
        max_seconds=3600.0,
        progress=None,
        make_merger=_BareMerger,
    )
    return _BareMerger.seconds


def tensorflow_facts(mirror: Mirror, rounds: int) -> dict[str, Any]:
    """Return what is known of TensorFlow's summer of 2019, as this clone tells it."""
    try:
        culprit = mirror.resolve_revision(reverting(BAD, CULPRIT))
        fix = mirror.resolve_revision(picking(BAD, FIX))
    except BadInputError as error:
        return {"skipped": f"this clone is another repository, or too shallow: {error}"}
    needs = measure_prerequisites(mirror, BAD, FIX, rounds)
    return {
        "revert_applies": isinstance(culprit, Resolved),
        "pick_conflicts_in_files": len(fix.files) if isinstance(fix, Conflict) else 0,
        "prerequisites": needs,
        "needs_what_is_known": any(sha.startswith(NEEDED) for sha in needs.get("needs", ())),
    }


def _latest(mirror: Mirror, head: CommitInfo, count: int) -> list[CommitInfo]:
    names = Git(mirror.path).text("rev-list", "--no-merges", f"--max-count={count}", head.sha)
    return [mirror.commit(name) for name in names.split() if name != head.sha]


def _bare_merge(mirror: Mirror, head: CommitInfo, commit: CommitInfo) -> Callable[[], Completed]:
    """Return the very merge that the revert is, with its commits made beforehand."""
    git = Git(mirror.path)
    made = (*_WHO, "commit-tree", "-m", "x")
    base = git.text(*made, commit.tree)
    left = git.text(*made, "-p", base, head.tree)
    right = git.text(*made, "-p", base, f"{commit.sha}^^{{tree}}")
    return lambda: git.run("merge-tree", "--write-tree", left, right, ok=(0, 1))


def _revert(work: Path, head: CommitInfo, commit: CommitInfo) -> Callable[[], object]:
    """Return what a person would do in a working copy: go to the head, revert."""
    git = ["git", *_WHO]

    def run(*arguments: str) -> None:
        subprocess.run([*git, *arguments], cwd=work, check=True, stdout=subprocess.DEVNULL)

    def revert() -> None:
        run("checkout", "-q", "--detach", head.sha)
        run("revert", "-n", commit.sha)
        run("reset", "-q", "--hard")

    return revert


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
