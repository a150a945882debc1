"""What every container is denied, whoever starts it and whatever for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docker.types import LogConfig, Ulimit

#: Processes and threads that a container may have.
PIDS = 8192
#: Bytes of the largest file that it may write.
_LARGEST_FILE = 64 * 1024**3
#: Directories in memory that stand for the usual places to write to, and their bytes.
SCRATCH: Mapping[str, int] = {"/tmp": 2 * 1024**3, "/var/tmp": 1024**3}  # noqa: S108
#: Bytes of memory that processes share with each other.
_SHARED_MEMORY = 64 * 1024**2
#: The kernel ends a container before anything else of the machine.
_FIRST_TO_GO = 500


def denied(*, network: bool, devices: bool) -> dict[str, Any]:
    """Return the arguments by which a container of the engine is held in its place.

    Args:
        network: it may reach the network.
        devices: it has GPUs, whose hooks write into its root: that is not read-only then. It stays
            another user's, whom the container's user can't be.
    """
    return {
        "network_mode": "bridge" if network else "none",
        "ipc_mode": "private",
        "privileged": False,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": not devices,
        "tmpfs": {path: f"rw,exec,nosuid,nodev,mode=1777,size={n}" for path, n in SCRATCH.items()},
        "shm_size": _SHARED_MEMORY,
        "pids_limit": PIDS,
        "ulimits": [
            Ulimit(name="core", soft=0, hard=0),
            Ulimit(name="fsize", soft=_LARGEST_FILE, hard=_LARGEST_FILE),
        ],
        "oom_score_adj": _FIRST_TO_GO,
        "init": True,
        # What an image wants to have run now and then is none of our business.
        "healthcheck": {"test": ["NONE"]},
        # The output is copied as it comes; a second copy on the engine's disk helps nobody.
        "log_config": LogConfig(type=LogConfig.types.NONE),
    }
