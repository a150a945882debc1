"""Small honest stand-ins for builders and runners: for tests, and for trying things out.

They keep the promises of ``ports.py`` (files, logs, cancellation, failures as values) without work.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable

import numpy as np

from perfbisect.ports import (
    BuildRequest,
    BuildSuccess,
    CancelledWork,
    CancelToken,
    Failure,
    RunRequest,
    RunSuccess,
)


def _always_builds(request: BuildRequest) -> None:
    return None


class ScriptedBuilder:
    """A builder whose wheels are text files that hold the commit they are of."""

    def __init__(
        self,
        fails: Callable[[BuildRequest], Failure | None] = _always_builds,
        seconds: float = 0.0,
    ) -> None:
        """Build everything for which ``fails`` returns None; each build takes ``seconds``."""
        self._fails = fails
        self._seconds = seconds
        self._lock = threading.Lock()
        #: Every request, in the order of their starts.
        self.requests: list[BuildRequest] = []

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        """Write the wheel, or return the scripted failure."""
        with self._lock:
            self.requests.append(request)
        _log(request, f"building {request.commit}")
        _work(self._seconds, cancel)
        if failure := self._fails(request):
            _log(request, failure.cause)
            return failure
        content = f"{request.commit}\n{request.tree}\n{request.recipe.digest}\n".encode()
        request.work_dir.mkdir(parents=True, exist_ok=True)
        wheel = request.work_dir / f"scripted-{request.tree[:12]}.whl"
        wheel.write_bytes(content)
        return BuildSuccess(
            path=wheel,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            seconds=self._seconds,
            environment={"builder": "scripted"},
        )


class ScriptedRunner:
    """A runner that computes the value of a `ScriptedBuilder`'s wheel from its commit."""

    def __init__(
        self,
        value: Callable[[str], float | Failure],
        *,
        noise: float = 0.0,
        seed: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Answer ``value(commit)``.

        Args:
            value: commit -> value in the benchmark's unit, or why it can't be measured.
            noise: relative standard deviation of log-normal noise on each run.
            seed: of the noise.
            seconds: that each run takes.
        """
        self._value = value
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._seconds = seconds
        self._lock = threading.Lock()
        #: Every request, in the order of their starts.
        self.requests: list[RunRequest] = []

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Return the scripted value, with noise, or the scripted failure."""
        with self._lock:
            self.requests.append(request)
            factor = math.exp(self._random.normal(0.0, self._noise)) if self._noise else 1.0
        _log(request, f"running {request.benchmark.name} on {request.wheel.name}")
        _work(self._seconds, cancel)
        answer = self._value(request.wheel.read_text(encoding="utf-8").splitlines()[0])
        if isinstance(answer, Failure):
            _log(request, answer.cause)
            return answer
        value = answer * factor
        _log(request, f"value: {value}")
        return RunSuccess(
            value=value,
            within=(value,),
            seconds=self._seconds,
            environment={"runner": "scripted"},
        )


def _work(seconds: float, cancel: CancelToken) -> None:
    """Pass the time until it is over or the end is asked for."""
    if cancel.cancelled or (seconds and cancel.wait(seconds)):
        raise CancelledWork


def _log(request: BuildRequest | RunRequest, line: str) -> None:
    request.log_path.parent.mkdir(parents=True, exist_ok=True)
    with request.log_path.open("a", encoding="utf-8") as log:
        log.write(line + "\n")
