"""What is sampled of GPUs, and what NVML answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest

from perfbisect.running.gpu_sampling import KEPT, GpuSampler, state_words, summary, throttled
from perfbisect.running.gpus import Gpu, GpuError, GpuState, RecordedGpus
from perfbisect.running.nvml import Nvml, open_nvml

COOL = GpuState(sm_mhz=1380, temperature=40, power_watts=60.0, memory_bytes=5, utilisation=0)
POWER_CAP, HW_THERMAL = 0x4, 0x48


def gpu(index: int, node: int | None = None, cpus: tuple[int, ...] = ()) -> Gpu:
    return Gpu(index, f"GPU-{index}", "Tesla V100", f"00000000:{index:02x}:00.0", 2**34, cpus, node)


def looks(count: int) -> Callable[[threading.Event], bool]:
    """Wait no time between so many samples."""
    left = [count]

    def wait(stop: threading.Event) -> bool:
        left[0] -= 1
        return left[0] < 0

    return wait


def sampled(states: Sequence[GpuState]) -> dict[str, Any]:
    driver = RecordedGpus([gpu(2)], states={2: states})
    with GpuSampler(driver, driver.found, looks(len(states))) as sampler:
        pass
    (told,) = sampler.observed
    return told


def test_samples_are_summed_up() -> None:
    """Mean and worst of clock, temperature, power and memory, and how often what slowed it."""
    told = sampled(
        [
            GpuState(1500, 60, 200.0, 100, 99, POWER_CAP),
            GpuState(1300, 70, 300.0, 300, 97, POWER_CAP),
            GpuState(1400, 65, 250.0, 200, 98, 0),
            GpuState(1400, None, None, None, None, 0),
        ]
    )
    assert told["samples"] == 4
    assert (told["sm_mhz_mean"], told["sm_mhz_min"]) == (1400.0, 1300)
    assert (told["temperature_mean"], told["temperature_max"]) == (65.0, 70)
    assert (told["power_watts_mean"], told["power_watts_max"]) == (250.0, 300.0)
    assert (told["memory_bytes_max"], told["utilisation_min"]) == (300, 97)
    assert told["reasons"] == {"power_cap": 0.5}
    assert told["series"]["temperature"] == [60, 70, 65]
    assert throttled([told]) == ""


def test_a_long_run_is_stored_short() -> None:
    """Of many samples evenly chosen ones are stored, the first and the last among them."""
    told = summary(0, [GpuState(sm_mhz=number) for number in range(10_000)])
    series = told["series"]["sm_mhz"]
    assert len(series) == KEPT
    assert (series[0], series[-1]) == (0, 9999)
    assert series == sorted(series)
    assert summary(0, [])["reasons"] == {}


@pytest.mark.parametrize("bits", [0x8, 0x20, 0x40, 0x80])
def test_a_throttled_run_is_rejected(bits: int) -> None:
    """Each slowdown by heat, hardware or supply rejects, with GPU, share, cause and temperature."""
    states = [GpuState(1400, 70)] * 90 + [GpuState(900, 88, reasons=bits)] * 10
    reason = throttled([sampled(states)])
    assert reason.startswith("GPU 2 throttled in 10% of the run: ")
    assert reason.endswith("at up to 88 °C")


def test_a_blink_does_not_reject() -> None:
    """One sample of a hundred is none."""
    assert throttled([sampled([GpuState()] * 99 + [GpuState(reasons=HW_THERMAL)])]) == ""


def test_a_gpu_that_falls_off_is_told() -> None:
    """When the driver fails the run is not ended by it; the point says what was seen."""

    class Lost(RecordedGpus):
        def state(self, index: int) -> GpuState:
            raise GpuError("GPU is lost")

    driver = Lost([gpu(0)])
    with GpuSampler(driver, driver.found, looks(3)) as sampler:
        pass
    assert sampler.observed[0]["error"] == "GPU is lost"


def test_states_for_people() -> None:
    """What is known is told with its units."""
    assert state_words(COOL) == "40 °C, 1380 MHz, 60 W"
    assert state_words(GpuState()) == "it tells nothing"


# ------------------------------------------------------------------ NVML


class Library:
    """As much of ``pynvml`` as is asked, with answers of one GPU; errors are its own."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return getattr(pynvml, name)
        getattr(pynvml, name)  # the package has it

        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            answer = self._answers.get(name, 0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def test_states_as_nvml_tells_them() -> None:
    """Milliwatts become watts, bits stay, and what a GPU does not support is left out."""
    usage = pynvml.c_nvmlUtilization_t(gpu=87, memory=3)
    library = Library(
        nvmlDeviceGetClockInfo=1380,
        nvmlDeviceGetTemperature=61,
        nvmlDeviceGetPowerUsage=pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED),
        nvmlDeviceGetMemoryInfo=pynvml.c_nvmlMemory_t(total=100, free=40, used=60),
        nvmlDeviceGetUtilizationRates=usage,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x44,
    )
    assert Nvml(library).state(0) == GpuState(1380, 61, None, 60, 87, 0x44)
    lost = Library(nvmlDeviceGetTemperature=pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(GpuError):
        Nvml(lost).state(0)


def test_changes_as_nvml_takes_them() -> None:
    """A clock is held at one rate and let go; that this user may not is known as such."""
    library = Library()
    driver = Nvml(library)
    driver.lock_clock(3, 1200)
    driver.unlock_clock(3)
    driver.set_persistence(3, True)
    names = [call[0] for call in library.calls if call[0] != "nvmlDeviceGetHandleByIndex"]
    assert library.calls[1][2:] == (1200, 1200)
    assert names == [
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
        "nvmlDeviceSetPersistenceMode",
    ]
    denied = pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
    with pytest.raises(GpuError) as error:
        Nvml(Library(nvmlDeviceSetGpuLockedClocks=denied)).lock_clock(0, 1)
    assert error.value.forbidden


def test_devices_as_nvml_tells_them() -> None:
    """Name, memory and address of each; versions as people write them; how two are connected."""
    address = pynvml.nvmlPciInfo_t(busId=b"00000000:3B:00.0")
    library = Library(
        nvmlDeviceGetCount=2,
        nvmlDeviceGetPciInfo=address,
        nvmlDeviceGetUUID="GPU-a",
        nvmlDeviceGetName="Tesla V100",
        nvmlDeviceGetMemoryInfo=pynvml.c_nvmlMemory_t(total=100),
        nvmlSystemGetCudaDriverVersion_v2=12040,
        nvmlSystemGetDriverVersion="550.54.15",
        nvmlDeviceGetTopologyCommonAncestor=10,
    )
    first, second = Nvml(library).gpus()
    assert (first.index, second.index) == (0, 1)
    assert (first.name, first.bus_id, first.memory_bytes) == ("Tesla V100", "00000000:3B:00.0", 100)
    assert Nvml(library).versions() == {"driver": "550.54.15", "cuda": "12.4"}
    assert Nvml(library).topology() == {"0-1": "same switch"}
    linked = Library(
        nvmlDeviceGetCount=2,
        nvmlDeviceGetPciInfo=address,
        nvmlDeviceGetNvLinkState=1,
        nvmlDeviceGetNvLinkRemotePciInfo=address,
    )
    assert Nvml(linked).topology() == {"0-1": f"NVLink x{pynvml.NVML_NVLINK_MAX_LINKS}"}


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="NVIDIA's driver is here")
def test_no_driver_is_told() -> None:
    """On a machine without NVIDIA's driver, that is what the error says."""
    with pytest.raises(GpuError, match="driver does not answer"):
        open_nvml()
