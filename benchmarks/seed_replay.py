"""The summer of 2019 replayed by the planner: builds, runs and simulated hours for W workers.

    python -m benchmarks.seed_replay [--trials 20] [--workers 1 4 16] [--json FILE]

The commit graph is the real one (tests/data), with trees made for it; throughput, noise (CV 2%),
outliers (2% of runs at 0.6), unbuildable clumps (8%) and nightly wheels follow the public story.
Each setting is measured with and without the prior by touched paths, side by side in one run.
Builds take one hour, runs five minutes; with one worker, builds and runs share the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tests.helpers.seed_repository import BAD, GOOD, SeedAxis, generate, tell_story

from perfbisect.core.facts import Facts, Finish, FloatArray, Policy
from perfbisect.core.planner import plan
from perfbisect.core.prior import path_weights
from perfbisect.core.simulation import Bench, SimulationSpec
from perfbisect.core.states import Find
from perfbisect.history import open_mirror


@dataclass(frozen=True)
class Range:
    """The seed's range as the planner sees it."""

    n: int
    #: Shape (n,): by touched paths, and all alike.
    weights: FloatArray
    same_as: dict[int, int]
    story: SeedAxis


class ReplayBench(Bench):
    """A simulated bench whose world is the seed's story."""

    def __init__(self, spec: SimulationSpec, seed: int, range_: Range, weights: FloatArray) -> None:
        super().__init__(spec, seed)
        broken = np.zeros(range_.n + 1, dtype=np.bool_)
        broken[list(range_.story.broken)] = True
        levels = np.log(np.array(range_.story.levels) / 1000.0)
        ends = {0, range_.n}
        self.world = replace(
            self.world,
            level=levels,
            broken=broken,
            prebuilt=frozenset(range_.story.nightlies) | ends,
            truth=tuple((step - 1, step) for step in range_.story.steps),
        )
        self.wheels = set(self.world.prebuilt)
        self.weights = weights
        self._same_as = range_.same_as

    def facts(self) -> Facts:
        """Return the facts, with equal trees told."""
        return replace(super().facts(), same_as=self._same_as)


def load_range(directory: Path) -> Range:
    """Generate the repository and read the range as the product does."""
    repository = generate(directory / "repository")
    mirror = open_mirror(directory / "repository", directory / "mirrors")
    candidates = mirror.candidates(repository.sha(GOOD), repository.sha(BAD))
    first: dict[str, int] = {}
    same_as = {}
    for position, candidate in enumerate(candidates):
        representative = first.setdefault(candidate.tree, position)
        if representative != position:
            same_as[position] = representative
    shas = [candidate.sha for candidate in candidates]
    weights = path_weights([candidate.paths for candidate in candidates[1:]])
    return Range(len(candidates) - 1, weights, same_as, tell_story(repository, shas))


def run_trial(bench: ReplayBench) -> dict[str, float | bool]:
    """Run one bisection to its end."""
    while True:
        decision = plan(bench.facts())
        for action in decision.actions:
            if isinstance(action, Finish):
                steps = decision.belief.steps if decision.belief else ()
                named = {(step.before, step.after) for step in steps if step.verified}
                wanted = set(bench.world.truth)
                if bench.spec.policy.find is Find.FIRST:
                    wanted = {bench.world.truth[0]}
                return {
                    "exact": named == wanted,
                    "builds": bench.builds,
                    "runs": bench.runs,
                    "wall_hours": bench.clock / 3600,
                    "machine_hours": bench.machine / 3600,
                    "confidence": decision.belief.confidence if decision.belief else 0.0,
                }
            bench.start(action)
        bench.advance()


def measure(range_: Range, find: Find, workers: int, prior: str, trials: int) -> dict[str, object]:
    """Return means over trials of one setting."""
    spec = SimulationSpec(
        commits=range_.n,
        steps=(),
        noise=0.02,
        outliers=0.02,
        workers=workers,
        policy=Policy(find=find),
    )
    weights = range_.weights if prior == "paths" else np.ones(range_.n)
    rows = [run_trial(ReplayBench(spec, seed, range_, weights)) for seed in range(trials)]
    means = {key: round(float(np.mean([row[key] for row in rows])), 2) for key in rows[0]}
    return {"find": find.value, "workers": workers, "prior": prior, "trials": trials, **means}


def main() -> None:
    """Print one line per setting as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--find", nargs="+", default=["all", "first"])
    parser.add_argument("--prior", nargs="+", default=["paths", "uniform"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as directory:
        range_ = load_range(Path(directory))
        story = range_.story
        print(
            f"{range_.n} commits (first parents), {len(story.broken)} unbuildable, "
            f"{len(story.nightlies)} nightly wheels, steps at {story.steps}",
            flush=True,
        )
        for find in map(Find, options.find):
            for workers in options.workers:
                for prior in options.prior:
                    result = measure(range_, find, workers, prior, options.trials)
                    results.append(result)
                    print("  ".join(f"{key}={value}" for key, value in result.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
