"""Runs on GPUs: with a recorded driver as processes, and what a real engine without them says."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from tests.helpers.running import failure, make_request, make_wheel, success
from tests.integration.docker_base import need_base_image

from perfbisect.container_devices import DeviceStyle, cdi_request, device_requests, style_of
from perfbisect.containers import ContainerSpec, Docker
from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError
from perfbisect.ports import CancelToken
from perfbisect.runner import LocalRunner
from perfbisect.running.gpu_host import GpuHost, GpuPolicy
from perfbisect.running.gpus import Gpu, GpuState, RecordedGpus

PROGRAM = """
import os, sys
print("cpus:", sorted(os.sched_getaffinity(0)), "jobs:", sys.argv[1])
print("gpus:", os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
print("images/sec: 7.5")
"""
#: The processors of this process; the GPU stands near to the last one.
CPUS = sorted(os.sched_getaffinity(0))
FOUND = [
    Gpu(0, "GPU-0", "Tesla V100", "00000000:3b:00.0", 2**34, (CPUS[0],), 0),
    Gpu(1, "GPU-1", "Tesla V100", "00000000:af:00.0", 2**34, (CPUS[-1],), 1),
]
COOL = GpuState(1380, 40, 60.0, 0, 0, 0)
WORKING = GpuState(1380, 70, 250.0, 2**33, 99, 0x4)
HOT = GpuState(900, 88, 180.0, 2**33, 99, 0x48)


def runner(tmp_path: Path, driver: RecordedGpus) -> LocalRunner:
    samples = [4]

    def no_time(stop: threading.Event) -> bool:
        samples[0] -= 1
        return samples[0] < 0

    gpus = GpuHost(
        GpuPolicy(chosen=(1,), clock=1380),
        tmp_path / "changes.json",
        opener=lambda: driver,
        lock=tmp_path / "gpus.lock",
        between_samples=no_time,
    )
    return LocalRunner(gpus=gpus)


@pytest.mark.network
def test_a_point_tells_of_its_gpus(tmp_path: Path) -> None:
    """A benchmark sees the chosen GPU alone, runs near to it, and its point has driver, device and
    samples; a hot one is rejected with the reason. The clock is held for the run alone."""
    wheel = make_wheel(tmp_path / "wheels", {"tiny/__init__.py": ""})
    command = "{python} bench.py {jobs}"
    request = make_request(tmp_path, wheel, PROGRAM, gpus=1, command=command)
    driver = RecordedGpus(FOUND, states={1: [COOL, WORKING]})
    result = success(runner(tmp_path, driver).run(request, CancelToken()))
    log = request.log_path.read_text()
    assert f"cpus: [{CPUS[-1]}] jobs: 1\n" in log
    assert "gpus: 1 PCI_BUS_ID\n" in log
    assert set(CPUS) == os.sched_getaffinity(0)
    told = json.loads(json.dumps(result.environment))
    assert [device["uuid"] for device in told["gpus"]["devices"]] == ["GPU-1"]
    assert told["gpus"]["driver"] == "550.54.15"
    (observed,) = told["observed"]["gpus"]
    assert (observed["index"], observed["samples"]) == (1, 4)
    assert observed["reasons"] == {"power_cap": 1.0}
    assert result.rejected == ""
    assert driver.changes == ["lock 1 1380", "unlock 1"]

    hot = RecordedGpus(FOUND, states={1: [COOL, WORKING, HOT]})
    again = make_request(tmp_path, wheel, PROGRAM, run="run-2", gpus=1, command=command)
    rejected = success(runner(tmp_path, hot).run(again, CancelToken()))
    assert rejected.value == 7.5
    assert rejected.rejected.startswith("GPU 1 throttled in 75% of the run: ")


@pytest.mark.network
def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    """The run fails before anything is installed."""
    wheel = make_wheel(tmp_path / "wheels", {"tiny/__init__.py": ""})
    request = make_request(tmp_path, wheel, PROGRAM, gpus=2)
    failed = failure(runner(tmp_path, RecordedGpus(FOUND)).run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert "needs 2 GPUs, and there are 1 here" in failed.cause
    assert not (tmp_path / "cache" / "environments").exists()


def spec(image: str, **changes: object) -> ContainerSpec:
    values: dict[str, object] = {
        "work": "gpu-test", "image": image, "argv": ["sh", "-c", "nproc; env"], "env": {},
        "user": "10001:10001", "working_dir": "/",
    }  # fmt: skip
    return ContainerSpec(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.docker
@pytest.mark.parametrize(
    ("style", "words"),
    [
        (DeviceStyle.NVIDIA, "NVIDIA's container toolkit is not set up"),
        (DeviceStyle.CDI, "Docker 28.2 or newer|no such CDI device"),
    ],
)
def test_an_engine_without_gpus_says_what_is_needed(style: DeviceStyle, words: str) -> None:
    """A real engine refuses; the message names what to install, and no container is left."""
    image = need_base_image()
    with Docker() as docker:
        if "nvidia" in (docker.info().get("Runtimes") or {}):
            pytest.skip("this engine has NVIDIA's hook")
        wanted = spec(image, devices=device_requests([0, 2], style))
        with pytest.raises(BadInputError, match=words):
            docker.run(wanted, timeout=60, cancel=CancelToken())
        assert docker.remove_leftovers("gpu-test") == 0


@pytest.mark.docker
def test_a_container_is_bound_to_processors() -> None:
    """It sees the processors of its GPUs' node, and no others."""
    image = need_base_image()
    with Docker() as docker:
        done = docker.run(spec(image, cpuset=CPUS[:1]), timeout=60, cancel=CancelToken())
    assert done.tail.splitlines()[0] == "1"


_CDI = {
    "cdiVersion": "0.5.0",
    "kind": "perfbisect.test/device",
    "devices": [{"name": "one", "containerEdits": {"env": ["PERFBISECT_CDI=injected"]}}],
}


@pytest.mark.docker
def test_a_device_is_injected_by_its_cdi_name() -> None:
    """Where the engine is new enough, a device of a specification is in the container."""
    image = need_base_image()
    with Docker() as docker:
        directories = [Path(each) for each in docker.info().get("CDISpecDirs") or ()]
        usable = [each for each in directories if os.access(each, os.W_OK)]
        if not usable:
            version = docker.client.version()["Version"]
            pytest.skip(f"engine {version} has no directory of CDI specifications to write to")
        specification = usable[0] / f"perfbisect-test-{os.getpid()}.json"
        specification.write_text(json.dumps(_CDI))
        try:
            wanted = spec(image, devices=[cdi_request(["perfbisect.test/device=one"])])
            done = docker.run(wanted, timeout=60, cancel=CancelToken())
        finally:
            specification.unlink()
    assert "PERFBISECT_CDI=injected" in done.tail


@pytest.mark.parametrize(
    ("info", "style"),
    [
        ({}, DeviceStyle.NVIDIA),
        ({"Runtimes": {"nvidia": {}}, "CDISpecDirs": ["/etc/cdi"]}, DeviceStyle.NVIDIA),
        ({"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]}, DeviceStyle.CDI),
    ],
)
def test_engines_are_asked_as_they_can(info: dict[str, object], style: DeviceStyle) -> None:
    """By CDI names only where the engine knows them and has no hook of NVIDIA's."""
    assert style_of(info) is style
    (request,) = device_requests([1, 3], style)
    cdi = ["nvidia.com/gpu=1", "nvidia.com/gpu=3"]
    assert request["DeviceIDs"] == (cdi if style is DeviceStyle.CDI else ["1", "3"])
    assert device_requests([], style) == []
