"""The one place that talks to Docker: connects, runs a container to its end, removes leftovers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, Mount

from perfbisect.container_devices import refusal
from perfbisect.container_limits import denied
from perfbisect.errors import BadInputError, InternalError, TransientError
from perfbisect.overruns import KEEP_FREE, DiskGuard, Overrun
from perfbisect.ports import CancelToken
from perfbisect.process_output import LOG_LIMIT, POLL_SECONDS, ProcessOutput

#: Label of every container: the work it belongs to.
LABEL = "perfbisect.work"

DEFAULT_SOCKET = "unix:///var/run/docker.sock"

_CONNECT_SECONDS = 60
_END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One command in one container, without privileges."""

    work: str
    image: str
    argv: Sequence[str]
    env: Mapping[str, str]
    #: ``uid:gid``
    user: str
    working_dir: str
    #: (path on this machine, path inside, read-only)
    mounts: Sequence[tuple[Path, str, bool]] = ()
    network: bool = False
    #: Such as ``8g``; empty: as much as the machine has.
    memory: str = ""
    #: Cores; 0: all.
    cpus: float = 0.0
    #: GPUs and other devices (see ``container_devices``); empty: none.
    devices: Sequence[DeviceRequest] = ()
    #: Processors and NUMA nodes that it may use; empty: all.
    cpuset: Sequence[int] = ()
    nodes: Sequence[int] = ()
    #: Labels besides that of the work.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Bytes that must stay free where it can write; with less, it is ended.
    keep_free: int = KEEP_FREE

    def disk_guard(self) -> DiskGuard:
        """Return what tells when the disks that it writes to are about to be full."""
        writable = [path for path, _, read_only in self.mounts if not read_only]
        return DiskGuard(writable, self.keep_free)


@dataclass(frozen=True, slots=True)
class ContainerResult:
    """How a container ended; it is removed when this is returned."""

    returncode: int
    seconds: float
    timed_out: bool = False
    cancelled: bool = False
    out_of_memory: bool = False
    #: What it took too much of; None: nothing.
    overrun: Overrun | None = None
    tail: str = ""
    log_error: str = ""


class Docker:
    """A connection to an engine. Open it for one piece of work, and close it."""

    def __init__(self, url: str = "") -> None:
        """Connect.

        Args:
            url: of the engine; empty: DOCKER_HOST or the default socket.

        Raises:
            TransientError: nothing answers there.
        """
        self._responses: list[requests.Response] = []
        with translated():
            _knock(url or os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET)
            self.client = (
                docker.DockerClient(base_url=url, timeout=_CONNECT_SECONDS)
                if url
                else docker.from_env(timeout=_CONNECT_SECONDS)
            )
        self.client.api.hooks["response"].append(self._remember)

    def _remember(self, response: requests.Response, *_: object, **__: object) -> None:
        """Keep the answers: those that stream are closed by nobody else."""
        self._responses.append(response)

    def last_response(self) -> requests.Response:
        """Return the answer to the latest request."""
        return self._responses[-1]

    def __enter__(self) -> Docker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        for response in self._responses:
            response.close()
        self.client.close()

    def info(self) -> dict[str, Any]:
        """Return what the engine says of itself.

        Raises:
            TransientError: it does not answer.
        """
        with translated():
            return dict(self.client.info())

    def rootless(self) -> bool:
        """Whether root in a container is an ordinary user of this machine."""
        return any("rootless" in option for option in self.info().get("SecurityOptions") or ())

    def run(
        self,
        spec: ContainerSpec,
        *,
        timeout: float,
        cancel: CancelToken,
        log_path: Path | None = None,
        sink: Callable[[bytes], None] | None = None,
        log_limit: int = LOG_LIMIT,
    ) -> ContainerResult:
        """Run a container to its end, its output going to ``log_path`` and ``sink`` as it comes.

        Raises:
            TransientError: the engine fails or goes away.
            InternalError: the engine refuses the container.
        """
        started = time.monotonic()
        output = ProcessOutput(log_path, sink, log_limit)
        try:
            with translated():
                container = self._create(spec)
                try:
                    end = _follow(container, output, started + timeout, cancel, spec.disk_guard())
                finally:
                    remove_container(container)
        except _CommandNotFound as error:
            output.write(f"{error}\n".encode())
            end = _End(returncode=127)
        finally:
            output.close()
        return ContainerResult(
            returncode=end.returncode,
            seconds=time.monotonic() - started,
            timed_out=end.timed_out,
            cancelled=end.cancelled,
            out_of_memory=end.out_of_memory,
            overrun=end.overrun,
            tail=output.tail,
            log_error=output.error,
        )

    def start(self, spec: ContainerSpec) -> Container:
        """Start a container that runs on; whoever started it removes it.

        Raises:
            TransientError: the engine fails or goes away.
            InternalError: the engine refuses the container.
        """
        with translated():
            container = self._create(spec)
            try:
                container.start()
            except BaseException:
                remove_container(container)
                raise
        return container

    def remove_leftovers(self, prefix: str) -> int:
        """Remove every container of work whose name starts with ``prefix``; return how many.

        Raises:
            BadInputError: the prefix is empty, which would name everybody's work.
            TransientError: the engine does not answer.
        """
        if not prefix:
            raise BadInputError("prefix of leftovers is empty", field="prefix", value=prefix)
        with translated():
            found = [
                container
                for container in self.client.containers.list(all=True, filters={"label": LABEL})
                if container.labels.get(LABEL, "").startswith(prefix)
            ]
            for container in found:
                remove_container(container)
        return len(found)

    def _create(self, spec: ContainerSpec) -> Container:
        limits: dict[str, Any] = {}
        if spec.memory:
            limits |= {"mem_limit": spec.memory, "memswap_limit": spec.memory}
        if spec.cpus:
            limits["nano_cpus"] = int(spec.cpus * 1e9)
        if spec.devices:
            limits["device_requests"] = list(spec.devices)
        if spec.cpuset:
            limits["cpuset_cpus"] = ",".join(map(str, spec.cpuset))
        if spec.nodes:
            limits["cpuset_mems"] = ",".join(map(str, spec.nodes))
        return self.client.containers.create(
            spec.image,
            list(spec.argv),
            entrypoint=[],
            environment=dict(spec.env),
            user=spec.user,
            working_dir=spec.working_dir,
            mounts=[
                Mount(inside, str(path.resolve()), type="bind", read_only=read_only)
                for path, inside, read_only in spec.mounts
            ],
            labels={LABEL: spec.work, **spec.labels},
            **denied(network=spec.network, devices=bool(spec.devices)),
            **limits,
        )


@dataclass(frozen=True, slots=True)
class _End:
    returncode: int
    timed_out: bool = False
    cancelled: bool = False
    out_of_memory: bool = False
    overrun: Overrun | None = None


class _CommandNotFound(Exception):
    """The image has no such program."""


def _follow(
    container: Container,
    output: ProcessOutput,
    deadline: float,
    cancel: CancelToken,
    disk: DiskGuard,
) -> _End:
    """Start a container and copy its output until it ends or must end."""
    # Attached before the start: nothing that it prints is missed.
    stream = container.attach(stream=True, logs=False)
    reader = threading.Thread(target=_copy, args=(stream, output), daemon=True)
    timed_out = cancelled = full = False
    try:
        container.start()
        reader.start()
        while reader.is_alive() and not (timed_out or cancelled or full):
            reader.join(POLL_SECONDS)
            cancelled = cancel.cancelled
            timed_out = not cancelled and time.monotonic() > deadline
            full = not cancelled and not timed_out and disk.full()
        if timed_out or cancelled or full:
            with contextlib.suppress(APIError):  # it may have ended by itself meanwhile
                container.kill()
        status = container.wait(timeout=_END_SECONDS)
        if reader.is_alive():
            reader.join(_END_SECONDS)
        container.reload()
    finally:
        stream.close()
        if reader.ident is not None:
            reader.join(_END_SECONDS)
    state = container.attrs.get("State", {})
    return _End(
        int(status.get("StatusCode", 1)),
        timed_out,
        cancelled,
        bool(state.get("OOMKilled")),
        Overrun.DISK if full else None,
    )


def _copy(stream: Iterator[bytes], output: ProcessOutput) -> None:
    # A connection that is closed under the reader ends the copying, as the end of output does.
    with contextlib.suppress(requests.RequestException, OSError, ValueError):
        for chunk in stream:
            output.write(chunk)


def remove_container(container: Container) -> None:
    """Kill and remove a container; gone already is fine."""
    with contextlib.suppress(NotFound):
        try:
            container.remove(force=True, v=True)
        except APIError as error:
            if error.status_code != requests.codes.conflict:  # being removed already
                raise


def _knock(url: str) -> None:
    """Try a socket first: the client leaves one open when nothing answers."""
    if not url.startswith("unix://"):
        return
    path = "/" + url.removeprefix("unix://").lstrip("/")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(_CONNECT_SECONDS)
        try:
            knock.connect(path)
        except OSError as error:
            raise DockerException(f"{path}: {error.strerror or error}") from error


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn what the Docker client raises into errors that say whose fault it is."""
    try:
        yield
    except APIError as error:
        raise _from_engine(error) from error
    except requests.RequestException as error:
        raise TransientError(f"the Docker engine went away: {error}") from error
    except DockerException as error:
        raise TransientError(
            f"the Docker engine does not answer ({_short(error)}); is it running, "
            "and may this user reach it (DOCKER_HOST)?"
        ) from error


def _from_engine(error: APIError) -> Exception:
    said = _short(error)
    if isinstance(error, ImageNotFound):
        return TransientError(f"the image is gone: {said}")
    lower = said.lower()
    if refused := refusal(said):
        return BadInputError(refused, field="gpus")
    if "executable file not found" in lower or "exec format error" in lower:
        return _CommandNotFound(said)
    if "no such file or directory" in lower and "oci runtime" in lower:
        return _CommandNotFound(said)
    if "no space left" in lower or "disk quota" in lower:
        return TransientError(f"the Docker engine's disk is full: {said}")
    status = error.status_code or requests.codes.server_error
    if status < requests.codes.server_error or "oci runtime" in lower:
        return InternalError(f"the Docker engine refuses: {said}")
    return TransientError(f"the Docker engine failed: {said}")


def _short(error: Exception) -> str:
    explanation = getattr(error, "explanation", None)
    return str(explanation or error).strip()[:500]
