"""Before an answer: the ends once more, so that a slow time at the start hides no step.

Both ends are measured first. Had the host a slow time just then, the good end looks like what
follows a step near it, and nothing that is measured later can tell. One late run of each end does;
where it disagrees with the early ones there are more, and drift or a step must explain them.
"""

from __future__ import annotations

import math

import numpy as np

from perfbisect.core.choice import end_run
from perfbisect.core.facts import Run
from perfbisect.core.inference import Inference
from perfbisect.core.situation import Situation
from perfbisect.core.states import Purpose

#: Searches of fewer runs than this are over before a host changes its mind.
SHORT = 16
#: Late runs of an end whose early runs agree with them, and whose early runs do not.
LATE_RUNS = 1
LATE_RUNS_IN_DOUBT = 3
#: Standard errors between early and late runs that count as agreement.
AGREEMENT = 2.0

_NAMES = ("good", "bad")


def ends_to_look_at(situation: Situation, inference: Inference) -> list[int]:
    """Return the ends, good 0 and bad 1, that lack runs late in the search."""
    return [end for end in (0, 1) if _late_runs_wanted(situation, inference, end) > 0]


def closing_runs(situation: Situation, ends: list[int]) -> list[Run]:
    """Return runs of ends on free hosts, one each unless such a run is in flight."""
    axis = situation.axis
    pending = situation.running_on()
    nodes = {end: int(axis.representative[-1 if end else 0]) for end in ends}
    waiting = [end for end in ends if not pending[nodes[end]]]
    return [
        end_run(situation, end, host, f"{_NAMES[end]} end on {host}: a last look before the answer")
        for end, host in zip(waiting, situation.free_hosts, strict=False)
    ]


def is_looking(situation: Situation) -> bool:
    """Return whether a run of an end is in flight, which the answer should wait for."""
    return any(run.purpose is Purpose.ANCHOR for run in situation.facts.running)


def _late_runs_wanted(situation: Situation, inference: Inference, end: int) -> int:
    """Return how many runs of an end the second half of the search lacks."""
    samples = inference.samples
    own = np.flatnonzero(samples.history == 0)
    if len(own) < SHORT:
        return 0
    node = int(situation.axis.representative[-1 if end else 0])
    mine = samples.wheel[own] == node
    late = np.arange(len(own)) >= len(own) / 2
    early_values = samples.value[own[mine & ~late]]
    late_values = samples.value[own[mine & late]]
    wanted = LATE_RUNS
    if len(early_values) and len(late_values):
        error = inference.sigma * math.sqrt(1 / len(early_values) + 1 / len(late_values))
        apart = abs(float(np.median(early_values) - np.median(late_values)))
        wanted = LATE_RUNS if apart <= AGREEMENT * error else LATE_RUNS_IN_DOUBT
    return wanted - len(late_values)
