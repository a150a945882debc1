"""What a host is: the facts that explain why it is as fast as it is."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from perfbisect.core.states import FailureKind
from perfbisect.running.failures import failed

_CPU = Path("/sys/devices/system/cpu")
_GPU_QUERY = "index,name,driver_version,memory.total,persistence_mode"


def host_facts() -> dict[str, Any]:
    """Return facts of this machine as JSON values; what can't be read is left out.

    ``cpu`` (model), ``cores`` (usable), ``logical_cores``, ``physical_cores``, ``memory_bytes``,
    ``governor``, ``turbo``, ``smt``, ``virtual`` (runs under a hypervisor), ``kernel``, ``system``,
    ``architecture``, ``python``, and ``gpus``: a list of ``nvidia-smi``'s words for each.
    """
    facts = {
        **_cpu_facts(),
        "cores": len(os.sched_getaffinity(0)),
        "logical_cores": psutil.cpu_count(logical=True),
        "physical_cores": psutil.cpu_count(logical=False),
        "memory_bytes": psutil.virtual_memory().total,
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(),
        "smt": {"1": True, "0": False}.get(_read(_CPU / "smt/active")),
        "kernel": platform.release(),
        "system": _system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "gpus": gpus(),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def gpus() -> list[dict[str, str]]:
    """Return what ``nvidia-smi`` says about each GPU; empty without GPUs or driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        output = subprocess.run(
            [program, f"--query-gpu={_GPU_QUERY}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    names = _GPU_QUERY.split(",")
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def require_gpus(wanted: int) -> None:
    """Return if this machine has as many GPUs.

    Raises:
        RunFailed: ours: it has fewer.
    """
    found = len(gpus()) if wanted else 0
    if found < wanted:
        cause = f"the benchmark needs {wanted} GPUs, and nvidia-smi shows {found} here"
        advice = "run it on a host with as many, or lower the benchmark's 'gpus'"
        raise failed(FailureKind.OURS, cause, advice=advice)


def _cpu_facts() -> dict[str, Any]:
    model, flags = "", ""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and not model:
            model = value.strip()
        if name.strip() == "flags":
            flags = value
            break
    return {"cpu": model or platform.processor(), "virtual": "hypervisor" in flags.split()}


def _turbo() -> bool | None:
    """Return whether the clock may rise above its nominal rate."""
    if no_turbo := _read(_CPU / "intel_pstate/no_turbo"):
        return no_turbo == "0"
    if boost := _read(_CPU / "cpufreq/boost"):
        return boost == "1"
    return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
