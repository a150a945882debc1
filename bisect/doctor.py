"""What this machine has for bisecting, what is missing, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from perfbisect.checks import Check, Status
from perfbisect.checks.gpus import check_gpu_host, engine_info
from perfbisect.checks.machine import (
    check_disk,
    check_gpus,
    check_memory,
    check_noise,
    check_processor,
    read_pressure,
)
from perfbisect.checks.services import check_database, check_docker, check_index
from perfbisect.checks.storage import check_shared_artifacts
from perfbisect.checks.tools import (
    check_bazel,
    check_compiler,
    check_git,
    check_npm,
    check_python,
    check_uv,
)
from perfbisect.container_devices import DeviceStyle
from perfbisect.running.host import host_facts
from perfbisect.settings import Settings, sqlite_url
from perfbisect.wiring import make_gpu_host

__all__ = ["Check", "Status", "check_all", "check_gpus_closely", "is_ready"]


def check_all(
    data_dir: Path | None = None, database_url: str | None = None, docker_host: str = ""
) -> list[Check]:
    """Look at everything. Takes a few seconds at most where nothing hangs, no longer than a minute.

    Args:
        data_dir: where things are kept; None: as the settings say. It need not exist.
        database_url: SQLAlchemy URL; None: as the settings say; empty: SQLite in ``data_dir``.
        docker_host: engine URL; empty: from the environment or the default socket.
    """
    settings = Settings()
    directory = data_dir or settings.data_dir
    url = settings.database_url if database_url is None else database_url
    facts = host_facts()
    return [
        check_python(),
        check_git(),
        check_compiler(),
        check_uv(),
        check_npm(),
        check_bazel(),
        check_docker(docker_host or settings.docker_host),
        check_gpus(),
        check_processor(facts),
        check_memory(psutil.virtual_memory().total),
        check_noise(os.getloadavg()[0], len(os.sched_getaffinity(0)), read_pressure()),
        check_disk(directory),
        check_database(url or sqlite_url(directory / "perfbisect.db")),
        *check_shared_artifacts(settings),
        check_index(),
    ]


def check_gpus_closely(settings: Settings) -> list[Check]:
    """Look at the GPUs as runs would use them; takes a few seconds."""
    style = DeviceStyle(settings.gpu_devices)
    return check_gpu_host(make_gpu_host(settings), engine_info(settings.docker_host), style)


def is_ready(checks: Sequence[Check]) -> bool:
    """Return whether nothing that is required is missing."""
    return not any(check.required and check.status is Status.MISSING for check in checks)
