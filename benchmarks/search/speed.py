"""How long one decision takes at n = 10,000 with 500 points, beside listing a range with git.

    python benchmarks/search/speed.py [--repository DIR --range A..B]

Without a repository one is generated with the graph of TensorFlow's summer of 2019: the 4,406
commits of tests/data. Like a fresh mirror it is one pack without a commit-graph file. Both are
measured in turn, and as processor time, which neighbours on the machine disturb least.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers.seed_repository import generate

from perfbisect.core.facts import Facts, Observation, Policy
from perfbisect.core.planner import plan
from perfbisect.core.states import Purpose

POINTS = 500
REPEATS = 41


def facts_of(positions: int, points: int, n: int = 10_000, seed: int = 1) -> Facts:
    """Return facts in the middle of a search for three steps of 10% at 2% of noise."""
    rng = np.random.default_rng(seed)
    wheels = np.unique(np.append(rng.choice(n, positions - 2, replace=False), [0, n]))
    steps = np.array([0.21, 0.52, 0.83]) * n
    observations = []
    for at, position in enumerate(rng.choice(wheels, points)):
        level = 1000.0 * 0.9 ** int((position >= steps).sum())
        value = level * (1 + 0.02 * float(rng.standard_normal()))
        observations.append(Observation(int(position), value, "local", 300.0 * at))
    for at, end in enumerate((0, n, n, 0)):
        value = 1000.0 if end == 0 else 729.0
        observations.append(Observation(end, value, "local", 10.0 * at, Purpose.ANCHOR))
    return Facts(
        n=n,
        policy=Policy(),
        weights=np.ones(n),
        wheels=frozenset(wheels.tolist()),
        observations=tuple(observations),
    )


def decision_time(facts: Facts) -> float:
    """Return the processor time of one decision, milliseconds."""
    started = time.process_time()
    plan(facts)
    return 1000 * (time.process_time() - started)


def listing_time(repository: Path, commits: str) -> float:
    """Return the processor time of listing the range with git, milliseconds."""
    command = ["git", "-C", str(repository), "rev-list", "--first-parent", commits]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", type=Path, default=None)
    parser.add_argument("--range", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        repository, commits = arguments.repository, arguments.range or "HEAD"
        if repository is None:
            repository, commits = Path(scratch) / "seed.git", "master"
            generate(repository)
        for positions in (25, 60, 120, 250):
            facts = facts_of(positions, POINTS)
            plan(facts)
            pairs = [
                (decision_time(facts), listing_time(repository, commits)) for _ in range(REPEATS)
            ]
            decision, listing = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                f"one decision, {POINTS} points on {positions:3d} positions: {decision:5.1f} ms; "
                f"git rev-list --first-parent: {listing:5.1f} ms; ratio {decision / listing:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
