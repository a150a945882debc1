"""GPUs as a run sees them: what they are, how they are, what may be changed; and recorded ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: Why a clock is lower than it could be: NVML's bit -> its name in points.
REASONS: Mapping[int, str] = {
    0x001: "idle",
    0x002: "clocks_setting",
    0x004: "power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display",
}


class GpuError(Exception):
    """The driver could not do something."""

    def __init__(self, message: str, *, forbidden: bool = False) -> None:
        super().__init__(message)
        #: This user may not do it.
        self.forbidden = forbidden


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU is."""

    #: As ``nvidia-smi`` counts, by PCI address.
    index: int
    uuid: str
    name: str
    #: PCI address.
    bus_id: str
    memory_bytes: int
    #: Processors near to it; empty: not known.
    cpus: tuple[int, ...] = ()
    #: NUMA node; None: not known.
    node: int | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """How a GPU is at one moment; None: it does not tell."""

    sm_mhz: int | None = None
    #: Degrees Celsius.
    temperature: int | None = None
    power_watts: float | None = None
    memory_bytes: int | None = None
    #: Per cent of the time in which a kernel ran.
    utilisation: int | None = None
    #: Bits of ``REASONS``.
    reasons: int = 0


class GpuDriver(Protocol):
    """What is asked of NVIDIA's driver. Every method may raise ``GpuError``."""

    def versions(self) -> dict[str, str]:
        """Return ``driver`` and ``cuda``."""
        ...

    def gpus(self) -> Sequence[Gpu]:
        """Return all GPUs by index."""
        ...

    def topology(self) -> dict[str, str]:
        """Return how each two are connected: ``0-1`` -> ``NVLink x6``, ``same node``, …"""
        ...

    def state(self, index: int) -> GpuState:
        """Return how a GPU is now."""
        ...

    def processes(self, index: int) -> tuple[int, ...]:
        """Return the processes that compute on it."""
        ...

    def persistence(self, index: int) -> bool:
        """Return whether the driver stays loaded while nobody uses the GPU."""
        ...

    def set_persistence(self, index: int, on: bool) -> None:
        """Switch it."""
        ...

    def lock_clock(self, index: int, mhz: int) -> None:
        """Hold the clock of its processors at a rate, as ``nvidia-smi -lgc`` does."""
        ...

    def unlock_clock(self, index: int) -> None:
        """Let the clock go, as ``nvidia-smi -rgc`` does."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


@dataclass
class RecordedGpus:
    """GPUs that play back what was recorded or made up. Implements ``GpuDriver``."""

    found: Sequence[Gpu]
    #: Index -> states in their order; the last one stays.
    states: Mapping[int, Sequence[GpuState]] = field(default_factory=dict)
    #: Index -> processes at each look; the last look stays.
    busy: Mapping[int, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    #: Index -> whether persistence is on; off where it does not say.
    persistent: dict[int, bool] = field(default_factory=dict)
    #: This user may change nothing.
    forbidden: bool = False
    #: Clocks that are held now: index -> MHz.
    clocks: dict[int, int] = field(default_factory=dict)
    #: What was changed, in order: ``lock 0 1200``, ``unlock 0``, ``persistence 0 True``.
    changes: list[str] = field(default_factory=list)
    _looks: dict[tuple[str, int], int] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def versions(self) -> dict[str, str]:
        """Return made-up versions."""
        return {"driver": "550.54.15", "cuda": "12.4"}

    def gpus(self) -> Sequence[Gpu]:
        """Return what was recorded."""
        return self.found

    def topology(self) -> dict[str, str]:
        """Return what was recorded."""
        return dict(self.links)

    def state(self, index: int) -> GpuState:
        """Return the next state."""
        states = self.states.get(index, ())
        return states[self._next("state", index, len(states))] if states else GpuState()

    def processes(self, index: int) -> tuple[int, ...]:
        """Return the processes of the next look."""
        looks = self.busy.get(index, ())
        return looks[self._next("processes", index, len(looks))] if looks else ()

    def _next(self, what: str, index: int, count: int) -> int:
        with self._guard:
            look = self._looks.get((what, index), 0)
            self._looks[what, index] = look + 1
        return min(look, count - 1)

    def persistence(self, index: int) -> bool:
        """Return what was switched last."""
        return self.persistent.get(index, False)

    def set_persistence(self, index: int, on: bool) -> None:
        """Switch it, and remember that."""
        self._change(f"persistence {index} {on}")
        self.persistent[index] = on

    def lock_clock(self, index: int, mhz: int) -> None:
        """Hold a clock, and remember that."""
        self._change(f"lock {index} {mhz}")
        self.clocks[index] = mhz

    def unlock_clock(self, index: int) -> None:
        """Let a clock go, and remember that."""
        self._change(f"unlock {index}")
        self.clocks.pop(index, None)

    def _change(self, words: str) -> None:
        if self.forbidden:
            raise GpuError("Insufficient Permissions", forbidden=True)
        self.changes.append(words)

    def close(self) -> None:
        """Nothing is open."""
