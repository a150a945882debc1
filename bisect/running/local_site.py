"""Runs as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfbisect.ports import CancelToken, RunRequest
from perfbisect.processes import ProcessResult, run_process
from perfbisect.running.environments import choose_python, installer_variables
from perfbisect.running.gpu_host import NO_GPUS, HeldGpus
from perfbisect.running.observe import Observer
from perfbisect.running.run_site import Layout, Scratch


class LocalSite:
    """This machine. Implements ``Site``."""

    def __init__(self, request: RunRequest, cancel: CancelToken, index_url: str = "") -> None:
        self._request = request
        self._cancel = cancel
        self._index_url = index_url
        self._path = os.environ.get("PATH", os.defpath)
        self.uv: tuple[str, ...] = (sys.executable, "-m", "uv")

    def check(self) -> None:
        """Return: nothing is needed that is not here."""

    def python_for(self, wheel: Path | None) -> str:
        """Return this interpreter where it fits the wheel, else one that is on PATH."""
        return choose_python(wheel, self._path.split(os.pathsep))

    def identity(self) -> Mapping[str, str]:
        """Return this interpreter's version: its path stays when it is upgraded."""
        return {"site": "local", "version": platform.python_version()}

    def is_usable(self, environment: Path) -> bool:
        """Return whether its interpreter is still there; it may have been upgraded away."""
        return os.access(environment / "bin" / "python", os.X_OK)

    def prepare(self, environment: Path) -> str:
        """Return the path as it is."""
        return str(environment)

    def wheel_path(self, wheel: Path) -> str:
        """Return the path as it is."""
        return str(wheel)

    def variables(self) -> Mapping[str, str]:
        """Return uv's variables; its cache lies beside the environments, to link files from."""
        cache = str(self._request.cache_dir / "uv")
        home = os.environ.get("HOME", "/")
        return installer_variables(cache, home, self._path, self._index_url)

    def layout(self, scratch: Scratch, environment: Path, artifact: Path | None) -> Layout:
        """Return the paths as they are."""
        return Layout(
            environment=str(environment),
            wheel=str(self._request.wheel),
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
        gpus: HeldGpus = NO_GPUS,
    ) -> ProcessResult:
        """Run the benchmark's command, on the processors near to its GPUs."""
        with pinned(gpus.cpus):
            return run_process(
                argv,
                cwd=self._request.work_dir / "run",
                env={**env, **self._visible(gpus)},
                timeout=timeout,
                cancel=self._cancel,
                marker=self._request.id,
                log_path=self._request.log_path,
                sink=sink,
            )

    def _visible(self, gpus: HeldGpus) -> dict[str, str]:
        """Return the variables by which CUDA sees these GPUs and no others."""
        own = self._request.benchmark.env
        if not gpus.indices or "CUDA_VISIBLE_DEVICES" in own:
            return {}
        indices = ",".join(map(str, gpus.indices))
        # CUDA counts the fastest first by default, the driver by address.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": indices}

    def observer(self) -> Observer:
        """Return an observer that tells the run's own CPU time from others'."""
        return Observer()

    def facts(self) -> dict[str, Any]:
        """Return that it ran without a container."""
        return {"runner": "local"}


@contextlib.contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Bind this thread, and what it starts, to some processors while the block lasts.

    Args:
        cpus: empty: it stays as it is.
    """
    before = os.sched_getaffinity(0)
    usable = before & set(cpus)
    if usable:
        os.sched_setaffinity(0, usable)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
