"""How long one decision takes at n = 10,000 with 500 points, beside listing a range with git.

    python benchmarks/search/speed.py [--repository DIR --range A..B]

Without a repository one with 4,406 commits is generated, as many as the seed's range has.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from perfbisect.core.facts import Facts, Observation, Policy
from perfbisect.core.planner import plan
from perfbisect.core.states import Purpose

COMMITS = 4406


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


def milliseconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Return the median time of one call."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)


def generate(directory: Path) -> str:
    """Make a repository with a line of commits, each touching one file; return the range."""
    subprocess.run(["git", "init", "-q", "--bare", str(directory)], check=True)
    stream = []
    for number in range(COMMITS + 1):
        text = f"change {number}"
        stream.append(
            f"commit refs/heads/main\ncommitter a <a@example.com> {1_560_000_000 + 600 * number} "
            f"+0000\ndata {len(text)}\n{text}\nM 100644 inline src/f{number % 97}.c\n"
            f"data {len(text)}\n{text}\n"
        )
    git = ["git", "-C", str(directory)]
    subprocess.run([*git, "fast-import", "--quiet"], input="".join(stream).encode(), check=True)
    subprocess.run([*git, "gc", "-q"], check=True)
    return f"main~{COMMITS}..main"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", type=Path, default=None)
    parser.add_argument("--range", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        repository = arguments.repository or Path(scratch) / "line.git"
        commits = arguments.range or generate(repository)
        command = ["git", "-C", str(repository), "rev-list", "--first-parent", commits]
        listing = milliseconds(lambda: subprocess.run(command, capture_output=True, check=True))
    print(f"git rev-list --first-parent: {listing:.1f} ms")
    for positions in (25, 60, 120, 250):
        facts = facts_of(positions, 500)
        decision = milliseconds(lambda facts=facts: plan(facts))  # type: ignore[misc]
        print(
            f"one decision, 500 points on {positions:3d} positions: {decision:6.1f} ms, "
            f"{decision / listing:.2f} of the listing"
        )


if __name__ == "__main__":
    main()
