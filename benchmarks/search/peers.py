"""How others bisect, on the same simulated worlds: git bisect, Pinpoint's rule, git-bayesect.

Each strategy measures positions of a ``Lab`` and returns the steps it names as (before, after)
pairs. The rules are written from their public descriptions; git-bayesect is the real package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from git_bayesect import Bisector
from scipy import stats

from perfbisect.core.facts import FloatArray
from perfbisect.core.simulation import SimulationSpec, World, make_world

#: Runs after which a strategy is stopped.
MAX_RUNS = 1500

Pair = tuple[int, int]


@dataclass
class Lab:
    """Builds and runs of one trial, counted. ``workers`` share each batch evenly."""

    spec: SimulationSpec
    rng: np.random.Generator
    world: World
    built: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    runs: int = 0
    builds: int = 0
    wall: float = 0.0

    @classmethod
    def open(cls, spec: SimulationSpec, seed: int) -> Lab:
        """Draw the world that ``simulate`` draws for the same spec and seed."""
        rng = np.random.default_rng(seed)
        world = make_world(spec, rng)
        return cls(spec, rng, world, set(world.prebuilt))

    @property
    def last(self) -> int:
        """The bad end's position."""
        return self.spec.commits

    def measure(self, jobs: Iterable[tuple[int, int]]) -> list[FloatArray | None]:
        """Run each (position, runs) of a batch; None where the position can't be built."""
        out: list[FloatArray | None] = []
        builds = runs = 0
        for position, count in jobs:
            if position not in self.built:
                builds += 1
                if self.world.broken[position]:
                    self.broken.add(position)
                    out.append(None)
                    continue
                self.built.add(position)
            values = np.array([self._value(position) for _ in range(count)])
            out.append(values)
            runs += count
        workers = self.spec.workers
        self.builds += builds
        self.runs += runs
        self.wall += math.ceil(builds / workers) * self.spec.build_seconds
        self.wall += math.ceil(runs / workers) * self.spec.run_seconds
        return out

    def values(self, position: int, count: int) -> FloatArray | None:
        """Run one position."""
        return self.measure([(position, count)])[0]

    def near(self, low: int, target: int, high: int) -> int | None:
        """Return the position strictly inside (low, high) nearest to a target and not broken."""
        for offset in range(high - low):
            for position in (target - offset, target + offset):
                if low < position < high and position not in self.broken:
                    return position
        return None

    def _value(self, position: int) -> float:
        spec = self.spec
        value = 1000.0 * math.exp(float(self.world.level[position]))
        value *= max(1.0 + spec.noise * float(self.rng.normal()), 0.01)
        return value * spec.outlier_factor if self.rng.random() < spec.outliers else value


def git_bisect(runs: int) -> Callable[[Lab], set[Pair]]:
    """Binary search against the midpoint of the ends, by the median of ``runs`` runs."""

    def search(lab: Lab) -> set[Pair]:
        ends = lab.measure([(0, runs), (lab.last, runs)])
        good, bad = (float(np.median(values)) for values in ends if values is not None)
        middle = 0.5 * (good + bad)
        low, high = 0, lab.last
        while (position := lab.near(low, (low + high) // 2, high)) is not None:
            values = lab.values(position, runs)
            if values is None:
                continue
            if (float(np.median(values)) < middle) == (bad < good):
                high = position
            else:
                low = position
        return {(low, high)}

    return search


#: Chromium's Pinpoint (catapult, BSD licence): below 0.01 two samples differ; above the entry for
#: the magnitude (in interquartile ranges: rows 1.0, 1.1, … 2.0) and the attempts (columns 1, 2, …)
#: they are the same; between, it measures both again, twice as often.
_SAME_ABOVE_ROWS = """
1 .6986 1 .8853 1 .9362 .8984 .7930 .6589 .5708 .4701 .4026 .3299 .2803 .2291 .1936 .1480 .1250
  .1021 .0811 .0663 .0529 .0433 .0346 .0284 .0228 .0178 .0143 .0118 .0091;
1 .6986 1 .8853 1 .8102 .7983 .6365 .5365 .4274 .3247 .2603 .1999 .1611 .1249 .1012 .0790 .0598
  .0472 .0361 .0287 .0208 .0167 .0130 .0099;
1 .6986 1 .8853 .8346 .8102 .6093 .4949 .3773 .2731 .2122 .1573 .1240 .0936 .0680 .0523 .0388
  .0303 .0211 .0167 .0119 .0089;
1 .6986 1 .8853 .8346 .5752 .4433 .3721 .2510 .1859 .1310 .0999 .0649 .0509 .0344 .0250 .0175
  .0131 .0094;
1 .6986 1 .8853 .6761 .4712 .3711 .2272 .1577 .1213 .0763 .0531 .0355 .0259 .0162 .0123 .0080;
1 .6986 1 .8853 .5309 .3785 .2502 .1563 .1120 .0757 .0489 .0304 .0211 .0140 .0090;
1 .6986 1 .6651 .4034 .2980 .2014 .1036 .0774 .0452 .0303 .0166 .0120 .0072;
1 .6986 1 .6651 .4034 .2298 .1252 .0832 .0423 .0258 .0181 .0102 .0057;
1 .6986 .6626 .4705 .2963 .1735 .0967 .0521 .0341 .0173 .0105 .0062;
1 .6986 .6626 .3124 .2101 .1283 .0737 .0406 .0217 .0114 .0059;
1 .6986 .6626 .3124 .1437 .0927 .0553 .0240 .0135 .0073
"""
_SAME_ABOVE = [[float(value) for value in row.split()] for row in _SAME_ABOVE_ROWS.split(";")]
_DIFFERENT_BELOW = 0.01
_FIRST_ATTEMPTS, _MOST_ATTEMPTS, _MOST_CHANGES = 10, 160, 60


def pinpoint(lab: Lab) -> set[Pair]:
    """Explore the midpoints of all neighbours that differ, repeat the unclear ones."""
    first = lab.measure([(0, _FIRST_ATTEMPTS), (lab.last, _FIRST_ATTEMPTS)])
    values = {p: v for p, v in zip((0, lab.last), first, strict=True) if v is not None}
    magnitude = 1000.0 * min(abs(step) for step in lab.spec.steps)
    while True:
        order = sorted(values)
        jobs: dict[int, int] = {}
        for low, high in itertools.pairwise(order):
            verdict = _compare(values[low], values[high], magnitude)
            if verdict == "unknown":
                counts = len(values[low]), len(values[high])
                jobs |= {
                    position: count
                    for position, count in zip((low, high), counts, strict=True)
                    if count <= min(counts) and count < _MOST_ATTEMPTS
                }
            elif verdict == "different" and len(order) < _MOST_CHANGES:
                middle = lab.near(low, (low + high) // 2, high)
                if middle is not None:
                    jobs[middle] = _FIRST_ATTEMPTS
        if not jobs or lab.runs >= MAX_RUNS:
            break
        for position, found in zip(jobs, lab.measure(jobs.items()), strict=True):
            if found is not None:
                values[position] = np.append(values.get(position, np.zeros(0)), found)
    order = sorted(values)
    pairs = itertools.pairwise(order)
    return {(a, b) for a, b in pairs if _compare(values[a], values[b], magnitude) == "different"}


def _compare(first: FloatArray, second: FloatArray, magnitude: float) -> str:
    """Judge two samples by the smaller p-value of Kolmogorov–Smirnov and Mann–Whitney."""
    spread = max(stats.iqr(first), stats.iqr(second), 1e-3)
    row = _SAME_ABOVE[min(max(int(10 * magnitude / spread) - 10, 0), len(_SAME_ABOVE) - 1)]
    same_above = row[min((len(first) + len(second)) // 2, len(row)) - 1]
    p = min(
        float(stats.ks_2samp(first, second, method="asymp").pvalue),
        float(stats.mannwhitneyu(first, second, method="asymptotic").pvalue),
    )
    if p <= _DIFFERENT_BELOW:
        return "different"
    return "unknown" if p <= same_above else "same"


def bayesect(confidence: float) -> Callable[[Lab], set[Pair]]:
    """git-bayesect: one step, pass or fail of a single run against the midpoint of the ends."""

    def search(lab: Lab) -> set[Pair]:
        with np.errstate(all="ignore"):  # The package takes logarithms of zero.
            return locate(lab)

    def locate(lab: Lab) -> set[Pair]:
        last = lab.last
        ends = lab.measure([(0, 3), (last, 3)])
        good, bad = (float(np.median(values)) for values in ends if values is not None)
        middle = 0.5 * (good + bad)

        def fails(value: float) -> bool:
            return (value < middle) == (bad < good)

        prior = np.ones(last + 1)
        prior[last] = 0.0  # Its index 0 is the newest commit; the oldest can't be the culprit.
        bisector = Bisector(prior)
        for index, values in zip((last, 0), ends, strict=True):
            for value in values if values is not None else ():
                bisector.record(index, fails(float(value)))
        counts: dict[int, int] = {}
        while True:
            low, high, probability = _likeliest(bisector.distribution[::-1], lab.broken)
            if probability >= confidence or lab.runs >= MAX_RUNS:
                return {(low, high)}
            position = _buildable(lab, last - int(bisector.select()), counts)
            values = lab.values(position, 1)
            if values is not None:
                counts[position] = counts.get(position, 0) + 1
                bisector.record(last - position, fails(float(values[0])))

    return search


def _buildable(lab: Lab, position: int, counts: dict[int, int]) -> int:
    """Return the position, or the less measured of its nearest neighbours that are not broken."""
    low = high = position
    while low in lab.broken:
        low -= 1
    while high in lab.broken:
        high += 1
    return low if counts.get(low, 0) <= counts.get(high, 0) else high


def _likeliest(posterior: FloatArray, broken: set[int]) -> tuple[int, int, float]:
    """Return the likeliest step between buildable neighbours, and its probability."""
    usable = np.array([p for p in range(len(posterior)) if p not in broken])
    sums = np.add.reduceat(np.append(posterior[1:], 0.0), usable[:-1])
    best = int(np.argmax(sums))
    return int(usable[best]), int(usable[best + 1]), float(sums[best])


PEERS: dict[str, Callable[[Lab], set[Pair]]] = {
    "git-bisect-1": git_bisect(1),
    "git-bisect-3": git_bisect(3),
    "git-bisect-5": git_bisect(5),
    "pinpoint": pinpoint,
    "bayesect-99": bayesect(0.99),
}


def capacity(ratio: float) -> float:
    """Return the bits that one run tells about a side, step over noise given (levels known)."""
    y = np.linspace(-9.0, 9.0 + ratio, 4001)
    left, right = stats.norm.pdf(y), stats.norm.pdf(y - ratio)
    both = 0.5 * (left + right)
    terms = [
        0.5 * side * np.log2(np.maximum(side, 1e-300) / np.maximum(both, 1e-300))
        for side in (left, right)
    ]
    return float(np.trapezoid(terms[0] + terms[1], y))


def fewest_runs(commits: int, ratio: float, error: float = 0.01) -> float:
    """Return the runs below which no strategy finds one step, levels and noise known.

    The larger of Fano's bound on locating it and of what both its neighbours need each.
    """
    doubt = -error * math.log2(error) - (1 - error) * math.log2(1 - error)
    locate = ((1 - error) * math.log2(commits) - doubt) / capacity(ratio)
    divergence = (1 - 2 * error) * math.log((1 - error) / error)
    return max(locate, 2.0 * divergence / (ratio**2 / 2.0), 2.0)
