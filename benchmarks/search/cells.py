"""The cells of the comparison: what is simulated, and the figures to reach."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfbisect.core.facts import Policy
from perfbisect.core.simulation import SimulationSpec


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table."""

    name: str
    title: str
    #: Trials are spread evenly over these.
    specs: tuple[SimulationSpec, ...]
    #: Figures to reach, for people.
    target: str
    #: Strategies that make no sense here.
    without: frozenset[str] = frozenset()


def _four(**fields: object) -> tuple[SimulationSpec, ...]:
    """With and without 2% outliers at 0.6, with and without 10% unbuildable commits."""
    base = SimulationSpec(**fields)  # type: ignore[arg-type]
    return tuple(
        replace(base, outliers=outliers, unbuildable=unbuildable)
        for outliers in (0.0, 0.02)
        for unbuildable in (0.0, 0.1)
    )


def _hard(**fields: object) -> tuple[SimulationSpec, ...]:
    """With outliers and unbuildable commits."""
    return (_four(**fields)[-1],)


_LAYERED = (-0.1, -0.1, -0.1)
_SMALL = (-0.03, -0.03, -0.03)
_DIP = Policy(probe=16)

CELLS: tuple[Cell, ...] = (
    Cell(
        "layered-4400",
        "n = 4,400, three steps of 10%, CV 2%, a wheel every 60",
        _hard(commits=4400, steps=_LAYERED, prebuilt_every=60),
        ">= 99%, <= 60 runs, <= 21 builds",
    ),
    Cell(
        "layered-4400-w4",
        "the same, 4 workers",
        _hard(commits=4400, steps=_LAYERED, prebuilt_every=60, workers=4),
        "wall >= 3x faster",
    ),
    Cell(
        "layered-4400-w8",
        "the same, 8 workers",
        _hard(commits=4400, steps=_LAYERED, prebuilt_every=60, workers=8),
        "wall >= 5x faster",
    ),
    Cell(
        "one-3",
        "n = 1,000, one step of 3%, CV 2%",
        _four(steps=(-0.03,)),
        ">= 99%, <= 100 runs, <= 12.7 builds",
    ),
    Cell(
        "one-3-noisy",
        "n = 1,000, one step of 3%, CV 5%",
        _four(steps=(-0.03,), noise=0.05),
        ">= 99%, <= 520 runs, <= 13 builds",
    ),
    Cell(
        "three-10",
        "n = 1,000, three steps of 10%, CV 2%",
        _four(steps=_LAYERED),
        ">= 99.5%, <= 58 runs, <= 28 builds",
    ),
    Cell(
        "three-10-noisy",
        "n = 1,000, three steps of 10%, CV 5%",
        _four(steps=_LAYERED, noise=0.05),
        ">= 98%, <= 150 runs",
    ),
    Cell(
        "three-3",
        "n = 1,000, three steps of 3%, CV 2%",
        _four(steps=_SMALL),
        ">= 97%, <= 240 runs",
    ),
    Cell(
        "short-three-3",
        "n = 64, three steps of 3%, CV 2%",
        _four(commits=64, steps=_SMALL),
        ">= 97%, <= 180 runs",
    ),
    Cell(
        "short-three-10-noisy",
        "n = 64, three steps of 10%, CV 5%",
        _four(commits=64, steps=_LAYERED, noise=0.05),
        ">= 98%, <= 110 runs",
    ),
    Cell(
        "one-10",
        "n = 1,000, one step of 10%, CV 2%",
        _four(steps=(-0.1,)),
        "",
    ),
    Cell(
        "dip",
        "n = 1,000, a drop and its recovery 240 apart, ends equal, a wheel every 60",
        tuple(
            SimulationSpec(
                steps=(-0.1, 1 / 0.9 - 1),
                positions=(start, start + 240),
                prebuilt_every=60,
                outliers=0.02,
                unbuildable=0.1,
                policy=_DIP,
            )
            for start in (77, 223, 391, 556, 713)
        ),
        ">= 99%, cost stated",
        frozenset({"pinpoint", "bayesect-99"}),
    ),
    Cell(
        "drift",
        "n = 1,000, three steps of 10%, CV 2%, the host drifts by 5%",
        _hard(steps=_LAYERED, drift=0.05),
        "as without drift, <= 1.4x the runs",
    ),
    Cell(
        "drift-one-3",
        "n = 1,000, one step of 3%, CV 2%, the host drifts by 5%",
        _hard(steps=(-0.03,), drift=0.05),
        "as without drift, <= 1.4x the runs",
    ),
    Cell(
        "slow-worker",
        "n = 1,000, three steps of 10%, CV 2%, two workers whose speeds differ by about 3%",
        _hard(steps=_LAYERED, workers=2, host_offset=0.021),
        "as without offset, <= 1.4x the runs",
    ),
    Cell(
        "two-workers",
        "the same, two equal workers",
        _hard(steps=_LAYERED, workers=2),
        "for comparison",
    ),
    Cell(
        "nothing",
        "n = 1,000, no change, CV 1%",
        _four(steps=(), noise=0.01),
        "<= 1% false culprits, <= 12 runs",
        frozenset({"pinpoint", "bayesect-99"}),
    ),
    Cell(
        "nothing-noisy",
        "n = 1,000, no change, CV 2%",
        _four(steps=()),
        "<= 1% false culprits, <= 12 runs",
        frozenset({"pinpoint", "bayesect-99"}),
    ),
)


def grid() -> list[SimulationSpec]:
    """Return the whole grid: lengths, steps, noise, outliers, unbuildable commits, workers.

    Neighbours in the list differ in everything, so that any part of it covers the grid evenly.
    """
    steps = ((-0.03,), (-0.1,), (-0.4,), _SMALL, _LAYERED)
    specs = [
        SimulationSpec(
            commits=commits,
            steps=changes,
            noise=noise,
            outliers=outliers,
            unbuildable=unbuildable,
            workers=workers,
        )
        for commits in (64, 1000, 10_000)
        for changes in steps
        for noise in (0.005, 0.02, 0.05)
        for outliers in (0.0, 0.02)
        for unbuildable in (0.0, 0.1)
        for workers in (1, 4, 8)
    ]
    order = np.random.default_rng(1).permutation(len(specs))
    return [specs[index] for index in order.tolist()]
