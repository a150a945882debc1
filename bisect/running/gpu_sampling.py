"""How the GPUs of a run were while it lasted, and whether they were slowed down."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from perfbisect.running.gpus import REASONS, Gpu, GpuDriver, GpuError, GpuState

#: Reasons that reject a run, in words. A cap on power is none: it is how many GPUs always run at
#: full load, the same for good and bad.
THROTTLES: Mapping[str, str] = {
    "hw_slowdown": "its hardware slowed it down",
    "sw_thermal": "the driver slowed it down as it was hot",
    "hw_thermal": "its hardware slowed it down as it was hot",
    "hw_power_brake": "the machine's power supply slowed it down",
}
#: Share of the samples from which on a slowdown is taken for one; less is a blink.
THROTTLED_SHARE = 0.02
#: Samples that are stored with a point, at most.
KEPT = 60

#: Seconds between two samples.
_INTERVAL = 0.5


def throttled(observed: Sequence[Mapping[str, Any]]) -> str:
    """Return why a run must not be used as a GPU was slowed down, or an empty string.

    Args:
        observed: as ``GpuSampler.observed``.
    """
    for gpu in observed:
        for reason, words in THROTTLES.items():
            share = gpu.get("reasons", {}).get(reason, 0.0)
            if share > THROTTLED_SHARE:
                hot = gpu.get("temperature_max")
                at = f", at up to {hot} °C" if hot is not None else ""
                return f"GPU {gpu['index']} throttled in {share:.0%} of the run: {words}{at}"
    return ""


def next_sample(stop: threading.Event) -> bool:
    """Pass the time between two samples; return whether the end was asked for."""
    return stop.wait(_INTERVAL)


class GpuSampler:
    """Looks at GPUs from its entering to its leaving, in a thread of its own."""

    def __init__(
        self,
        driver: GpuDriver,
        gpus: Sequence[Gpu],
        wait: Callable[[threading.Event], bool] = next_sample,
    ) -> None:
        """Make a sampler.

        Args:
            driver: is asked.
            gpus: which are looked at.
            wait: passes the time between two samples; True: the end was asked for.
        """
        #: Filled on leaving, one of each GPU: ``index``, ``samples`` (how many), ``reasons``
        #: (name -> share of the samples), and of clock, temperature, power and memory the mean,
        #: least or most; ``series``: at most ``KEPT`` values of each.
        self.observed: list[dict[str, Any]] = []
        self._driver = driver
        self._gpus = gpus
        self._wait = wait
        self._stop = threading.Event()
        self._states: dict[int, list[GpuState]] = {gpu.index: [] for gpu in gpus}
        self._lost: dict[int, str] = {}
        self._thread = threading.Thread(target=self._sample, name="gpus", daemon=True)

    def __enter__(self) -> GpuSampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        for gpu in self._gpus:
            told = summary(gpu.index, self._states[gpu.index])
            if gpu.index in self._lost:
                told["error"] = self._lost[gpu.index]
            self.observed.append(told)

    def _sample(self) -> None:
        # The first look comes after the first wait: the run begins on idle GPUs.
        while not self._wait(self._stop):
            for gpu in self._gpus:
                try:
                    self._states[gpu.index].append(self._driver.state(gpu.index))
                except GpuError as error:
                    self._lost[gpu.index] = str(error)


def summary(index: int, states: Sequence[GpuState]) -> dict[str, Any]:
    """Return what is stored of the samples of one GPU."""
    told: dict[str, Any] = {"index": index, "samples": len(states)}
    counts = Counter(
        name for state in states for bit, name in REASONS.items() if state.reasons & bit
    )
    told["reasons"] = {name: round(count / len(states), 4) for name, count in counts.items()}
    columns: dict[str, tuple[str, Callable[[list[float]], float]]] = {
        "sm_mhz": ("min", min),
        "temperature": ("max", max),
        "power_watts": ("max", max),
        "memory_bytes": ("max", max),
        "utilisation": ("min", min),
    }
    series: dict[str, list[float]] = {}
    for name, (word, worst) in columns.items():
        known = [value for state in states if (value := getattr(state, name)) is not None]
        if known:
            told[f"{name}_mean"] = round(statistics.fmean(known), 1)
            told[f"{name}_{word}"] = worst(known)
            series[name] = thinned(known)
    told["series"] = series
    return told


def thinned(values: Sequence[float], most: int = KEPT) -> list[float]:
    """Return the values, or evenly chosen ones where there are more than ``most``."""
    if len(values) <= most:
        return list(values)
    return [values[index * (len(values) - 1) // (most - 1)] for index in range(most)]


def state_words(state: GpuState) -> str:
    """Return a state for people."""
    known = (
        (state.temperature, "{:.0f} °C"),
        (state.sm_mhz, "{:.0f} MHz"),
        (state.power_watts, "{:.0f} W"),
    )
    parts = [words.format(value) for value, words in known if value is not None]
    return ", ".join(parts) or "it tells nothing"
