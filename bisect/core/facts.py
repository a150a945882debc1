"""What the planner is told and what it may ask for: plain, frozen values without I/O.

Positions count along the axis: position 0 is the earlier end and position ``n`` the later end, and
the change introduced *by* position ``i`` (1..n) is the step between ``i - 1`` and ``i``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfbisect.core.states import Better, ChangeKind, Find, Outcome, Purpose

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the requester asked for."""

    better: Better = Better.HIGHER
    find: Find = Find.ALL
    #: Absolute threshold in the benchmark's unit; None: by ``threshold_share`` or the midpoint.
    threshold: float | None = None
    #: Threshold as a share of the good end's mean, e.g. 0.7.
    threshold_share: float | None = None
    #: Smallest relative change worth naming, e.g. 0.03.
    min_effect: float = 0.03
    confidence: float = 0.99
    max_runs: int | None = None
    max_builds: int | None = None
    #: Wall time since the start, seconds.
    max_seconds: float | None = None
    #: With ``find = all``: measure this many evenly spaced positions even if the ends look alike.
    probe: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Expected costs in seconds, learnt per recipe and host by the conductor."""

    build_seconds: float = 3600.0
    run_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One accepted point, placed on the axis."""

    position: int
    #: In the benchmark's unit, greater than zero.
    value: float
    host: str
    #: Seconds since any fixed moment; only differences and order matter.
    at: float
    purpose: Purpose = Purpose.SEARCH
    #: For ``Purpose.VERIFY``: the two neighbours compared, earlier first.
    pair: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Build:
    """Action: build the wheel of a position."""

    position: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Action: run the benchmark once on the wheel of a position, on one host."""

    position: int
    host: str
    purpose: Purpose = Purpose.SEARCH
    pair: tuple[int, int] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Action: stop with this outcome."""

    outcome: Outcome
    #: A sentence for people, with numbers.
    reason: str
    #: Machine-readable detail of the outcome, e.g. ``ends_swapped``; empty where there is none.
    code: str = ""


Action = Build | Run | Finish


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the planner may know about one bisection. The same facts give the same plan."""

    #: Positions are 0..n.
    n: int
    policy: Policy
    #: Shape (n,): relative prior weight of a step at position i + 1, greater than zero.
    weights: FloatArray
    #: Positions whose wheel is there: a run needs no build.
    wheels: frozenset[int] = frozenset()
    #: Positions that can't be built or can't run, for good.
    broken: frozenset[int] = frozenset()
    building: frozenset[int] = frozenset()
    #: Position -> seconds its build has been going on; a build that waits may be missing.
    build_ages: dict[int, float] = field(default_factory=dict)
    #: position -> the smallest position with the same wheel (equal trees); positions that are their
    #: own representative may be missing. Observations and wheels speak for all that share.
    same_as: dict[int, int] = field(default_factory=dict)
    observations: tuple[Observation, ...] = ()
    running: tuple[Run, ...] = ()
    free_build_slots: int = 1
    #: Hosts that could start a run now. Earlier ones are preferred.
    free_hosts: tuple[str, ...] = ("local",)
    #: Every host of the pool, free or not.
    hosts: tuple[str, ...] = ("local",)
    #: Builds and runs share one machine and exclude each other.
    exclusive: bool = True
    costs: Costs = Costs()
    builds_done: int = 0
    runs_done: int = 0
    #: Wall seconds since the bisection started.
    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A place on the axis where the mean changes, as far as the points tell."""

    #: Last position measured before the step and first measured after it; everything strictly
    #: between them is unbuildable once the step is resolved.
    before: int
    after: int
    #: Probability that a step of at least the minimum effect lies in ``(before, after]``.
    probability: float
    #: Mean levels on both sides, in the benchmark's unit.
    level_before: float
    level_after: float
    #: Relative change ``level_after / level_before - 1`` and its 95% credible interval.
    change: float
    ci95: tuple[float, float]
    kind: ChangeKind
    #: No buildable, unmeasured position is left in the gap.
    resolved: bool
    verified: bool = False
    #: Fresh pairs measured to verify it.
    verify_runs: int = 0


@dataclass(frozen=True, slots=True)
class EndStat:
    """Mean of one end: value, 95% interval and number of runs, in the benchmark's unit."""

    mean: float
    ci95: tuple[float, float]
    runs: int


@dataclass(frozen=True, slots=True)
class Belief:
    """What the points say, for people and pages; recomputed from facts, never stored as truth."""

    #: Shape (n,): posterior probability of a step at position i + 1 (the credible set's strip).
    step_probability: FloatArray
    steps: tuple[Step, ...]
    #: Expected number of steps of at least the minimum effect not among ``steps``.
    missed: float
    #: Probability that ``steps`` is exactly the right answer.
    confidence: float
    #: Noise scale of one run, relative (standard deviation of the log).
    noise: float
    #: position -> (mean, low, high) of measured positions in the benchmark's unit.
    levels: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    threshold: float | None = None
    first: EndStat | None = None
    last: EndStat | None = None
    #: host -> estimated offset relative to the pool's mean (log scale).
    host_offsets: dict[str, float] = field(default_factory=dict)
    #: Estimated drift over the search, relative, largest minus smallest.
    drift: float = 0.0
    #: Smallest relative change that this search could see: ``min_effect``, or what the noise
    #: supports if that is larger. Smaller steps are neither named nor counted in ``missed``.
    effect: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions to start now (possibly none while work is in flight), and the belief behind them."""

    actions: tuple[Action, ...]
    belief: Belief | None
