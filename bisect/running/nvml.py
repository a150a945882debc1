"""NVIDIA's driver by NVML (the package ``nvidia-ml-py``, the extra ``gpu``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from perfbisect.running.gpus import Gpu, GpuDriver, GpuError, GpuState

_T = TypeVar("_T")

_PCI = Path("/sys/bus/pci/devices")
#: How far apart two GPUs are, in NVML's numbers.
_DISTANCES = {
    0: "same board",
    10: "same switch",
    20: "several switches",
    30: "same host bridge",
    40: "same node",
    50: "across nodes",
}


def open_nvml() -> GpuDriver:
    """Return the driver of this machine.

    Raises:
        GpuError: the package or the driver is not there; says which.
    """
    try:
        import pynvml
    except ImportError as error:
        raise GpuError("nvidia-ml-py is not installed (pip install 'perfbisect[gpu]')") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise GpuError(f"NVIDIA's driver does not answer: {error}") from error
    return Nvml(pynvml)


class Nvml:
    """The open driver. Implements ``gpus.GpuDriver``."""

    def __init__(self, nvml: Any) -> None:
        """Use an initialised module ``pynvml``."""
        self._nvml = nvml

    def close(self) -> None:
        """Let go of the driver."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def versions(self) -> dict[str, str]:
        """Return ``driver`` and ``cuda``."""
        with self._translated():
            number = int(self._nvml.nvmlSystemGetCudaDriverVersion_v2())
            driver = _text(self._nvml.nvmlSystemGetDriverVersion())
        return {"driver": driver, "cuda": f"{number // 1000}.{number % 1000 // 10}"}

    def gpus(self) -> Sequence[Gpu]:
        """Return all GPUs by index."""
        with self._translated():
            return [self._gpu(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _gpu(self, index: int) -> Gpu:
        handle = self._handle(index)
        bus_id = _text(self._nvml.nvmlDeviceGetPciInfo(handle).busId)
        return Gpu(
            index=index,
            uuid=_text(self._nvml.nvmlDeviceGetUUID(handle)),
            name=_text(self._nvml.nvmlDeviceGetName(handle)),
            bus_id=bus_id,
            memory_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total),
            cpus=near_cpus(bus_id),
            node=near_node(bus_id),
        )

    def topology(self) -> dict[str, str]:
        """Return how each two are connected."""
        with self._translated():
            count = self._nvml.nvmlDeviceGetCount()
            return {f"{a}-{b}": self._connection(a, b) for a, b in combinations(range(count), 2)}

    def _connection(self, one: int, other: int) -> str:
        links = self._links(one, other)
        if links:
            return f"NVLink x{links}"
        level = self._nvml.nvmlDeviceGetTopologyCommonAncestor(
            self._handle(one), self._handle(other)
        )
        return _DISTANCES.get(int(level), str(level))

    def _links(self, one: int, other: int) -> int:
        """Count the direct links between two; those through a switch are not told apart."""
        handle, count = self._handle(one), 0
        wanted = _text(self._nvml.nvmlDeviceGetPciInfo(self._handle(other)).busId).lower()
        for link in range(self._nvml.NVML_NVLINK_MAX_LINKS):
            with contextlib.suppress(self._nvml.NVMLError):
                if self._nvml.nvmlDeviceGetNvLinkState(handle, link):
                    remote = self._nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                    count += _text(remote.busId).lower() == wanted
        return count

    def state(self, index: int) -> GpuState:
        """Return how a GPU is now."""
        nvml = self._nvml
        with self._translated():
            handle = self._handle(index)
        power = self._asked(nvml.nvmlDeviceGetPowerUsage, handle)
        memory = self._asked(nvml.nvmlDeviceGetMemoryInfo, handle)
        usage = self._asked(nvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuState(
            sm_mhz=self._asked(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            temperature=self._asked(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_watts=None if power is None else power / 1000,
            memory_bytes=None if memory is None else int(memory.used),
            utilisation=None if usage is None else int(usage.gpu),
            # Its newer name, "event reasons", is unknown to drivers before 535.
            reasons=int(self._asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0),
        )

    def _asked(self, function: Any, *arguments: Any) -> Any:
        """Return what the driver answers; None: this GPU does not tell.

        Raises:
            GpuError: the GPU is gone.
        """
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_GPU_IS_LOST:
                raise GpuError(str(error)) from error
            return None

    def processes(self, index: int) -> tuple[int, ...]:
        """Return the processes that compute on it."""
        with self._translated():
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle(index))
            return tuple(int(each.pid) for each in found)

    def persistence(self, index: int) -> bool:
        """Return whether the driver stays loaded while nobody uses the GPU."""
        with self._translated():
            return bool(self._nvml.nvmlDeviceGetPersistenceMode(self._handle(index)))

    def set_persistence(self, index: int, on: bool) -> None:
        """Switch it."""
        with self._translated():
            self._nvml.nvmlDeviceSetPersistenceMode(self._handle(index), int(on))

    def lock_clock(self, index: int, mhz: int) -> None:
        """Hold the clock at a rate."""
        with self._translated():
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle(index), mhz, mhz)

    def unlock_clock(self, index: int) -> None:
        """Let the clock go."""
        with self._translated():
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle(index))

    def _handle(self, index: int) -> Any:
        return self._nvml.nvmlDeviceGetHandleByIndex(index)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            denied = getattr(error, "value", None) == self._nvml.NVML_ERROR_NO_PERMISSION
            raise GpuError(str(error), forbidden=denied) from error


def near_cpus(bus_id: str, devices: Path = _PCI) -> tuple[int, ...]:
    """Return the processors near to a PCI device that this process may use; empty: not known."""
    try:
        text = (devices / _short(bus_id) / "local_cpulist").read_text(encoding="ascii")
    except OSError:
        return ()
    near = parse_cpus(text)
    return tuple(cpu for cpu in near if cpu in os.sched_getaffinity(0))


def near_node(bus_id: str, devices: Path = _PCI) -> int | None:
    """Return the NUMA node of a PCI device; None: not known, or there is only one."""
    try:
        node = int((devices / _short(bus_id) / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _short(bus_id: str) -> str:
    """Return a PCI address as the kernel writes it: four digits of domain, small letters."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the processors of a list such as ``0-3,8``."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
