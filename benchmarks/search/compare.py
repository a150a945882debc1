"""Compare the planner with its peers on the same simulated worlds, side by side in one run.

    python benchmarks/search/compare.py --trials 40 --cells one-3 three-10 --json out.json

Prints a table, and how true the stated probabilities are. Trials of a cell share their seeds
across strategies. ``--grid N`` runs the planner on N trials spread over the whole grid instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import itertools

from cells import CELLS, Cell, grid
from peers import PEERS, Lab, fewest_runs

from perfbisect.core.simulation import SimulationSpec, simulate

OURS = "perfbisect"


@dataclass(frozen=True, slots=True)
class Trial:
    """One bisection by one strategy."""

    exact: bool
    wrong: int
    missing: int
    runs: int
    builds: int
    wall_hours: float
    #: Stated probability; None where the strategy states none.
    probability: float | None
    seconds: float


def run_trial(strategy: str, spec: SimulationSpec, seed: int) -> Trial:
    """Run one strategy on one world."""
    started = time.perf_counter()
    if strategy == OURS:
        result = simulate(spec, seed)
        return Trial(
            result.exact,
            result.wrong,
            result.missing,
            result.runs,
            result.builds,
            result.wall_seconds / 3600,
            result.probability,
            time.perf_counter() - started,
        )
    lab = Lab.open(spec, seed)
    named = PEERS[strategy](lab)
    truth = set(lab.world.truth)
    return Trial(
        named == truth,
        len(named - truth),
        len(truth - named),
        lab.runs,
        lab.builds,
        lab.wall / 3600,
        None,
        time.perf_counter() - started,
    )


def run_cell(
    cell: Cell, strategy: str, trials: int, seed: int, pool: ProcessPoolExecutor
) -> list[Trial]:
    """Run all trials of a cell, spread evenly over its specs."""
    seeds = np.random.SeedSequence([seed, len(cell.specs)]).generate_state(trials).tolist()
    specs = [cell.specs[k % len(cell.specs)] for k in range(trials)]
    return list(pool.map(run_trial, [strategy] * trials, specs, seeds, chunksize=1))


def summary(trials: list[Trial]) -> dict[str, float]:
    """Summarise the trials of one cell."""
    runs = np.array([t.runs for t in trials], dtype=np.float64)
    stated = [t.probability for t in trials if t.probability is not None]
    return {
        "trials": len(trials),
        "exact": float(np.mean([t.exact for t in trials])),
        "wrong": float(np.mean([t.wrong > 0 for t in trials])),
        "runs": float(runs.mean()),
        "runs_p95": float(np.percentile(runs, 95)),
        "builds": float(np.mean([t.builds for t in trials])),
        "wall_hours": float(np.mean([t.wall_hours for t in trials])),
        "probability": float(np.mean(stated)) if stated else float("nan"),
        "seconds_per_trial": float(np.mean([t.seconds for t in trials])),
    }


def reliability(trials: list[Trial]) -> Iterator[tuple[str, int, float, float]]:
    """Yield (bin, trials, mean stated probability, share right) of our own trials."""
    edges = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0001)
    for low, high in itertools.pairwise(edges):
        inside = [t for t in trials if t.probability is not None and low <= t.probability < high]
        if inside:
            stated = float(np.mean([t.probability for t in inside]))
            right = float(np.mean([t.exact for t in inside]))
            yield f"{low:.2f} .. {min(high, 1.0):.2f}", len(inside), stated, right


def print_reliability(trials: list[Trial]) -> None:
    """Print how true the stated probabilities are."""
    print("\nstated probability   trials   mean stated   right")
    for name, count, stated, right in reliability(trials):
        print(f"{name:20s} {count:6d}   {stated:11.3f}   {100 * right:5.1f}%")


def run_grid(trials: int, seed: int, pool: ProcessPoolExecutor) -> list[Trial]:
    """Run the planner over the whole grid; print accuracy and cost by each of its dimensions."""
    cells = grid()
    specs = [cells[k % len(cells)] for k in range(trials)]
    seeds = np.random.SeedSequence([seed, 7]).generate_state(trials).tolist()
    done = list(pool.map(run_trial, [OURS] * trials, specs, seeds, chunksize=1))
    dimensions: dict[str, Callable[[SimulationSpec], object]] = {
        "commits": lambda spec: spec.commits,
        "steps": lambda spec: spec.steps,
        "noise": lambda spec: spec.noise,
        "outliers": lambda spec: spec.outliers,
        "unbuildable": lambda spec: spec.unbuildable,
        "workers": lambda spec: spec.workers,
    }
    for name, value_of in dimensions.items():
        for value in sorted({value_of(spec) for spec in specs}, key=str):
            part = [t for t, spec in zip(done, specs, strict=True) if value_of(spec) == value]
            row = summary(part)
            print(
                f"  {name:12s} {value!s:22s} exact {100 * row['exact']:5.1f}%  wrong "
                f"{100 * row['wrong']:4.1f}%  runs {row['runs']:6.1f}  builds {row['builds']:5.1f}"
                f"  trials {len(part)}"
            )
    return done


def bound_of(cell: Cell) -> float | None:
    """Return the fewest runs of a cell with a single step, or None."""
    spec = cell.specs[0]
    if len(spec.steps) != 1:
        return None
    return fewest_runs(spec.commits, abs(float(np.log1p(spec.steps[0]))) / spec.noise)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [cell.name for cell in CELLS]
    parser.add_argument("--cells", nargs="+", default=names, choices=names)
    parser.add_argument("--trials", type=int, default=40, help="per cell and strategy")
    parser.add_argument("--peer-trials", type=int, default=None, help="fewer for the peers")
    parser.add_argument("--strategies", nargs="+", default=[OURS, *PEERS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--grid", type=int, default=0, help="trials over the whole grid")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    ours: list[Trial] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        if arguments.grid:
            print_reliability(run_grid(arguments.grid, arguments.seed, pool))
            return
        for cell in (c for c in CELLS if c.name in arguments.cells):
            print(f"\n{cell.name}: {cell.title}\n  to reach: {cell.target or '-'}", flush=True)
            bound = bound_of(cell)
            if bound is not None:
                print(f"  no strategy can do with fewer than {bound:.0f} runs")
            for strategy in arguments.strategies:
                if strategy in cell.without or (strategy != OURS and not cell.specs[0].steps):
                    continue
                count = arguments.trials
                if strategy != OURS and arguments.peer_trials is not None:
                    count = arguments.peer_trials
                trials = run_cell(cell, strategy, count, arguments.seed, pool)
                ours += trials if strategy == OURS else []
                row = summary(trials)
                rows.append({"cell": cell.name, "strategy": strategy, **row})
                rows[-1]["results"] = [asdict(t) for t in trials]
                print(
                    f"  {strategy:14s} exact {100 * row['exact']:5.1f}%  wrong "
                    f"{100 * row['wrong']:4.1f}%  runs {row['runs']:6.1f} (p95 "
                    f"{row['runs_p95']:4.0f})  builds {row['builds']:5.1f}  wall "
                    f"{row['wall_hours']:5.1f} h  stated {row['probability']:.3f}  "
                    f"trials {len(trials)}  {row['seconds_per_trial']:.1f} s each",
                    flush=True,
                )
    print_reliability(ours)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
