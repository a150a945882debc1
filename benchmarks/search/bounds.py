"""How near the planner comes to what no strategy can beat, for one step.

    python benchmarks/search/bounds.py --trials 40

Two settings. *Levels known*: every wheel is there and both ends have been measured a hundred times
before; counted are the runs of the search, and of its verification, against the larger of Fano's
bound and of what both neighbours of the step need. *Levels unknown*: nothing is known and nothing
is built; counted is the machine time (builds of 60 minutes, runs of 5) against the time of as many
builds and runs as the bounds allow. ``find = first``: the bound is about the place of one step.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from peers import fewest_runs

from perfbisect.core.facts import Finish, Observation, Policy
from perfbisect.core.planner import plan
from perfbisect.core.simulation import Bench, SimulationSpec, simulate
from perfbisect.core.states import Find, Purpose

COMMITS = 1000
NOISE = 0.02
ENDS_MEASURED = 100


def spec_of(ratio: float) -> SimulationSpec:
    """Return a search for one step of ``ratio`` noise scales."""
    change = math.expm1(-ratio * NOISE)
    policy = Policy(find=Find.FIRST, min_effect=0.8 * abs(change))
    return SimulationSpec(commits=COMMITS, steps=(change,), noise=NOISE, policy=policy)


def known_levels(spec: SimulationSpec, seed: int) -> tuple[bool, int, int]:
    """Return whether the step was found, the runs of the search, and those that verified it."""
    bench = Bench(replace(spec, prebuilt_every=1), seed)
    for end in (0, spec.commits):
        noise = bench.rng.normal(0.0, spec.noise, ENDS_MEASURED)
        values = 1000.0 * np.exp(bench.world.level[end]) * (1.0 + noise)
        bench.observations += [
            Observation(end, float(value), "host-1", 0.0, Purpose.ANCHOR) for value in values
        ]
    verifying = 0
    while True:
        decision = plan(bench.facts())
        for action in decision.actions:
            if isinstance(action, Finish):
                belief = decision.belief
                steps = belief.steps if belief is not None else ()
                named = tuple((s.before, s.after) for s in steps if s.verified)
                return named == bench.world.truth, bench.runs - verifying, verifying
            verifying += getattr(action, "purpose", None) is Purpose.VERIFY
            bench.start(action)
        bench.advance()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seeds = np.random.SeedSequence(arguments.seed).generate_state(arguments.trials).tolist()
    builds = 0.99 * math.log2(COMMITS) - 0.08
    for ratio in arguments.ratios:
        spec, fewest = spec_of(ratio), fewest_runs(COMMITS, ratio)
        known = np.array([known_levels(spec, seed) for seed in seeds], dtype=np.float64)
        right, search, verify = known.mean(axis=0)
        print(
            f"step of {ratio:g} noise scales, levels known: right {100 * right:.0f}%, {search:.1f} "
            f"runs of search + {verify:.1f} of verification; bound {fewest:.1f}; ratio "
            f"{search / fewest:.2f} without and {(search + verify) / fewest:.2f} with verification",
            flush=True,
        )
        results = [simulate(spec, seed) for seed in seeds]
        cost = float(np.mean([r.machine_seconds for r in results])) / 3600
        least = (builds * spec.build_seconds + fewest * spec.run_seconds) / 3600
        print(
            f"step of {ratio:g} noise scales, levels unknown: right "
            f"{100 * np.mean([r.exact for r in results]):.0f}%, "
            f"{np.mean([r.runs for r in results]):.1f} runs, "
            f"{np.mean([r.builds for r in results]):.1f} builds, {cost:.1f} h; bound {least:.1f} "
            f"h; ratio {cost / least:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
