"""Compare detectors on the same simulated series, night by night, in one run.

    python -m venv /tmp/otava && /tmp/otava/bin/pip install apache-otava
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.series.compare --otava /tmp/otava/bin/python

False alarms: stable series of 90 nights; a report counts where none was made within 14 nights of
it. Detection: 30 stable nights, then a drop; after how many nights it is reported. Each detector
works in a process of its own, all at the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.series import perfherder
from benchmarks.series.following import (
    BEFORE,
    FIRST,
    FloatArray,
    alarms_in,
    dropping_values,
    first_night,
    odds_of,
    stable_values,
)
from benchmarks.series.scenes import DRIFT, OUTLIERS, STABLE, Scene

from perfbisect.core.series import LOOKBACK, SeriesSettings
from perfbisect.core.series_bound import bound_for

NIGHTS = 90
#: A change point this close to the drop is the drop.
NEAR = 3
#: What perfbisect is asked for: false alarms a year, on average over three kinds of series.
ASKED = (4.0, 1.0, 0.5)
SETTINGS = SeriesSettings(min_effect=0.01)

Points = Callable[[Sequence[float]], list[int]]
_T = TypeVar("_T")


@contextmanager
def otava(python: str, pvalue: float) -> Iterator[Points]:
    """Yield apache-otava in a process of its own environment."""
    program = [python, str(Path(__file__).with_name("otava_points.py"))]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def points(values: Sequence[float]) -> list[int]:
            asked.write(json.dumps({"values": list(values), "pvalue": pvalue}) + "\n")
            asked.flush()
            found: list[int] = json.loads(answers.readline())
            return found

        yield points
        asked.close()


@dataclass(frozen=True, slots=True)
class Detectors:
    """Everybody who is compared, and where they work."""

    #: Name -> change points of values; each waits for a process of its own, in a thread.
    peers: dict[str, Points]
    threads: Executor
    #: For perfbisect.
    processes: Executor

    def ours(self, all_values: Sequence[FloatArray], first: int) -> Iterator[FloatArray]:
        """Begin with perfbisect's log odds of each series."""
        count = len(all_values)
        return self.processes.map(odds_of, all_values, [SETTINGS] * count, [first] * count)

    def theirs(
        self, all_values: Sequence[FloatArray], ask: Callable[[FloatArray, Points], _T]
    ) -> dict[str, Future[list[_T]]]:
        """Begin with what each peer says of each series."""
        return {
            name: self.threads.submit(_asked, all_values, ask, points)
            for name, points in self.peers.items()
        }


def _asked(
    all_values: Sequence[FloatArray], ask: Callable[[FloatArray, Points], _T], points: Points
) -> list[_T]:
    return [ask(values, points) for values in all_values]


def alarms_by_points(values: FloatArray, points: Points) -> int:
    """Return how many changes a peer reports in a stable series, each night asked anew."""
    seen: list[int] = []
    for night in range(FIRST, len(values) + 1):
        for index in points(values[:night].tolist()):
            if all(abs(index - other) > LOOKBACK for other in seen):
                seen.append(index)
    return len(seen)


def detected_by_points(values: FloatArray, points: Points) -> int | None:
    """Return after how many nights a peer reports the drop."""
    return first_night(
        [
            any(index >= BEFORE - NEAR for index in points(values[:night].tolist()))
            for night in range(BEFORE + 1, len(values) + 1)
        ]
    )


def _rate(count: int, series: int) -> str:
    years = series * (NIGHTS - FIRST + 1) / 365.0
    return f"{count / years:.2f} a year ({count} in {series} series)"


def compare_false_alarms(scene: Scene, series: int, detectors: Detectors) -> None:
    """Print the false alarms of everybody on stable series of one kind."""
    print(f"\nfalse alarms, {scene.name}:")
    all_values = [stable_values(scene, NIGHTS, number) for number in range(series)]
    theirs = detectors.theirs(all_values, alarms_by_points)
    odds = list(detectors.ours(all_values, FIRST))
    for asked in ASKED:
        count = sum(alarms_in(each, bound_for(asked)) for each in odds)
        print(f"  perfbisect, {asked:g} a year asked for: {_rate(count, series)}", flush=True)
    for name, counts in theirs.items():
        print(f"  {name}: {_rate(sum(counts.result()), series)}", flush=True)


def compare_detection(scene: Scene, change: float, trials: int, detectors: Detectors) -> None:
    """Print after how many nights everybody reports a drop."""
    print(f"\ndrop of {-change:.0%}, noise {scene.noise:.0%}, {scene.name}:")
    all_values = [dropping_values(scene, change, number) for number in range(trials)]
    theirs = detectors.theirs(all_values, detected_by_points)
    odds = list(detectors.ours(all_values, BEFORE + 1))
    for asked in ASKED:
        bound = bound_for(asked)
        nights = [first_night([bool(odd >= bound) for odd in each]) for each in odds]
        _print_nights(f"perfbisect, {asked:g} a year asked for", nights)
    for name, found in theirs.items():
        _print_nights(name, found.result())


def _print_nights(name: str, nights: Sequence[int | None]) -> None:
    found = [each for each in nights if each is not None]
    median = f"median {statistics.median(found):g}" if found else "none"
    first = sum(each == 1 for each in found)
    print(
        f"  {name}: {len(found)} of {len(nights)} within 10 nights, {median}, {first} in the first",
        flush=True,
    )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--otava", default="", help="Python that has apache-otava; else without.")
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--trials", type=int, default=60)
    options = parser.parse_args()
    peers: dict[str, Points] = {"Perfherder's t-test": perfherder.change_points}
    with (
        otava(options.otava, 0.001) if options.otava else _nobody() as usual,
        otava(options.otava, 0.0001) if options.otava else _nobody() as careful,
        ThreadPoolExecutor() as threads,
        ProcessPoolExecutor(2) as processes,
    ):
        if options.otava:
            peers["apache-otava, p 0.001 (its default)"] = usual
            peers["apache-otava, p 0.0001"] = careful
        _compare(Detectors(peers, threads, processes), options.series, options.trials)


def _compare(detectors: Detectors, series: int, trials: int) -> None:
    for scene in (STABLE, OUTLIERS, DRIFT):
        compare_false_alarms(scene, series, detectors)
    for noise in (0.01, 0.02):
        for outliers in (0.0, 0.02):
            kind = "2% outliers" if outliers else "no outliers"
            scene = Scene(kind, noise=noise, outliers=outliers)
            for change in (-0.02, -0.05, -0.10):
                compare_detection(scene, change, trials, detectors)


@contextmanager
def _nobody() -> Iterator[Points]:
    yield lambda values: []


if __name__ == "__main__":
    main()
