"""What it costs to bring a kept source tree from one commit to the next: in place, and afresh.

    python -m benchmarks.checkouts [--clone PATH] [--rev master] [--count 10]

Without a clone, a repository of TensorFlow's size is made up (``benchmarks.synthetic``). Each
commit is put into two kept trees, in turn: one is updated in place, the other compared with a fresh
checkout that is made beside it. Prints seconds, how many files were written, and the ratio of the
medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.synthetic import make_synthetic

from perfbisect.building.checkout import sync_tree
from perfbisect.building.kept_tree import KeptTree
from perfbisect.git.checkout import checkout_tree
from perfbisect.git.process import Git
from perfbisect.history import open_mirror

_T = TypeVar("_T")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clone", type=Path, help="a repository that is there, e.g. TensorFlow")
    parser.add_argument("--rev", default="master")
    parser.add_argument("--count", type=int, default=10)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfbisect-checkouts-") as name:
        scratch = Path(name)
        source = chosen.clone or make_synthetic(scratch / "synthetic").path
        mirror = open_mirror(source, scratch / "mirrors").path
        listed = ("rev-list", "--first-parent", "--reverse", f"--max-count={chosen.count + 1}")
        commits = Git(mirror).text(*listed, "--end-of-options", chosen.rev).split()
        measure(mirror, commits, scratch)


def measure(mirror: Path, commits: list[str], scratch: Path) -> None:
    """Bring two kept trees along some commits, and print what that took."""
    kept = KeptTree(scratch / "one" / "src")
    (scratch / "one").mkdir()
    seconds: dict[str, list[float]] = {"in place": [], "afresh": []}
    for commit in commits:
        tree = Git(mirror).text("rev-parse", f"{commit}^{{tree}}")
        ours, updated = _timed(lambda: kept.update(mirror, tree, commit))  # noqa: B023
        afresh, _ = _timed(lambda: _afresh(mirror, tree, commit, scratch))  # noqa: B023
        print(f"{commit[:10]}: {ours:.2f} s, afresh {afresh:.2f} s; {updated}", flush=True)
        if commit != commits[0]:
            seconds["in place"].append(ours)
            seconds["afresh"].append(afresh)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    print(", ".join(f"{name}: {each:.3f} s" for name, each in medians.items()), end="")
    print(f" (medians); {medians['afresh'] / medians['in place']:.1f} times as fast")


def _afresh(mirror: Path, tree: str, commit: str, scratch: Path) -> None:
    checkout_tree(mirror, tree, commit, scratch / "incoming")
    sync_tree(scratch / "incoming", scratch / "other")


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


if __name__ == "__main__":
    main()
