"""What builds and runs on the hosts of a test's cluster: real git, real files, no real work.

A build reads ``value.txt`` of the tree from the host's own mirror, so a mirror that did not arrive
whole fails it; a run reads the wheel. How long each takes is in the environment of the node.
"""

from __future__ import annotations

import hashlib
import math
import os

import numpy as np

from perfbisect.git.process import Git
from perfbisect.ports import (
    Builder,
    BuildRequest,
    BuildSuccess,
    CancelledWork,
    CancelToken,
    Runner,
    RunRequest,
    RunSuccess,
)
from perfbisect.settings import Settings

#: Names this module to ``RayEngine``.
PARTS = "tests.helpers.ray_parts:make_parts"
#: Seconds of a build and of a run, by variable of the node.
BUILD_SECONDS, RUN_SECONDS = "TEST_BUILD_SECONDS", "TEST_RUN_SECONDS"
#: Bytes of a wheel, by variable of the recipe.
WHEEL_BYTES = "WHEEL_BYTES"


def _number(name: str) -> float:
    return float(os.environ.get(name, "0"))


class TreeBuilder:
    """Its wheels hold the tree's value."""

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess:
        """Read the value, write it down."""
        _log(request, f"building {request.commit}")
        seconds = _number(BUILD_SECONDS)
        if cancel.wait(seconds):
            raise CancelledWork
        value = Git(request.mirror).text("cat-file", "blob", f"{request.tree}:value.txt")
        content = f"{value}\n{request.tree}\n".encode()
        content += b"." * int(request.recipe.env.get(WHEEL_BYTES, "0"))
        wheel = request.work_dir / f"scripted-{request.tree[:12]}.whl"
        wheel.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return BuildSuccess(wheel, digest, len(content), seconds, {"builder": "tree"})


class WheelRunner:
    """Measures what the wheel says, with one per cent of noise."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(int.from_bytes(os.urandom(4)))

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess:
        """Wait, read, disturb."""
        _log(request, f"running {request.wheel.name}")
        seconds = _number(RUN_SECONDS)
        if cancel.wait(seconds):
            raise CancelledWork
        with request.wheel.open(encoding="ascii") as wheel:
            value = float(wheel.readline())
        value *= math.exp(self._random.normal(0.0, 0.01))
        _log(request, f"value: {value}")
        return RunSuccess(value, (value,), seconds, {"pid": os.getpid()})


def make_parts(settings: Settings) -> tuple[Builder, Runner]:
    """Return builder and runner of a host."""
    return TreeBuilder(), WheelRunner()


def _log(request: BuildRequest | RunRequest, line: str) -> None:
    request.log_path.parent.mkdir(parents=True, exist_ok=True)
    with request.log_path.open("a", encoding="utf-8") as log:
        log.write(line + "\n")
