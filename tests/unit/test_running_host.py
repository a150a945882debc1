"""What a host is, and what is seen of it while a benchmark runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfbisect.core.states import FailureKind
from perfbisect.running.failures import RunFailed
from perfbisect.running.host import gpus, host_facts, require_gpus
from perfbisect.running.observe import Observer, difference, disturbance, read_counters

STAT = "cpu  {user} 10 200 5000 30 4 6 {steal} 50 0\ncpu0 1 2 3\n"
PRESSURE = "some avg10=1.00 avg60=0 avg300=0 total={some}\nfull avg10=0 avg60=0 avg300=0 total=7\n"


def test_counters_from_their_files() -> None:
    """Ticks become seconds, guest time is not counted twice, microseconds become seconds."""
    counters = read_counters(STAT.format(user=1000, steal=80), PRESSURE.format(some=2_500_000))
    assert counters.busy == pytest.approx((1000 + 10 + 200 + 4 + 6) / 100)
    assert counters.steal == pytest.approx(0.8)
    assert counters.pressure_some == 2.5
    assert counters.pressure_full == pytest.approx(7e-6)


def test_counters_of_an_old_kernel() -> None:
    """A kernel without steal time or pressure gives what it has."""
    counters = read_counters("cpu  1000 10 200 5000\n", "")
    assert counters.steal == 0.0
    assert counters.pressure_some is None
    assert "pressure_some_seconds" not in difference(counters, counters)


def test_steal_is_a_share_of_the_time_asked_for() -> None:
    """What the hypervisor took counts against busy and stolen time, not against idle time."""
    before = read_counters(STAT.format(user=1000, steal=0), PRESSURE.format(some=0))
    after = read_counters(STAT.format(user=1900, steal=100), PRESSURE.format(some=3_000_000))
    observed = difference(before, after)
    assert observed["steal_share"] == pytest.approx(0.1)
    assert observed["steal_seconds"] == pytest.approx(1.0)
    assert observed["pressure_some_seconds"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("observed", "says"),
    [
        ({}, ""),
        ({"steal_share": 0.10, "steal_seconds": 5.0}, ""),
        ({"steal_share": 0.11, "steal_seconds": 5.0}, "took 11% of the CPU time"),
        ({"steal_share": 0.50, "steal_seconds": 0.4}, ""),
        ({"suspended_seconds": 0.5}, ""),
        ({"suspended_seconds": 60.0}, "slept for 60 s"),
        ({"foreign_cores": 2.0, "pressure_some_seconds": 100.0, "load_max": 50}, ""),
    ],
)
def test_only_clear_evidence_rejects(observed: dict[str, Any], says: str) -> None:
    """Steal above a tenth and sleep reject a run; load by others is recorded only."""
    assert (says in disturbance(observed)) if says else (disturbance(observed) == "")


def test_observing_this_machine() -> None:
    """On a real machine the observation is JSON, and counts our own CPU time as ours."""
    with Observer() as observer:
        sum(range(3_000_000))
    assert json.loads(json.dumps(observer.observed)) == observer.observed
    assert observer.observed["seconds"] > 0
    assert observer.observed["cpu_seconds"] > 0


def test_facts_of_this_machine() -> None:
    """The facts of a host are JSON values and name its CPU, cores and kernel."""
    facts = host_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["logical_cores"] >= facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert facts["kernel"]


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program nvidia-smi, first on PATH, that tells of two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        "echo '0, Tesla V100-PCIE-16GB, 418.67, 16130 MiB, Enabled'\n"
        "echo '1, Tesla V100-PCIE-16GB, 418.67, 16130 MiB, Disabled'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("two_gpus")
def test_gpus_are_read_from_their_tool() -> None:
    """Each GPU is a record of what nvidia-smi says."""
    assert gpus()[1] == {
        "index": "1",
        "name": "Tesla V100-PCIE-16GB",
        "driver_version": "418.67",
        "memory.total": "16130 MiB",
        "persistence_mode": "Disabled",
    }
    assert len(host_facts()["gpus"]) == 2


@pytest.mark.usefixtures("two_gpus")
def test_too_few_gpus() -> None:
    """A benchmark that needs more GPUs than there are is refused with both numbers."""
    require_gpus(2)
    with pytest.raises(RunFailed, match="needs 3 GPUs, and nvidia-smi shows 2") as caught:
        require_gpus(3)
    assert caught.value.failure.kind is FailureKind.OURS


def test_without_the_tool_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a driver has none, and a benchmark that needs none is fine with it."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert gpus() == []
    require_gpus(0)
