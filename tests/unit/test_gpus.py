"""GPUs of a host: chosen, prepared, watched, set back; with a recorded driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfbisect.checks import Status
from perfbisect.checks.gpus import check_gpu_host
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.running.failures import RunFailed
from perfbisect.running.gpu_host import GpuHost, GpuPolicy
from perfbisect.running.gpus import Gpu, GpuDriver, GpuError, GpuState, RecordedGpus
from perfbisect.running.nvml import near_cpus, near_node, parse_cpus
from perfbisect.settings import Settings, chosen_gpus
from perfbisect.wiring import make_gpu_host

COOL = GpuState(sm_mhz=1380, temperature=40, power_watts=60.0, memory_bytes=5, utilisation=0)
POWER_CAP, HW_THERMAL = 0x4, 0x48


def gpu(index: int, node: int | None = None, cpus: tuple[int, ...] = ()) -> Gpu:
    return Gpu(index, f"GPU-{index}", "Tesla V100", f"00000000:{index:02x}:00.0", 2**34, cpus, node)


def host(
    tmp_path: Path,
    driver: GpuDriver | None,
    policy: GpuPolicy | None = None,
    pause: Callable[[CancelToken], bool] = lambda cancel: cancel.cancelled,
) -> GpuHost:
    def opener() -> GpuDriver:
        if driver is None:
            raise GpuError("no driver here")
        return driver

    return GpuHost(
        policy or GpuPolicy(),
        tmp_path / "changes.json",
        opener=opener,
        lock=tmp_path / "gpus.lock",
        pause=pause,
    )


def refused(here: GpuHost, wanted: int = 1) -> Any:
    with pytest.raises(RunFailed) as failed, here.hold(wanted, CancelToken()):
        pass
    return failed.value.failure


# ------------------------------------------------------------------ which


@pytest.mark.parametrize(
    ("chosen", "wanted", "indices"),
    [
        (None, 1, (0,)),
        (None, 4, (0, 1, 2, 3)),
        (None, 2, (1, 2)),  # of one node
        ((3, 0), 2, (0, 3)),
        ((2,), 1, (2,)),
    ],
)
def test_gpus_of_one_node_go_first(
    tmp_path: Path, chosen: tuple[int, ...] | None, wanted: int, indices: tuple[int, ...]
) -> None:
    """A run gets as many as it needs of those allowed, from one NUMA node where one has enough."""
    driver = RecordedGpus([gpu(0, 0), gpu(1, 1), gpu(2, 1), gpu(3, 2)])
    here = host(tmp_path, driver, GpuPolicy(chosen=chosen))
    here.require(wanted)
    with here.hold(wanted, CancelToken()) as held:
        assert held.indices == indices


def test_too_few_gpus(tmp_path: Path) -> None:
    """More than there are, or than the host gives, is a mistake of the benchmark or the pool."""
    here = host(tmp_path, RecordedGpus([gpu(0), gpu(1)]), GpuPolicy(chosen=(1, 7)))
    with pytest.raises(RunFailed, match="needs 2 GPUs, and there are 1 here, as PERFBISECT_GPUS"):
        here.require(2)
    assert refused(here, 2).kind is FailureKind.OURS


def test_choices_are_read() -> None:
    """``all`` or indices; anything else is refused where the setting is read."""
    assert chosen_gpus("all") is None
    assert chosen_gpus("0, 2") == (0, 2)
    with pytest.raises(ValueError, match="'all' or their indices"):
        Settings(gpus="GPU-1")


def test_without_a_driver_nothing_is_known(tmp_path: Path) -> None:
    """Where NVML can't be used the run goes on unwatched, and its point says why."""
    with host(tmp_path, None).hold(2, CancelToken()) as held:
        assert held.indices == (0, 1)
        assert held.facts == {"unobserved": "no driver here"}
        with held.watched():
            assert held.observed == {}


# ------------------------------------------------------------------ before


def test_a_run_waits_for_idle_and_cool_gpus(tmp_path: Path) -> None:
    """In use, busy by somebody unseen, too hot: a run begins once none of it is so any more."""
    driver = RecordedGpus(
        [gpu(0), gpu(1)],
        states={0: [replace(COOL, utilisation=80), replace(COOL, temperature=66), COOL]},
        busy={1: [(4711, 4712), ()]},
    )
    looks: list[int] = []

    def pause(cancel: CancelToken) -> bool:
        looks.append(1)
        return False

    with host(tmp_path, driver, pause=pause).hold(2, CancelToken()) as held:
        assert held.indices == (0, 1)
    assert len(looks) == 3


@pytest.mark.parametrize(
    ("driver", "cause"),
    [
        (RecordedGpus([gpu(0)], busy={0: [(4711,)]}), "GPU 0 is used by process 4711"),
        (
            RecordedGpus([gpu(0)], states={0: [replace(COOL, utilisation=50)]}),
            r"GPU 0 is busy \(50%\), by a process not seen here",
        ),
        (
            RecordedGpus([gpu(0)], states={0: [replace(COOL, temperature=90)]}),
            "GPU 0 is at 90 °C, above 65 °C",
        ),
    ],
)
def test_what_lasts_is_a_transient_failure(
    tmp_path: Path, driver: RecordedGpus, cause: str
) -> None:
    """A GPU that stays unfit is named with what is wrong, and the run is tried again later."""
    failure = refused(host(tmp_path, driver, GpuPolicy(wait=3)))
    assert failure.kind is FailureKind.TRANSIENT
    assert re.search(f"{cause}, after 3", failure.cause)


def test_any_temperature_can_be_allowed(tmp_path: Path) -> None:
    """Without a bound a hot GPU is no reason to wait."""
    driver = RecordedGpus([gpu(0)], states={0: [replace(COOL, temperature=90)]})
    with host(tmp_path, driver, GpuPolicy(max_temperature=0)).hold(1, CancelToken()) as held:
        assert held.indices == (0,)


def test_the_wait_can_be_ended(tmp_path: Path) -> None:
    """A cancelled run stops to wait, and lets go of the GPUs."""
    here = host(tmp_path, RecordedGpus([gpu(0)], busy={0: [(1,), ()]}))
    cancel = CancelToken()
    cancel.cancel()
    # The lock itself is not taken for somebody who left: so it is asked while it is free.
    with pytest.raises(CancelledWork), here.hold(1, cancel):
        pass
    with here.hold(1, CancelToken()) as held:
        assert held.indices == (0,)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """Whoever holds the GPUs of a host holds them alone, also against other processes."""
    driver = RecordedGpus([gpu(0), gpu(1)])
    with host(tmp_path, driver).hold(1, CancelToken()):
        gone = CancelToken()
        gone.cancel()
        with pytest.raises(CancelledWork), host(tmp_path, driver).hold(1, gone):
            pass


# ------------------------------------------------------------------ changes


def test_clocks_and_persistence_are_set_back(tmp_path: Path) -> None:
    """They are as asked for while the run lasts; afterwards as before, also when it fails."""
    driver = RecordedGpus([gpu(0), gpu(1)], persistent={0: True})
    here = host(tmp_path, driver, GpuPolicy(clock=1200, persistence=True))

    def run() -> None:
        with here.hold(2, CancelToken()) as held:
            assert driver.clocks == {0: 1200, 1: 1200}
            assert driver.persistent == {0: True, 1: True}
            assert held.facts["clock"] == 1200
            assert (tmp_path / "changes.json").exists()
            raise ValueError("of the run")

    with pytest.raises(ValueError, match="of the run"):
        run()
    assert driver.clocks == {}
    assert driver.persistent == {0: True, 1: False}
    assert not (tmp_path / "changes.json").exists()


def test_nothing_is_changed_unless_asked_for(tmp_path: Path) -> None:
    """By default clocks and persistence stay alone, and no note is written."""
    driver = RecordedGpus([gpu(0)])
    with host(tmp_path, driver).hold(1, CancelToken()):
        assert not (tmp_path / "changes.json").exists()
    assert driver.changes == []


def test_what_may_not_be_changed_is_a_mistake(tmp_path: Path) -> None:
    """Without the right to set clocks the run fails with what to do, rather than run unlocked."""
    driver = RecordedGpus([gpu(0)], forbidden=True)
    failure = refused(host(tmp_path, driver, GpuPolicy(clock=1200)))
    assert failure.kind is FailureKind.OURS
    assert "PERFBISECT_GPU_CLOCK" in failure.cause
    assert "root" in failure.advice


_CRASH = """
import os, sys
from pathlib import Path
from perfbisect.ports import CancelToken
from perfbisect.running.gpu_host import GpuHost, GpuPolicy
from perfbisect.running.gpus import Gpu, RecordedGpus

driver = RecordedGpus([Gpu(0, "GPU-0", "", "", 0), Gpu(1, "GPU-1", "", "", 0)])
place = Path(sys.argv[1])
policy = GpuPolicy(clock=900, persistence=True)
host = GpuHost(policy, place / "changes.json", opener=lambda: driver, lock=place / "gpus.lock")
with host.hold(1, CancelToken()):
    os._exit(9)
"""


def test_a_crash_is_undone_at_the_next_start(tmp_path: Path) -> None:
    """A process that dies in the middle leaves a note; the next start takes back what it tells."""
    assert (
        subprocess.run([sys.executable, "-c", _CRASH, str(tmp_path)], check=False).returncode == 9
    )
    driver = RecordedGpus([gpu(0), gpu(1)], persistent={0: True}, clocks={0: 900})
    here = host(tmp_path, driver)
    assert here.recover() == []
    assert driver.clocks == {}
    assert driver.persistent == {0: False}
    assert driver.changes == ["unlock 0", "persistence 0 False"]
    assert here.recover() == []
    assert len(driver.changes) == 2


def test_what_is_under_way_is_not_taken_back(tmp_path: Path) -> None:
    """A second process that starts leaves alone what a living one has set."""
    driver = RecordedGpus([gpu(0)])
    with host(tmp_path, driver, GpuPolicy(clock=900)).hold(1, CancelToken()):
        assert host(tmp_path, driver).recover() == []
        assert driver.clocks == {0: 900}


def test_what_could_not_be_undone_stays_noted(tmp_path: Path) -> None:
    """A start without the right to set clocks says so; one that has it undoes them."""
    driver = RecordedGpus([gpu(0)])
    here = host(tmp_path, driver, GpuPolicy(clock=900))
    with here.hold(1, CancelToken()):
        driver.forbidden = True
    assert here.recover() == ["GPU 0: Insufficient Permissions"]
    driver.forbidden = False
    assert here.recover() == []
    assert driver.clocks == {}


# ------------------------------------------------------------------ where


def test_the_processors_of_a_device(tmp_path: Path) -> None:
    """They are what the kernel tells of its PCI address, as far as this process may use them."""
    device = tmp_path / "0000:3b:00.0"
    device.mkdir()
    own = sorted(os.sched_getaffinity(0))
    (device / "local_cpulist").write_text(f"{own[0]},4000-4001\n")
    (device / "numa_node").write_text("1\n")
    assert near_cpus("00000000:3B:00.0", tmp_path) == (own[0],)
    assert near_node("00000000:3B:00.0", tmp_path) == 1
    assert near_cpus("00000000:3C:00.0", tmp_path) == ()
    (device / "numa_node").write_text("-1\n")
    assert near_node("00000000:3B:00.0", tmp_path) is None
    assert parse_cpus("0-2,8,10-11") == (0, 1, 2, 8, 10, 11)


def test_a_run_is_bound_to_all_nodes_of_its_gpus(tmp_path: Path) -> None:
    """Processors near to any of them; none where one of them is not known, or nobody asked."""
    driver = RecordedGpus(
        [gpu(0, 0, (0, 1)), gpu(1, 1, (2, 3)), gpu(2)], links={"0-1": "NVLink x6"}
    )
    with host(tmp_path, driver).hold(2, CancelToken()) as held:
        assert (held.cpus, held.nodes) == ((0, 1, 2, 3), (0, 1))
        assert held.facts["topology"] == {"0-1": "NVLink x6"}
        assert held.facts["driver"] == "550.54.15"
        assert [each["uuid"] for each in held.facts["devices"]] == ["GPU-0", "GPU-1"]
    for wanted, policy in ((3, GpuPolicy()), (2, GpuPolicy(pin=False))):
        with host(tmp_path, driver, policy).hold(wanted, CancelToken()) as held:
            assert (held.cpus, held.nodes) == ((), ())


def test_settings_reach_the_host(tmp_path: Path) -> None:
    """Each setting of GPUs is part of how they are used."""
    settings = Settings(
        data_dir=tmp_path, gpus="1,2", gpu_clock=1200, gpu_persistence=True,
        gpu_max_temperature=50, gpu_wait=5, gpu_pin=False,
    )  # fmt: skip
    wanted = GpuPolicy((1, 2), clock=1200, persistence=True, max_temperature=50, wait=5, pin=False)
    assert make_gpu_host(settings).policy == wanted


# ------------------------------------------------------------------ the doctor's


def no_time(stop: threading.Event) -> bool:
    return False


def test_the_doctor_looks_closely(tmp_path: Path) -> None:
    """Driver, each GPU with what keeps it from a run, samples, a clock held and let go, Docker."""
    driver = RecordedGpus(
        [gpu(0, 0, (0,)), gpu(1, 1)],
        states={0: [COOL], 1: [replace(COOL, temperature=90)]},
        links={"0-1": "NVLink x6"},
        persistent={0: True},
    )
    here = host(tmp_path, driver, GpuPolicy(clock=1200))
    info: dict[str, Any] = {"Runtimes": {"nvidia": {}}}
    found = {each.name: each for each in check_gpu_host(here, info, between_samples=no_time)}
    assert found["NVML"].detail == "driver 550.54.15, CUDA 12.4: 0-1 NVLink x6"
    assert (found["GPU 0"].status, found["GPU 1"].status) == (Status.OK, Status.WARNING)
    assert found["GPU 1"].advice == "GPU 1 is at 90 °C, above 65 °C: runs would wait."
    assert found["GPU samples"].detail == "8 samples of 2 GPUs"
    assert found["GPU run"].detail == "clock held at 1200 MHz, 1 processors near, and set back"
    assert found["GPU containers"].status is Status.OK
    assert driver.changes == ["lock 0 1200", "unlock 0"]


def test_the_doctor_says_what_is_missing(tmp_path: Path) -> None:
    """Without driver, right or hook each has its advice, and only what runs need is required."""
    found = {each.name: each for each in check_gpu_host(host(tmp_path, None), None)}
    assert (found["NVML"].status, found["NVML"].required) == (Status.MISSING, True)
    assert found["GPU containers"].status is Status.MISSING
    driver = RecordedGpus([gpu(0)], states={0: [GpuState()]}, forbidden=True)
    here = host(tmp_path, driver, GpuPolicy(clock=1200))
    old = {"ServerVersion": "20.10.24", "Runtimes": {"runc": {}}}
    found = {each.name: each for each in check_gpu_host(here, old, between_samples=no_time)}
    assert found["GPU run"].status is Status.MISSING
    assert "root" in found["GPU run"].advice
    assert found["GPU samples"].status is Status.WARNING
    assert "20.10.24" in found["GPU containers"].detail
    busy = host(tmp_path, RecordedGpus([gpu(0)], busy={0: [(7,)]}))
    found = {each.name: each for each in check_gpu_host(busy, old, between_samples=no_time)}
    assert found["GPU run"].status is Status.WARNING
