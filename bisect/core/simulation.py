"""Simulated bisections: the real planner against simulated builds and hosts.

Used to tell people what a bisection will cost before it starts, and to measure the planner.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace

import numpy as np

from perfbisect.core.axis import BoolArray, IntArray
from perfbisect.core.facts import (
    Belief,
    Build,
    Costs,
    Facts,
    Finish,
    FloatArray,
    Observation,
    Policy,
    Run,
)
from perfbisect.core.planner import plan
from perfbisect.core.states import Better, Find, Outcome

#: Decisions after which a trial is given up as stuck.
MAX_DECISIONS = 20_000


@dataclass(frozen=True, slots=True)
class SimulationSpec:
    """What to simulate. Shares and changes are fractions, times are seconds."""

    #: Commits between the ends: positions 0 … commits.
    commits: int = 1000
    #: Relative changes; empty: no change at all.
    steps: tuple[float, ...] = (-0.1,)
    #: Where the steps are, one position each, ascending; empty: drawn at random, order shuffled.
    positions: tuple[int, ...] = ()
    #: Standard deviation of one run, relative.
    noise: float = 0.02
    #: Share of runs that are outliers, and what those are multiplied with.
    outliers: float = 0.0
    outlier_factor: float = 0.6
    #: Share of commits that can't be built, and the mean length of their clumps.
    unbuildable: float = 0.0
    unbuildable_length: float = 3.0
    #: A wheel is there already every so many commits; 0: at the ends only.
    prebuilt_every: int = 0
    #: Amplitude of a slow wave that every host's speed follows, relative, and its period.
    drift: float = 0.0
    drift_period: float = 24 * 3600.0
    #: Standard deviation of the hosts' offsets, relative.
    host_offset: float = 0.0
    #: Share of runs that find a host in its other mode, and the relative change that makes.
    bimodal_share: float = 0.0
    bimodal_change: float = 0.0
    #: Every so many seconds a host is slower, by this relative change, for this long.
    throttle_every: float = 0.0
    throttle_seconds: float = 3600.0
    throttle_change: float = -0.1
    #: Build slots, and hosts.
    workers: int = 1
    build_seconds: float = 3600.0
    run_seconds: float = 300.0
    #: Builds and runs share one machine. None: only with a single worker.
    exclusive: bool | None = None
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """How one simulated bisection went."""

    outcome: Outcome
    code: str
    #: The steps named are exactly the right ones, each as (before, after).
    exact: bool
    #: Steps named that are not there, and steps there that were not named.
    wrong: int
    missing: int
    runs: int
    builds: int
    failed_builds: int
    wall_seconds: float
    #: Seconds of builds and runs, summed over machines.
    machine_seconds: float
    #: Decisions that started work.
    rounds: int
    #: Stated probability that the answer is exactly right.
    probability: float
    named: tuple[tuple[int, int], ...]
    truth: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class World:
    """The truth of one trial."""

    #: Log of the true mean of each position, shape (n + 1,).
    level: FloatArray
    broken: BoolArray
    prebuilt: frozenset[int]
    #: Log offset and phase of the drift of each host.
    offsets: FloatArray
    phases: FloatArray
    truth: tuple[tuple[int, int], ...]


def make_world(spec: SimulationSpec, rng: np.random.Generator) -> World:
    """Draw steps, clumps of unbuildable commits, wheels and hosts."""
    n = spec.commits
    changes = np.array(spec.steps, dtype=np.float64)
    if spec.positions:
        places = np.array(spec.positions, dtype=np.int64)
    else:
        places = np.sort(rng.choice(np.arange(1, n + 1), size=len(changes), replace=False))
        changes = rng.permutation(changes)
    level = np.zeros(n + 1)
    for place, change in zip(places.tolist(), changes.tolist(), strict=True):
        level[place:] += math.log1p(change)
    broken = _clumps(n, spec.unbuildable, spec.unbuildable_length, rng)
    prebuilt = {0, n}
    if spec.prebuilt_every:
        prebuilt |= {i for i in range(0, n + 1, spec.prebuilt_every) if not broken[i]}
    return World(
        level=level,
        broken=broken,
        prebuilt=frozenset(prebuilt),
        offsets=rng.normal(0.0, spec.host_offset, spec.workers),
        phases=rng.uniform(0.0, 2 * math.pi, spec.workers),
        truth=_truth(spec.policy, level, broken, places),
    )


def _clumps(n: int, share: float, length: float, rng: np.random.Generator) -> BoolArray:
    """Mark unbuildable commits: clumps of geometric length; the ends always build."""
    broken = np.zeros(n + 1, dtype=np.bool_)
    if share <= 0:
        return broken
    start = share / (length - share * (length - 1)) if length > 1 else share
    position = 1
    while position < n:
        if rng.random() < start:
            size = int(rng.geometric(1 / length)) if length > 1 else 1
            broken[position : min(position + size, n)] = True
            position += size + 1
        else:
            position += 1
    return broken


def _truth(
    policy: Policy, level: FloatArray, broken: BoolArray, places: IntArray
) -> tuple[tuple[int, int], ...]:
    """Return the answer that is right: steps between buildable neighbours."""
    pairs: set[tuple[int, int]] = set()
    usable = np.flatnonzero(~broken)
    for place in places.tolist():
        after = int(usable[np.searchsorted(usable, place)])
        before = int(usable[np.searchsorted(usable, place) - 1])
        if abs(level[after] - level[before]) >= 0.9 * policy.min_effect:
            pairs.add((before, after))
    ordered = sorted(pairs)
    if policy.find is Find.ALL:
        return tuple(ordered)
    sign = 1.0 if policy.better is Better.HIGHER else -1.0
    values = np.exp(level)
    middle = 0.5 * (values[0] + values[-1])
    good = sign * (values - middle) > 0
    crossings = [pair for pair in ordered if good[pair[0]] != good[pair[1]]]
    if not crossings:
        return ()
    return (crossings[-1] if policy.find is Find.FIX else crossings[0],)


class Bench:
    """One trial in progress: the clock, what is in flight, and what came back."""

    def __init__(self, spec: SimulationSpec, seed: int) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(seed)
        self.world = make_world(spec, self.rng)
        self.hosts = tuple(f"host-{k + 1}" for k in range(spec.workers))
        self.clock = 0.0
        self.queue: list[tuple[float, int, Build | Run]] = []
        self.serial = 0
        self.wheels = set(self.world.prebuilt)
        self.broken: set[int] = set()
        self.observations: list[Observation] = []
        self.runs = self.builds = self.failed = self.rounds = 0
        self.machine = 0.0
        self.weights = np.ones(spec.commits)
        exclusive = spec.exclusive
        self.exclusive = spec.workers == 1 if exclusive is None else exclusive

    def facts(self) -> Facts:
        """Return what the planner may know now."""
        flying = [action for _, _, action in self.queue]
        running = tuple(a for a in flying if isinstance(a, Run))
        ages = {
            action.position: self.clock - (ends - self.spec.build_seconds)
            for ends, _, action in self.queue
            if isinstance(action, Build)
        }
        building = frozenset(ages)
        busy = {run.host for run in running}
        return Facts(
            n=self.spec.commits,
            policy=self.spec.policy,
            weights=self.weights,
            wheels=frozenset(self.wheels),
            broken=frozenset(self.broken),
            building=building,
            build_ages=ages,
            observations=tuple(self.observations),
            running=running,
            free_build_slots=self.spec.workers - len(building),
            free_hosts=tuple(host for host in self.hosts if host not in busy),
            hosts=self.hosts,
            exclusive=self.exclusive,
            costs=Costs(self.spec.build_seconds, self.spec.run_seconds),
            builds_done=self.builds - len(building),
            runs_done=self.runs - len(running),
            elapsed=self.clock,
        )

    def start(self, action: Build | Run) -> None:
        """Put an action in flight."""
        if isinstance(action, Build):
            seconds = self.spec.build_seconds
            self.builds += 1
        else:
            seconds = self.spec.run_seconds
            self.runs += 1
        self.machine += seconds
        self.serial += 1
        heapq.heappush(self.queue, (self.clock + seconds, self.serial, action))

    def advance(self) -> None:
        """Let the clock run to the next moment at which something comes back."""
        self.clock = self.queue[0][0]
        while self.queue and self.queue[0][0] <= self.clock + 1e-9:
            _, _, action = heapq.heappop(self.queue)
            if isinstance(action, Run):
                self.observations.append(self._measure(action))
            elif self.world.broken[action.position]:
                self.broken.add(action.position)
                self.failed += 1
            else:
                self.wheels.add(action.position)

    def _measure(self, run: Run) -> Observation:
        spec, host = self.spec, self.hosts.index(run.host)
        turn = 2 * math.pi * self.clock / spec.drift_period + self.world.phases[host]
        mean = self.world.level[run.position] + self.world.offsets[host]
        value = 1000.0 * math.exp(mean + spec.drift * math.sin(turn))
        value *= max(1.0 + spec.noise * float(self.rng.normal()), 0.01)
        if self.rng.random() < spec.outliers:
            value *= spec.outlier_factor
        if spec.bimodal_share and self.rng.random() < spec.bimodal_share:
            value *= 1.0 + spec.bimodal_change
        if spec.throttle_every and self.clock % spec.throttle_every < spec.throttle_seconds:
            value *= 1.0 + spec.throttle_change
        return Observation(run.position, value, run.host, self.clock, run.purpose, run.pair)


def simulate(spec: SimulationSpec, seed: int) -> SimulationResult:
    """Run one bisection to its end. The same spec and seed give the same result."""
    bench = Bench(spec, seed)
    for _ in range(MAX_DECISIONS):
        decision = plan(bench.facts())
        for action in decision.actions:
            if isinstance(action, Finish):
                return _result(bench, action, decision.belief)
        started = [a for a in decision.actions if not isinstance(a, Finish)]
        bench.rounds += bool(started)
        for action in started:
            bench.start(action)
        bench.advance()
    stuck = Finish(Outcome.INCONCLUSIVE, "the simulated bisection does not end", "stuck")
    return _result(bench, stuck, None)


def _result(bench: Bench, finish: Finish, belief: Belief | None) -> SimulationResult:
    steps = belief.steps if belief is not None else ()
    named = {(step.before, step.after) for step in steps if step.verified}
    truth = set(bench.world.truth)
    answered = finish.outcome is (Outcome.CULPRITS if truth else Outcome.NOT_REPRODUCED)
    return SimulationResult(
        outcome=finish.outcome,
        code=finish.code,
        exact=answered and named == truth,
        wrong=len(named - truth),
        missing=len(truth - named),
        runs=bench.runs,
        builds=bench.builds,
        failed_builds=bench.failed,
        wall_seconds=bench.clock,
        machine_seconds=bench.machine,
        rounds=bench.rounds,
        probability=belief.confidence if belief is not None else 0.0,
        named=tuple(sorted(named)),
        truth=bench.world.truth,
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median and 95th percentile over trials."""

    mean: float
    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a bisection like this one costs and how often it is right, over many trials."""

    trials: int
    #: Share of trials in which exactly the right steps were named.
    exact: float
    #: Share of trials that named a step that is not there.
    wrong: float
    runs: Spread
    builds: Spread
    rounds: Spread
    wall_seconds: Spread
    machine_seconds: Spread
    #: Mean stated probability.
    probability: float
    #: Outcome -> number of trials.
    outcomes: dict[str, int]


def estimate(spec: SimulationSpec, trials: int = 200, seed: int = 1) -> Estimate:
    """Simulate ``trials`` bisections with seeds drawn from ``seed``, and summarise them."""
    seeds = np.random.SeedSequence(seed).generate_state(trials).tolist()
    return summarise([simulate(spec, int(s)) for s in seeds])


def summarise(results: list[SimulationResult]) -> Estimate:
    """Summarise trials."""

    def spread(name: str) -> Spread:
        values = np.array([float(getattr(result, name)) for result in results])
        return Spread(
            float(values.mean()), float(np.median(values)), float(np.percentile(values, 95))
        )

    outcomes: dict[str, int] = {}
    for result in results:
        outcomes[str(result.outcome)] = outcomes.get(str(result.outcome), 0) + 1
    return Estimate(
        trials=len(results),
        exact=float(np.mean([result.exact for result in results])),
        wrong=float(np.mean([result.wrong > 0 for result in results])),
        runs=spread("runs"),
        builds=spread("builds"),
        rounds=spread("rounds"),
        wall_seconds=spread("wall_seconds"),
        machine_seconds=spread("machine_seconds"),
        probability=float(np.mean([result.probability for result in results])),
        outcomes=outcomes,
    )


def with_policy(spec: SimulationSpec, **changes: object) -> SimulationSpec:
    """Return the spec with some fields of its policy changed."""
    return replace(spec, policy=replace(spec.policy, **changes))  # type: ignore[arg-type]
