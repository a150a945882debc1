"""GPUs of containers: asked for by NVIDIA's hook or by CDI names; what a refusal means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from docker.types import DeviceRequest


class DeviceStyle(StrEnum):
    """How an engine is asked for GPUs."""

    #: By what it says of itself.
    AUTO = "auto"
    #: As ``docker run --gpus`` does: NVIDIA's container toolkit hooks into the engine.
    NVIDIA = "nvidia"
    #: By names such as ``nvidia.com/gpu=0`` of a specification below ``/etc/cdi``.
    CDI = "cdi"


#: Part of what an engine says -> what that means, and what would help.
_REFUSALS = (
    (
        'device driver "cdi"',
        "the Docker engine gives no devices by CDI names (nvidia.com/gpu=0): that needs Docker "
        "28.2 or newer, or 25.0 with the feature 'cdi' switched on in /etc/docker/daemon.json; "
        "with PERFBISECT_GPU_DEVICES=nvidia NVIDIA's container toolkit is used instead",
    ),
    (
        "unresolvable cdi devices",
        "the Docker engine knows no such CDI device: write their specification with 'nvidia-ctk "
        "cdi generate --output=/etc/cdi/nvidia.yaml'",
    ),
    (
        "could not select device driver",
        "the Docker engine can't give GPUs to containers: NVIDIA's container toolkit is not set up "
        "for it; install nvidia-container-toolkit, run 'nvidia-ctk runtime configure "
        "--runtime=docker' and start the engine anew",
    ),
    (
        "nvidia-container-cli",
        "NVIDIA's container toolkit could not give the GPUs to the container: see whether "
        "nvidia-smi works on this host",
    ),
)


def refusal(said: str) -> str:
    """Return what an engine's refusal to give GPUs means; empty: it refuses something else.

    Args:
        said: its message.
    """
    lower = said.lower()
    return next((f"{words} ({said})" for part, words in _REFUSALS if part in lower), "")


def style_of(info: Mapping[str, Any]) -> DeviceStyle:
    """Return how an engine wants to be asked: by CDI only where the other way is not set up.

    Args:
        info: what the engine says of itself.
    """
    hooked = "nvidia" in (info.get("Runtimes") or {})
    return DeviceStyle.CDI if info.get("CDISpecDirs") and not hooked else DeviceStyle.NVIDIA


def device_requests(gpus: Sequence[int], style: DeviceStyle) -> list[DeviceRequest]:
    """Return the requests for some GPUs; none for none.

    Args:
        gpus: indices, as ``nvidia-smi`` counts.
        style: not ``AUTO``.
    """
    if not gpus:
        return []
    if style is DeviceStyle.CDI:
        return [cdi_request([f"nvidia.com/gpu={index}" for index in gpus])]
    ids = [str(index) for index in gpus]
    return [DeviceRequest(device_ids=ids, capabilities=[["gpu"]])]


def cdi_request(names: Sequence[str]) -> DeviceRequest:
    """Return the request for devices by their CDI names."""
    return DeviceRequest(driver="cdi", device_ids=list(names))
