"""Runs as processes of this machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelToken, RunRequest
from perfbisect.processes import ProcessResult, run_process
from perfbisect.running.environments import choose_python
from perfbisect.running.failures import failed
from perfbisect.running.host import gpus
from perfbisect.running.site import Layout, Scratch


class LocalSite:
    """This machine. Implements ``Site``."""

    def __init__(self, request: RunRequest, cancel: CancelToken) -> None:
        self._request = request
        self._cancel = cancel
        self.uv: tuple[str, ...] = (sys.executable, "-m", "uv")
        self.uv_cache = str(request.cache_dir / "uv")

    def check(self, request: RunRequest) -> None:
        """Return if there are enough GPUs."""
        wanted = request.benchmark.gpus
        if not wanted:
            return
        found = gpus()
        if len(found) < wanted:
            cause = f"the benchmark needs {wanted} GPUs, and nvidia-smi shows {len(found)} here"
            advice = "run it on a host with as many, or lower the benchmark's 'gpus'"
            raise failed(FailureKind.OURS, cause, advice=advice)

    def python_for(self, wheel: Path | None) -> str:
        """Return this interpreter where it fits the wheel, else one that is on PATH."""
        return choose_python(wheel, os.environ.get("PATH", os.defpath).split(os.pathsep))

    def identity(self) -> Mapping[str, str]:
        """Return this interpreter's version: its path stays when it is upgraded."""
        return {"site": "local", "version": platform.python_version()}

    def inside(self, environment: Path) -> str:
        """Return the path as it is."""
        return str(environment)

    def layout(self, request: RunRequest, scratch: Scratch, artifact: Path | None) -> Layout:
        """Return the paths as they are."""
        return Layout(
            wheel=str(request.wheel),
            run=str(scratch.run),
            home=str(scratch.home),
            temporary=str(scratch.temporary),
            artifact=str(artifact) if artifact else "",
        )

    def install(
        self, argv: Sequence[str], env: Mapping[str, str], timeout: float, *, quiet: bool = False
    ) -> ProcessResult:
        """Run a step of an installation."""
        return run_process(
            argv,
            # uv takes settings from a pyproject.toml in any directory above: there is none here.
            cwd=Path("/"),
            env=env,
            timeout=timeout,
            cancel=self._cancel,
            marker=self._request.id,
            log_path=None if quiet else self._request.log_path,
        )

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        sink: Callable[[bytes], None],
    ) -> ProcessResult:
        """Run the benchmark's command."""
        return run_process(
            argv,
            cwd=self._request.work_dir / "run",
            env=env,
            timeout=timeout,
            cancel=self._cancel,
            marker=self._request.id,
            log_path=self._request.log_path,
            sink=sink,
        )

    def facts(self) -> dict[str, Any]:
        """Return that it ran without a container."""
        return {"runner": "local"}
