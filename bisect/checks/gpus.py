"""Checks of a host's GPUs: what ``perfbisect doctor --gpu`` looks at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from perfbisect.checks import Check, Status
from perfbisect.container_devices import DeviceStyle, style_of
from perfbisect.containers import Docker
from perfbisect.errors import PerfbisectError
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.running.failures import RunFailed
from perfbisect.running.gpu_host import GpuHost
from perfbisect.running.gpu_sampling import GpuSampler, next_sample, state_words
from perfbisect.running.gpus import Gpu, GpuDriver, GpuError
from perfbisect.units import format_size

#: Samples that are taken of idle GPUs.
_SAMPLES = 4


def engine_info(docker_host: str) -> Mapping[str, Any] | None:
    """Return what the Docker engine says of itself; None: it does not answer."""
    try:
        with Docker(docker_host) as docker:
            return docker.info()
    except PerfbisectError:
        return None


def check_gpu_host(
    host: GpuHost,
    info: Mapping[str, Any] | None,
    style: DeviceStyle = DeviceStyle.AUTO,
    between_samples: Callable[[threading.Event], bool] = next_sample,
) -> list[Check]:
    """Look at everything that runs on GPUs need; takes a few seconds.

    A clock that is to be held is held for a moment, and let go.

    Args:
        host: as runs would use it.
        info: what the Docker engine says of itself; None: it does not answer.
        style: how it is asked for GPUs.
        between_samples: passes the time between two samples.
    """
    left = host.recover()
    checks = [_left(left)] if left else []
    try:
        with host.driver() as driver:
            checks.append(_driver(driver))
            checks += [_gpu(host, driver, gpu) for gpu in driver.gpus()]
            checks.append(_sampling(driver, between_samples))
    except GpuError as error:
        advice = "Install NVIDIA's driver and nvidia-ml-py: pip install 'perfbisect[gpu]'."
        checks.append(Check("NVML", Status.MISSING, str(error), advice, required=True))
    else:
        checks.append(_held(host))
    return [*checks, _containers(info, style)]


def _left(problems: list[str]) -> Check:
    advice = "As root: nvidia-smi -rgc lets clocks go, nvidia-smi -pm 0 switches persistence off."
    return Check("left changed", Status.WARNING, "; ".join(problems), advice)


def _driver(driver: GpuDriver) -> Check:
    versions, links = driver.versions(), driver.topology()
    detail = f"driver {versions['driver']}, CUDA {versions['cuda']}"
    if links:
        detail += ": " + ", ".join(f"{pair} {words}" for pair, words in links.items())
    return Check("NVML", Status.OK, detail, required=True)


def _gpu(host: GpuHost, driver: GpuDriver, gpu: Gpu) -> Check:
    name = f"GPU {gpu.index}"
    node = "" if gpu.node is None else f", node {gpu.node}"
    state = state_words(driver.state(gpu.index))
    detail = f"{gpu.name} ({format_size(gpu.memory_bytes)}){node}: {state}"
    unfit = host.unfit(driver, gpu)
    if unfit:
        return Check(name, Status.WARNING, detail, f"{unfit}: runs would wait.")
    if not driver.persistence(gpu.index) and not host.policy.persistence:
        advice = "Quicker starts, steadier clocks: PERFBISECT_GPU_PERSISTENCE=true (as root)."
        return Check(name, Status.WARNING, detail, advice)
    return Check(name, Status.OK, detail)


def _sampling(driver: GpuDriver, between_samples: Callable[[threading.Event], bool]) -> Check:
    left = [_SAMPLES]
    done = threading.Event()

    def pause(stop: threading.Event) -> bool:
        left[0] -= 1
        if left[0] < 0 or between_samples(stop):
            done.set()
            return True
        return False

    with GpuSampler(driver, driver.gpus(), pause) as sampler:
        done.wait(60.0)
    told = sampler.observed
    lacking = [
        str(each["index"])
        for each in told
        if "temperature_max" not in each or "sm_mhz_min" not in each or "error" in each
    ]
    detail = f"{sum(each['samples'] for each in told)} samples of {len(told)} GPUs"
    if lacking:
        advice = "Without clock and temperature a run that was slowed down can't be told."
        return Check("GPU samples", Status.WARNING, f"{detail}; incomplete: {lacking}", advice)
    return Check("GPU samples", Status.OK, detail)


def _held(host: GpuHost) -> Check:
    """Prepare one GPU as a run would, and let it go."""
    clock = host.policy.clock
    wanted = f"clock held at {clock} MHz" if clock else "clocks left alone"
    hurried = CancelToken()
    hurried.cancel()
    try:
        with host.hold(1, hurried) as held:
            cpus = f", {len(held.cpus)} processors near" if held.cpus else ""
            return Check("GPU run", Status.OK, f"{wanted}{cpus}, and set back")
    except CancelledWork:
        return Check("GPU run", Status.WARNING, "not tried: GPU 0 is not ready, or held by a run")
    except RunFailed as error:
        failure = error.failure
        return Check("GPU run", Status.MISSING, failure.cause, failure.advice, required=True)


def _containers(info: Mapping[str, Any] | None, style: DeviceStyle) -> Check:
    name = "GPU containers"
    if info is None:
        return Check(name, Status.MISSING, "the Docker engine does not answer", "Start it.")
    chosen = style_of(info) if style is DeviceStyle.AUTO else style
    hooked = "nvidia" in (info.get("Runtimes") or {})
    if chosen is DeviceStyle.CDI and info.get("CDISpecDirs"):
        return Check(name, Status.OK, "by CDI names (nvidia.com/gpu=0)")
    if chosen is DeviceStyle.NVIDIA and hooked:
        return Check(name, Status.OK, "by NVIDIA's container toolkit")
    version = info.get("ServerVersion", "?")
    advice = (
        "Install nvidia-container-toolkit and run 'nvidia-ctk runtime configure --runtime=docker'; "
        "or, with Docker 28.2 or newer, 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml'."
    )
    return Check(name, Status.MISSING, f"engine {version} can't give GPUs", advice)
