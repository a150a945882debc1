"""Wheel + benchmark -> one value, in a clean environment.

A run: get an environment with the wheel and the benchmark's requirements (kept and shared), copy
the benchmark's files into an empty directory, start its command once, watch the host meanwhile,
read the value. Who is to blame for a failure:

- *permanent*: the wheel can't be installed or imported, the benchmark fails or crashes with it, or
  it hangs for the second time;
- *transient*: no way to the package index, no room on the disk, killed from outside, a first hang;
- *ours*: the command, the requirements or the metric of the benchmark can't be right, whatever the
  wheel.
"""

from __future__ import annotations

from perfbisect.container_devices import DeviceStyle
from perfbisect.containers import Docker
from perfbisect.core.states import FailureKind
from perfbisect.errors import TransientError
from perfbisect.ports import CancelToken, Failure, Runner, RunRequest, RunSuccess
from perfbisect.running.docker_site import DockerSite
from perfbisect.running.flow import Shelves, carry_out, with_absolute_paths
from perfbisect.running.gpu_host import GpuHost
from perfbisect.running.host import host_facts
from perfbisect.running.local_site import LocalSite

__all__ = ["DockerRunner", "HostRunner", "LocalRunner", "Shelves", "host_facts", "make_runner"]


class LocalRunner:
    """Runs benchmarks as processes of this machine. Implements ``ports.Runner``."""

    def __init__(
        self,
        shelves: Shelves | None = None,
        index_url: str = "",
        gpus: GpuHost | None = None,
    ) -> None:
        """Make a runner.

        Args:
            shelves: how many environments and archives are kept.
            index_url: package index that is asked before the machine's own.
            gpus: gives benchmarks their GPUs; None: without settings of this host.
        """
        self._gpus = gpus
        self._shelves = shelves or Shelves()
        self._index_url = index_url

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Run the benchmark once, whatever its ``docker`` says.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        request = with_absolute_paths(request)
        site = LocalSite(request, cancel, self._index_url)
        return carry_out(site, request, cancel, self._shelves, self._gpus)


class DockerRunner:
    """Runs benchmarks in containers of their image. Implements ``ports.Runner``.

    The engine must be this machine's own, as directories are mounted into its containers.
    """

    def __init__(
        self,
        docker_host: str = "",
        shelves: Shelves | None = None,
        index_url: str = "",
        gpus: GpuHost | None = None,
        style: DeviceStyle = DeviceStyle.AUTO,
    ) -> None:
        """Make a runner.

        Args:
            docker_host: URL of the engine; empty: DOCKER_HOST or the default socket.
            shelves: how many environments and archives are kept.
            index_url: package index that is asked before the machine's own.
            gpus: gives benchmarks their GPUs; None: without settings of this host.
            style: how the engine is asked for GPUs.
        """
        self._gpus = gpus
        self._style = style
        self._docker_host = docker_host
        self._index_url = index_url
        self._shelves = shelves or Shelves()

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Run the benchmark once; it needs an ``image``.

        Raises:
            CancelledWork: the token asked for the end, and no container is left.
        """
        request = with_absolute_paths(request)
        try:
            with Docker(self._docker_host) as docker:
                site = DockerSite(request, cancel, docker, self._index_url, self._style)
                return carry_out(site, request, cancel, self._shelves, self._gpus)
        except TransientError as error:
            return Failure(FailureKind.TRANSIENT, error.message)


class HostRunner:
    """Runs each benchmark as it asks to be: in containers, or as processes of this machine."""

    def __init__(self, local: Runner, docker: Runner) -> None:
        """Make a runner of one for processes and one for containers."""
        self._local = local
        self._docker = docker

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Run the benchmark once.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        runner = self._docker if request.benchmark.docker else self._local
        return runner.run(request, cancel)


def make_runner(
    docker_host: str = "",
    shelves: Shelves | None = None,
    index_url: str = "",
    gpus: GpuHost | None = None,
    style: DeviceStyle = DeviceStyle.AUTO,
) -> Runner:
    """Return the runner of a host."""
    docker = DockerRunner(docker_host, shelves, index_url, gpus, style)
    return HostRunner(LocalRunner(shelves, index_url, gpus), docker)
