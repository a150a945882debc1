"""Many simulated bisections at once, on several processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from perfbisect.core.simulation import (
    Estimate,
    SimulationResult,
    SimulationSpec,
    simulate,
    summarise,
)


def _nothing() -> None:
    return None


def run_trials(
    spec: SimulationSpec,
    trials: int,
    seed: int,
    *,
    jobs: int = 1,
    on_done: Callable[[], None] = _nothing,
) -> Estimate:
    """Simulate ``trials`` bisections; the same spec and seed give the same result on any machine.

    Args:
        jobs: processes; 1: this one.
        on_done: called after each trial.
    """
    seeds = [int(each) for each in np.random.SeedSequence(seed).generate_state(trials)]
    results: dict[int, SimulationResult] = {}
    for index, result in _simulated(spec, seeds, jobs):
        results[index] = result
        on_done()
    return summarise([results[index] for index in range(trials)])


def _simulated(
    spec: SimulationSpec, seeds: Sequence[int], jobs: int
) -> Iterator[tuple[int, SimulationResult]]:
    if jobs == 1 or len(seeds) == 1:
        for index, seed in enumerate(seeds):
            yield index, simulate(spec, seed)
        return
    with ProcessPoolExecutor(min(jobs, len(seeds))) as pool:
        try:
            futures = {pool.submit(simulate, spec, seed): i for i, seed in enumerate(seeds)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)
