"""Make the table of ``core/series_bound.py``: false alarms a year at each bound.

OPENBLAS_NUM_THREADS=1 python -m benchmarks.series.calibrate --series 20 --nights 400
"""

from __future__ import annotations

import argparse

import numpy as np
from benchmarks.series.following import FIRST, alarms_in, odds_of, stable_values
from benchmarks.series.scenes import DRIFT, HEAVY, OUTLIERS, STABLE

from perfbisect.core.series import SeriesSettings

BOUNDS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
#: Kinds of series whose mean makes the table, and one that is told beside it.
POOLED = (STABLE, OUTLIERS, DRIFT)


def main() -> None:
    """Print the rates of each kind of series, and their mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=20)
    parser.add_argument("--nights", type=int, default=400)
    options = parser.parse_args()
    # The smallest effect as large as the noise: the hardest case, where most is taken for a step.
    settings = SeriesSettings(min_effect=0.01)
    rates = {}
    for scene in (*POOLED, HEAVY):
        odds = [
            odds_of(stable_values(scene, options.nights, number), settings, FIRST)
            for number in range(options.series)
        ]
        years = sum(map(len, odds)) / 365.0
        rates[scene.name] = [sum(alarms_in(each, b) for each in odds) / years for b in BOUNDS]
        print(scene.name, [round(rate, 2) for rate in rates[scene.name]], flush=True)
    mean = np.mean([rates[scene.name] for scene in POOLED], axis=0)
    for bound, rate in zip(BOUNDS, mean, strict=True):
        print(f"    ({rate:.2f}, {bound}),")


if __name__ == "__main__":
    main()
