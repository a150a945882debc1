"""Which odds a change must reach, for the false alarms accepted in a year of a series.

Measured by simulation: ``benchmarks/series/calibrate.py`` follows stable series (as they are, with
2% of nights at 0.6 of their value, and with a slow wave of three noise scales) night by night, and
counts how often the log odds rise above each bound. The table is the mean over the three kinds.
"""

from __future__ import annotations

import numpy as np

#: Suspicions in a year of 365 measured nights, falling, and the log odds that give them.
TABLE: tuple[tuple[float, float], ...] = (
    (6.80, 0.0),
    (5.15, 0.5),
    (3.56, 1.0),
    (2.29, 1.5),
    (1.28, 2.0),
    (0.87, 2.5),
    (0.52, 3.0),
    (0.34, 3.5),
    (0.19, 4.0),
    (0.15, 5.0),
    (0.09, 6.0),
)
#: What may be asked for.
FEWEST, MOST = 0.1, 6.0


def bound_for(false_alarms: float) -> float:
    """Return the log odds for so many false alarms in a year of a series.

    Args:
        false_alarms: from ``FEWEST`` to ``MOST``; beyond them, the bound of the nearer one.
    """
    rates, bounds = np.array(TABLE).T
    return float(np.interp(-np.log(false_alarms), -np.log(rates), bounds))
