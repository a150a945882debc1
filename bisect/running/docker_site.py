"""Runs in containers without privileges.

Two kinds of container share one environment directory: the *installing* one has network and may
write to it, the *measuring* one has no network and sees it read-only. Both come from the
benchmark's image; uv is this machine's own binary, mounted: the image needs a Python, no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from docker.errors import APIError, ImageNotFound, NotFound
from docker.types import DeviceRequest
from uv import find_uv_bin

from perfbisect.building.images import host_ca
from perfbisect.container_devices import DeviceStyle, device_requests, style_of
from perfbisect.containers import ContainerResult, ContainerSpec, Docker, translated
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelToken, RunRequest
from perfbisect.processes import ProcessResult
from perfbisect.running.environments import installer_variables
from perfbisect.running.failures import failed
from perfbisect.running.gpu_host import NO_GPUS, HeldGpus
from perfbisect.running.observe import Observer
from perfbisect.running.run_site import Layout, Scratch
from perfbisect.untrusted import hand_over

#: User in containers where perfbisect itself is root: nobody on this machine.
_UID = 10001
#: Share of the machine's memory that a container may have: the rest keeps the machine alive.
_MEMORY_SHARE = 0.9
#: Status of a container whose program was killed by signal N: 128 + N.
_SIGNALLED = 128

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = "/perfbisect/environment"
_UV = "/perfbisect/uv"
_UV_CACHE = "/perfbisect/uv-cache"
_RUN = "/perfbisect/run"
_HOME = "/perfbisect/home"
_TEMPORARY = "/perfbisect/tmp"
_ARTIFACT = "/perfbisect/artifact"
_CA = "/perfbisect/host-ca.crt"

#: (path on this machine, path inside, read-only)
_Mounts = tuple[tuple[Path, str, bool], ...]


class DockerSite:
    """Containers on this machine's engine. Implements ``Site``."""

    def __init__(
        self,
        request: RunRequest,
        cancel: CancelToken,
        docker: Docker,
        index_url: str = "",
        style: DeviceStyle = DeviceStyle.AUTO,
    ) -> None:
        self._style = style
        self._request = request
        self._cancel = cancel
        self._docker = docker
        self._index_url = index_url
        self._image = ""
        self._user = _user(docker)
        self._uv_cache = request.cache_dir / "uv-docker"
        self._environment = Path()
        self._measuring: _Mounts = ()
        self.uv: tuple[str, ...] = (_UV,)

    def check(self) -> None:
        """Return if the image is here, or could be pulled."""
        self._image = self._find_image(self._request.benchmark.image)

    def python_for(self, wheel: Path | None) -> str:
        """Return the image's own Python: it is for its wheels that an image is chosen."""
        return "python3"

    def identity(self) -> Mapping[str, str]:
        """Return the image's digest, and the user that the files belong to."""
        return {"site": "docker", "image": self._image, "user": self._user}

    def is_usable(self, environment: Path) -> bool:
        """Return whether there is an interpreter; what it links to is in the image."""
        return os.path.lexists(environment / "bin" / "python")

    def prepare(self, environment: Path) -> str:
        """Give the directory to the container's user."""
        self._environment = environment
        self._uv_cache.mkdir(parents=True, exist_ok=True)
        for directory in (environment, self._uv_cache):
            self._hand_over(directory)
        return _ENVIRONMENT

    def wheel_path(self, wheel: Path) -> str:
        """Return where the wheel is mounted."""
        return f"/perfbisect/wheel/{wheel.name}"

    def variables(self) -> Mapping[str, str]:
        """Return uv's variables: files can't be linked from one mount to another."""
        inside = installer_variables(_UV_CACHE, _HOME, _PATH, self._index_url)
        # Paths of this machine mean nothing there.
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC", "UV_CONFIG_FILE"):
            inside.pop(name, None)
        if host_ca():
            inside["SSL_CERT_FILE"] = _CA
        return {**inside, "UV_LINK_MODE": "copy"}

    def install(
        self, argv: Sequence[str], env: Mapping[str, str], timeout: float, *, quiet: bool = False
    ) -> ProcessResult:
        """Run a step of an installation, with network and the environment writable."""
        ca = host_ca()
        mounts = (
            (self._environment, _ENVIRONMENT, False),
            (self._uv_cache, _UV_CACHE, False),
            (Path(find_uv_bin()), _UV, True),
            (self._request.wheel, self.wheel_path(self._request.wheel), True),
            *(((ca, _CA, True),) if ca else ()),
        )
        spec = self._spec(argv, {**env, "HOME": "/tmp"}, mounts, working_dir="/", network=True)  # noqa: S108
        log = None if quiet else self._request.log_path
        done = self._docker.run(spec, timeout=timeout, cancel=self._cancel, log_path=log)
        return _as_process(done)

    def layout(self, scratch: Scratch, environment: Path, artifact: Path | None) -> Layout:
        """Give the run's directories to the container's user; return where they are mounted."""
        for directory in (scratch.run, scratch.home, scratch.temporary):
            self._hand_over(directory)
        wheel = self._request.wheel
        self._measuring = (
            (environment, _ENVIRONMENT, True),
            (scratch.run, _RUN, False),
            (scratch.home, _HOME, False),
            (scratch.temporary, _TEMPORARY, False),
            (wheel, self.wheel_path(wheel), True),
            *(((artifact, _ARTIFACT, True),) if artifact else ()),
        )
        return Layout(
            environment=_ENVIRONMENT,
            wheel=self.wheel_path(wheel),
            home=_HOME,
            temporary=_TEMPORARY,
            artifact=_ARTIFACT if artifact else "",
        )

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        sink: Callable[[bytes], None],
        gpus: HeldGpus = NO_GPUS,
    ) -> ProcessResult:
        """Run the benchmark's command, without network and with bounded memory."""
        spec = self._spec(argv, env, self._measuring, working_dir=_RUN)
        spec = replace(spec, devices=self._devices(gpus), cpuset=gpus.cpus, nodes=gpus.nodes)
        done = self._docker.run(
            spec, timeout=timeout, cancel=self._cancel, log_path=self._request.log_path, sink=sink
        )
        return _as_process(done)

    def _devices(self, gpus: HeldGpus) -> list[DeviceRequest]:
        style = self._style
        if gpus.indices and style is DeviceStyle.AUTO:
            style = style_of(self._docker.info())
        return device_requests(gpus.indices, style)

    def observer(self) -> Observer:
        """Return an observer that does not take a container's CPU time for a neighbour's."""
        return Observer(children=False)

    def facts(self) -> dict[str, Any]:
        """Return the image by name and digest."""
        return {
            "runner": "docker",
            "image": self._request.benchmark.image,
            "image_digest": self._image,
        }

    def _spec(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        mounts: _Mounts,
        *,
        working_dir: str,
        network: bool = False,
    ) -> ContainerSpec:
        return ContainerSpec(
            work=self._request.id,
            image=self._image,
            argv=argv,
            env=env,
            user=self._user,
            working_dir=working_dir,
            mounts=mounts,
            network=network,
            memory=str(int(psutil.virtual_memory().total * _MEMORY_SHARE)),
        )

    def _find_image(self, name: str) -> str:
        """Return the digest of an image that is here, or was pulled now.

        Raises:
            RunFailed: ours: there is none of this name; transient: no way to its registry.
        """
        images = self._docker.client.images
        with translated():
            try:
                return str(images.get(name).id)
            except ImageNotFound:
                pass
            try:
                return str(images.pull(name).id)
            except NotFound as error:
                cause = f"there is no image '{name}', neither here nor in its registry"
                advice = "correct the benchmark's 'image'"
                raise failed(FailureKind.OURS, cause, advice=advice) from error
            except APIError as error:
                said = error.explanation or error
                cause = f"image '{name}' is not here and can't be pulled: {said}"
                advice = "pull or build it on this host"
                raise failed(FailureKind.TRANSIENT, cause, advice=advice) from error

    def _hand_over(self, top: Path) -> None:
        """Give a directory and what is in it to the container's user, where that is another one."""
        uid = int(self._user.partition(":")[0])
        if uid in (0, os.geteuid()) or top.stat().st_uid == uid:
            return
        hand_over(top, uid)


def _user(docker: Docker) -> str:
    """Return ``uid:gid``: never root, but where root is nobody (a rootless engine)."""
    if docker.rootless():
        return "0:0"
    if os.geteuid() == 0:
        return f"{_UID}:{_UID}"
    return f"{os.geteuid()}:{os.getegid()}"


def _as_process(done: ContainerResult) -> ProcessResult:
    """Return the result as a process of this machine would have given it."""
    signalled = _SIGNALLED < done.returncode < _SIGNALLED + 65
    return ProcessResult(
        returncode=_SIGNALLED - done.returncode if signalled else done.returncode,
        seconds=done.seconds,
        timed_out=done.timed_out,
        cancelled=done.cancelled,
        overrun=done.overrun,
        tail=done.tail,
        log_error=done.log_error,
    )
