"""What happened on the host while a benchmark ran, so that a disturbed run is known as such.

The cost is two looks at the process table (before and after) and a few small files a second:
nothing that a benchmark could notice.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

#: A run is rejected when the hypervisor took more than this share of the CPU time it asked for …
MAX_STEAL_SHARE = 0.10
#: … and more than this many seconds, so that a very short run is not judged by one tick.
MIN_STEAL_SECONDS = 0.5
#: A run is rejected when the machine slept for longer than this, in seconds.
MAX_SUSPENDED_SECONDS = 1.0

#: Seconds between two samples.
_INTERVAL = 1.0
#: How many foreign processes are named, and the share of a core from which one is.
_NEIGHBOURS = 3
_NEIGHBOUR_CORES = 0.05


def disturbance(observed: Mapping[str, Any]) -> str:
    """Return why a run must not be used, or an empty string.

    Only clear evidence rejects. Load by other processes does not: whether it mattered is for the
    values to say, and the search allows for outliers. It is recorded, to be looked at.
    """
    share, seconds = observed.get("steal_share", 0.0), observed.get("steal_seconds", 0.0)
    if share > MAX_STEAL_SHARE and seconds > MIN_STEAL_SECONDS:
        return f"the hypervisor took {share:.0%} of the CPU time ({seconds:.1f} s) away"
    if observed.get("suspended_seconds", 0.0) > MAX_SUSPENDED_SECONDS:
        return f"the machine slept for {observed['suspended_seconds']:.0f} s during the run"
    return ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Ever-growing counters at one moment; seconds."""

    at: float
    #: Includes time asleep, unlike ``at``.
    boot: float
    #: CPU time of everything, by what ``/proc/stat`` says.
    busy: float
    steal: float
    #: CPU time of this process and of its children that ended.
    own: float
    #: Time in which some process, or every one, waited for a CPU; None: the kernel doesn't say.
    pressure_some: float | None
    pressure_full: float | None


def read_counters(stat: str, pressure: str) -> Counters:
    """Return the counters of now.

    Args:
        stat: content of ``/proc/stat``.
        pressure: content of ``/proc/pressure/cpu``, empty where there is none.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    # user nice system idle iowait irq softirq steal; guest times are part of user and nice.
    fields = [int(text) / ticks for text in stat.split("\n", 1)[0].split()[1:9]]
    fields += [0.0] * (8 - len(fields))
    totals = {kind: int(us) / 1e6 for kind, us in re.findall(r"(some|full).*total=(\d+)", pressure)}
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Counters(
        at=time.monotonic(),
        boot=time.clock_gettime(time.CLOCK_BOOTTIME),
        busy=fields[0] + fields[1] + fields[2] + fields[5] + fields[6],
        steal=fields[7],
        own=sum(one.ru_utime + one.ru_stime for one in usage),
        pressure_some=totals.get("some"),
        pressure_full=totals.get("full"),
    )


def difference(before: Counters, after: Counters) -> dict[str, float]:
    """Return what happened between two moments: seconds, and shares of the CPU time asked for."""
    seconds = after.at - before.at
    busy, steal = after.busy - before.busy, after.steal - before.steal
    own = after.own - before.own
    foreign = max(0.0, busy - own)
    observed = {
        "seconds": seconds,
        "cpu_seconds": own,
        "foreign_cpu_seconds": foreign,
        "foreign_cores": foreign / seconds if seconds > 0 else 0.0,
        "steal_seconds": steal,
        "steal_share": steal / (busy + steal) if busy + steal > 0 else 0.0,
        "suspended_seconds": max(0.0, (after.boot - before.boot) - seconds),
    }
    for name in ("pressure_some", "pressure_full"):
        first, last = getattr(before, name), getattr(after, name)
        if first is not None and last is not None:
            observed[f"{name}_seconds"] = last - first
    return {name: round(value, 4) for name, value in observed.items()}


class Observer:
    """Watches the host from its entering to its leaving, in a thread of its own."""

    def __init__(self, *, children: bool = True) -> None:
        """Make an observer.

        Args:
            children: what runs is a child of this process, so that its CPU time can be told from
                others'; a container's can't.
        """
        #: Filled on leaving: seconds and shares, see ``difference``; ``load_mean`` and ``load_max``
        #: (runnable tasks), ``mhz_mean`` and ``mhz_min``, ``neighbours`` (command, CPU seconds).
        self.observed: dict[str, Any] = {}
        self._children = children
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="observer", daemon=True)
        self._runnable: list[float] = []
        self._mhz: list[float] = []
        self._frequencies = sorted(
            Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        )

    def __enter__(self) -> Observer:
        self._processes = _cpu_times()
        self._before = _counters_now()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        after = _counters_now()
        self._stop.set()
        self._thread.join()
        if self._before is None or after is None:
            return
        self.observed.update(difference(self._before, after))
        for name, series, worst in (("load", self._runnable, max), ("mhz", self._mhz, min)):
            if series:
                suffix = "max" if worst is max else "min"
                self.observed[f"{name}_mean"] = round(statistics.fmean(series), 2)
                self.observed[f"{name}_{suffix}"] = round(worst(series), 2)
        seconds = after.at - self._before.at
        self.observed["neighbours"] = _busiest(self._processes, _cpu_times(), seconds)
        if not self._children:
            for name in ("cpu_seconds", "foreign_cpu_seconds", "foreign_cores"):
                del self.observed[name]

    def _sample(self) -> None:
        while not self._stop.wait(_INTERVAL):
            with contextlib.suppress(OSError, ValueError, IndexError):
                # "runnable/all"; this thread is one of the runnable.
                runnable = Path("/proc/loadavg").read_text().split()[3].split("/")[0]
                self._runnable.append(max(0.0, float(runnable) - 1))
            for file in self._frequencies:
                with contextlib.suppress(OSError, ValueError):
                    self._mhz.append(float(file.read_text()) / 1000)


def _counters_now() -> Counters | None:
    """Return the counters, or None on a system without ``/proc``."""
    try:
        stat = Path("/proc/stat").read_text()
    except OSError:
        return None
    pressure = ""
    with contextlib.suppress(OSError):
        pressure = Path("/proc/pressure/cpu").read_text()
    return read_counters(stat, pressure)


#: (process id, time of its creation) -> (command, CPU seconds).
_CpuTimes = dict[tuple[int, float], tuple[str, float]]


def _cpu_times() -> _CpuTimes:
    """Return the CPU time of every process but our own."""
    times: _CpuTimes = {}
    for process in psutil.process_iter(["pid", "name", "create_time", "cpu_times"]):
        info = process.info
        if info["cpu_times"] is not None and info["pid"] != os.getpid():
            spent = info["cpu_times"].user + info["cpu_times"].system
            times[info["pid"], info["create_time"]] = (info["name"] or "?", spent)
    return times


def _busiest(before: _CpuTimes, after: _CpuTimes, seconds: float) -> list[dict[str, Any]]:
    """Return the foreign processes that used most CPU time and are still there."""
    spent = [
        (seen - before.get(key, ("", 0.0))[1], command) for key, (command, seen) in after.items()
    ]
    busiest = sorted(spent, reverse=True)[:_NEIGHBOURS]
    return [
        {"command": command, "cpu_seconds": round(used, 2)}
        for used, command in busiest
        if used > _NEIGHBOUR_CORES * seconds
    ]
