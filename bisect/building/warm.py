"""Containers kept from build to build, so that Bazel's server need not start and read everything.

One belongs to one kept tree: whoever holds the tree's slot may use it, and nobody else. Between two
builds it is paused, so that it takes nothing from a benchmark but memory. It is removed when the
next build needs another one (another image, other limits), when there are too many, and with this
process; what a killed process left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import requests
from docker.errors import APIError, DockerException
from docker.models.containers import Container
from docker.utils.socket import frames_iter

from perfbisect.containers import (
    ContainerResult,
    ContainerSpec,
    Docker,
    remove_container,
    translated,
)
from perfbisect.core.recipe import digest_of
from perfbisect.errors import PerfbisectError, TransientError
from perfbisect.overruns import Overrun
from perfbisect.ports import CancelToken
from perfbisect.process_output import LOG_LIMIT, POLL_SECONDS, ProcessOutput

#: Labels: the process that keeps the container, the kept tree, and what it was made from.
OWNER, TREE, KEY = "perfbisect.owner", "perfbisect.tree", "perfbisect.key"

#: A container that everybody forgot ends by itself.
_LIFETIME = ("sleep", "604800")
_END_SECONDS = 60.0

#: Where a container finds what the kernel did to it, with the second and the first cgroups.
_MEMORY_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_OOM_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _End:
    code: int
    timed_out: bool = False
    cancelled: bool = False
    overrun: Overrun | None = None


class WarmContainer:
    """A running container that takes one command after the other."""

    def __init__(self, docker: Docker, container: Container) -> None:
        self._docker = docker
        self._container = container
        #: Something in it may still run, or was killed: it must not be used again.
        self.spoilt = False

    def run(
        self, spec: ContainerSpec, *, timeout: float, cancel: CancelToken, log_path: Path
    ) -> ContainerResult:
        """Run a command to its end.

        A command that must end takes the container with it: so nothing of it is left running.

        Args:
            spec: the command, its variables and directory; the container is as it is.
            timeout: seconds.
            cancel: asks for the end.
            log_path: file to append to.

        Raises:
            TransientError: the engine fails or goes away.
        """
        started = time.monotonic()
        output = ProcessOutput(log_path, None, LOG_LIMIT)
        self.spoilt = True
        try:
            with translated():
                end = self._follow(spec, output, started + timeout, cancel)
                whole = not (end.timed_out or end.cancelled or end.overrun)
                out_of_memory = end.code != 0 and whole and self._killed_for_memory()
        finally:
            output.close()
        self.spoilt = not whole or out_of_memory
        return ContainerResult(
            returncode=end.code,
            seconds=time.monotonic() - started,
            timed_out=end.timed_out,
            cancelled=end.cancelled,
            out_of_memory=out_of_memory,
            overrun=end.overrun,
            tail=output.tail,
            log_error=output.error,
        )

    def _killed_for_memory(self) -> bool:
        """Ask the kernel whether it killed something here: the engine tells only at the end.

        One such container is not used again, so a count above zero is of this command.
        """
        try:
            told = self._container.exec_run(["cat", *_MEMORY_EVENTS]).output
        except APIError:
            # It has ended altogether.
            self._container.reload()
            return bool(self._container.attrs.get("State", {}).get("OOMKilled"))
        found = _OOM_KILLS.findall(told) if isinstance(told, bytes) else []
        return any(int(count) for count in found)

    def _follow(
        self, spec: ContainerSpec, output: ProcessOutput, deadline: float, cancel: CancelToken
    ) -> _End:
        api = self._docker.client.api
        made = api.exec_create(
            self._container.id,
            list(spec.argv),
            environment=dict(spec.env),
            workdir=spec.working_dir,
            user=spec.user,
        )
        stream = api.exec_start(made["Id"], socket=True)
        response = self._docker.last_response()
        reader = threading.Thread(target=_copy, args=(stream, output), daemon=True)
        disk = spec.disk_guard()
        timed_out = cancelled = full = False
        try:
            reader.start()
            while reader.is_alive() and not (timed_out or cancelled or full):
                reader.join(POLL_SECONDS)
                cancelled = cancel.cancelled
                timed_out = not cancelled and time.monotonic() > deadline
                full = not cancelled and not timed_out and disk.full()
            if timed_out or cancelled or full:
                remove_container(self._container)
                return _End(137, timed_out, cancelled, Overrun.DISK if full else None)
        finally:
            reader.join(_END_SECONDS)
            _close(stream, response)
        return _End(int(api.exec_inspect(made["Id"])["ExitCode"] or 0))


class WarmContainers:
    """The containers that this process keeps."""

    def __init__(self, most: int) -> None:
        """Keep up to ``most``; with 0, none."""
        self.most = most
        self._owner = process_label(os.getpid())
        self._guard = threading.Lock()
        #: Kept tree -> id of its container, the longest unused first.
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._urls: dict[str, str] = {}

    @contextlib.contextmanager
    def lend(
        self, docker: Docker, tree: Path, spec: ContainerSpec, url: str = ""
    ) -> Iterator[WarmContainer]:
        """Lend the container of a kept tree, whose slot the caller holds.

        Args:
            docker: connection to the engine.
            tree: the kept tree.
            spec: what the container is made from: image, user, mounts, limits.
            url: of the engine, for ``close``.

        Raises:
            TransientError: the engine fails or goes away.
            InternalError: the engine refuses the container.
        """
        container = self._obtain(docker, tree, spec)
        warm = WarmContainer(docker, container)
        try:
            yield warm
        except BaseException:
            warm.spoilt = True
            raise
        finally:
            self._give_back(docker, tree, container, spoilt=warm.spoilt, url=url)

    def _obtain(self, docker: Docker, tree: Path, spec: ContainerSpec) -> Container:
        key = _key(spec)
        with self._guard:
            known = self._kept.pop(str(tree), None)
        with translated():
            found = docker.client.containers.list(all=True, filters={"label": f"{TREE}={tree}"})
            for container in found:
                if container.id == known and _usable(container, key):
                    return container
                remove_container(container)
        labels = {OWNER: self._owner, TREE: str(tree), KEY: key}
        name = f"warm-{digest_of(str(tree))[:20]}"
        return docker.start(replace(spec, work=name, argv=_LIFETIME, labels=labels))

    def _give_back(
        self, docker: Docker, tree: Path, container: Container, *, spoilt: bool, url: str
    ) -> None:
        if not spoilt:
            try:
                container.pause()
            except DockerException:
                # What can't be stopped would take time from benchmarks.
                spoilt = True
        if spoilt:
            with contextlib.suppress(DockerException):
                remove_container(container)
            return
        with self._guard:
            self._kept[str(tree)] = str(container.id)
            self._urls[str(container.id)] = url
            surplus = [
                self._kept.popitem(last=False)[1] for _ in range(len(self._kept) - self.most)
            ]
        self._remove(docker, surplus)

    def close(self) -> None:
        """Remove everything that this process keeps."""
        with self._guard:
            left = list(self._kept.values())
            self._kept.clear()
        for url in {self._urls.get(each, "") for each in left}:
            with contextlib.suppress(PerfbisectError), Docker(url) as docker:
                self._remove(docker, [each for each in left if self._urls.get(each, "") == url])

    def _remove(self, docker: Docker, ids: Sequence[str]) -> None:
        for each in ids:
            with contextlib.suppress(DockerException):
                remove_container(docker.client.containers.get(each))


def remove_orphans(docker: Docker) -> int:
    """Remove the containers that processes of this machine kept which are gone; return how many.

    Raises:
        TransientError: the engine does not answer.
    """
    here = f"{socket.gethostname()}:"
    removed = 0
    with translated():
        for container in docker.client.containers.list(all=True, filters={"label": OWNER}):
            owner = container.labels.get(OWNER, "")
            if owner.startswith(here) and not _alive(owner):
                remove_container(container)
                removed += 1
    return removed


def remove_kept(tree: Path, docker_host: str = "") -> None:
    """Remove the container of a kept tree, whose slot the caller holds; none is fine."""
    with contextlib.suppress(TransientError), Docker(docker_host) as docker, translated():
        found = docker.client.containers.list(all=True, filters={"label": f"{TREE}={tree}"})
        for container in found:
            remove_container(container)


def process_label(pid: int) -> str:
    """Return a label that names one process of one machine, whatever its number is used for later.

    Raises:
        psutil.NoSuchProcess: there is none.
    """
    started = psutil.Process(pid).create_time()
    return f"{socket.gethostname()}:{pid}:{started:.0f}"


def _alive(owner: str) -> bool:
    _, pid, started = owner.rsplit(":", 2)
    try:
        # The clock may have been set since; no number is used again within two seconds.
        return abs(psutil.Process(int(pid)).create_time() - float(started)) < 2
    except (psutil.NoSuchProcess, ValueError):
        return False


def _usable(container: Container, key: str) -> bool:
    """Return whether a container can be used for this, and let it go on."""
    if container.labels.get(KEY) != key or container.status not in ("paused", "running"):
        return False
    if container.status == "paused":
        container.unpause()
    return True


def _key(spec: ContainerSpec) -> str:
    # A directory that was made anew is another one, whatever its name.
    mounts = [
        [str(path), path.stat().st_ino, inside, read_only]
        for path, inside, read_only in spec.mounts
    ]
    return digest_of(
        {
            "image": spec.image,
            "user": spec.user,
            "mounts": mounts,
            "network": spec.network,
            "memory": spec.memory,
            "cpus": spec.cpus,
        }
    )[:32]


def _close(stream: Any, response: requests.Response) -> None:
    """Close an upgraded connection, and the socket below it, which its wrapper leaves open."""
    below = getattr(stream, "_sock", None)
    response.close()
    if below is not None:
        below.close()


def _copy(stream: object, output: ProcessOutput) -> None:
    # A connection that is closed under the reader ends the copying, as the end of output does.
    with contextlib.suppress(OSError, ValueError):
        for _, chunk in frames_iter(stream, tty=False):  # type: ignore[no-untyped-call]
            output.write(chunk)
