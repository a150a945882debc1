"""Checks of the hardware, and of how steady it is."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfbisect.checks import Check, Status, existing_parent
from perfbisect.running.host import gpus
from perfbisect.units import format_size

#: Bytes: one TensorFlow build with its caches takes about this much.
DISK_WANTED = 60 * 1024**3
DISK_NEEDED = 2 * 1024**3
MEMORY_WANTED = 4 * 1024**3

#: Per cent of the time in which something waited for a processor, above which runs are noisy.
PRESSURE_NOISY = 5.0


def check_gpus() -> Check:
    """Ask the driver's ``nvidia-smi`` for GPUs."""
    found = gpus()
    if found:
        lines = [f"{gpu['name']} ({gpu['memory.total']})" for gpu in found]
        detail = f"{', '.join(lines)}; driver {found[0]['driver_version']}"
        if any(gpu["persistence_mode"] == "Disabled" for gpu in found):
            advice = (
                "Steadier clocks and quicker starts: nvidia-smi --persistence-mode=1 (as root)."
            )
            return Check("GPUs", Status.WARNING, detail, advice)
        return Check("GPUs", Status.OK, detail)
    if Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi"):
        advice = "The driver is there, but nvidia-smi shows no GPU: run it by hand to see why."
        return Check("GPUs", Status.MISSING, "driver without a usable GPU", advice)
    advice = (
        "Only benchmarks with 'gpus' need some: install NVIDIA's driver on a machine with GPUs."
    )
    return Check("GPUs", Status.MISSING, "none", advice)


def check_processor(facts: Mapping[str, Any]) -> Check:
    """Judge how steady the processor's clock is.

    Args:
        facts: as `perfbisect.running.host.host_facts` returns them.
    """
    detail = f"{facts.get('cores', '?')} cores of {facts.get('cpu') or 'an unnamed processor'}"
    advice = []
    governor = facts.get("governor", "")
    if governor:
        detail += f", governor {governor}"
    if governor not in ("", "performance"):
        advice.append("Steadier runs: set the governor to performance (cpupower frequency-set).")
    if facts.get("virtual"):
        detail += ", virtual"
        advice.append("Neighbours on the same hardware add noise: expect more runs for an answer.")
    status = Status.WARNING if advice else Status.OK
    return Check("processor", status, detail, " ".join(advice))


def check_memory(total: int) -> Check:
    """Judge the machine's memory, in bytes."""
    if total < MEMORY_WANTED:
        advice = "Large builds run out of memory below 4 GiB: lower the recipe's 'cpus'."
        return Check("memory", Status.WARNING, format_size(total), advice)
    return Check("memory", Status.OK, format_size(total))


def check_noise(load: float, cores: int, pressure: float | None) -> Check:
    """Judge whether runs would be disturbed now.

    Args:
        load: average over the last minute.
        cores: usable ones.
        pressure: per cent of the last ten seconds in which something waited for a processor;
            None where the kernel does not tell.
    """
    detail = f"load {load:.1f} on {cores} cores"
    if pressure is not None:
        detail += f", something waited {pressure:.0f}% of the time"
    if load > cores * 0.75 or (pressure or 0.0) > PRESSURE_NOISY:
        advice = "Other work is going on: runs are noisier now, and an answer takes more of them."
        return Check("noise", Status.WARNING, detail, advice)
    return Check("noise", Status.OK, detail)


def check_disk(data_dir: Path) -> Check:
    """Look at the free space where things are kept, and whether it can be written."""
    place = existing_parent(data_dir)
    free = shutil.disk_usage(place).free
    detail = f"{format_size(free)} free for {data_dir}"
    if any(each.exists() and not each.is_dir() for each in (data_dir, *data_dir.parents)):
        advice = f"{data_dir} is, or is below, a file: choose another place with --data-dir."
        return Check("disk", Status.MISSING, detail, advice, required=True)
    if not os.access(place, os.W_OK):
        advice = f"{place} can't be written: choose another place with --data-dir."
        return Check("disk", Status.MISSING, detail, advice, required=True)
    if free < DISK_NEEDED:
        advice = "Free some, or choose another place with --data-dir ('perfbisect gc' collects)."
        return Check("disk", Status.MISSING, detail, advice, required=True)
    if free < DISK_WANTED:
        advice = "Enough for small projects; TensorFlow's builds and caches take about 60 GiB."
        return Check("disk", Status.WARNING, detail, advice, required=True)
    return Check("disk", Status.OK, detail, required=True)


def parse_pressure(text: str) -> float | None:
    """Return ``avg10`` of the line ``some`` of a file below ``/proc/pressure``, in per cent."""
    match = re.search(r"^some avg10=([0-9.]+)", text, re.MULTILINE)
    return float(match[1]) if match else None


def read_pressure() -> float | None:
    """Return the present pressure on the processors, in per cent; None where it is not told."""
    try:
        return parse_pressure(Path("/proc/pressure/cpu").read_text(encoding="ascii"))
    except OSError:
        return None
