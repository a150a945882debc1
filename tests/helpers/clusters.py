"""Real Ray clusters on this machine: each node a ``ray start`` process of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.helpers.waiting import until

ROOT = Path(__file__).resolve().parents[2]
#: Bytes: the least that Ray takes, so that a test can fill it.
STORE = 80_000_000
#: Name of the head as a host.
HEAD = "head"
_QUIETLY = ("--disable-usage-stats", "--block")


@dataclass
class Cluster:
    """A head, which builds, and nodes by the name of their host."""

    directory: Path
    port: int
    environment: dict[str, str]
    head: subprocess.Popen[bytes] | None = None
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    resources: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_head(self) -> None:
        """Start the cluster's head, which builds, and wait until it takes nodes."""
        options = ["--head", f"--port={self.port}", f"--temp-dir={self.directory / 'r'}"]
        self.head = self._start(HEAD, [*options, "--include-dashboard=false"], {"build": 2})
        until(lambda: _listens(self.port), "the cluster's head", meanwhile=self._retry_head)

    def _retry_head(self) -> None:
        if self.head is not None and self.head.poll() is not None:
            kill_tree(self.head)
            self.start_head()

    def start_node(self, name: str, *, pool: str = "", slots: int = 0) -> None:
        """Start a node; it need not have joined when this returns."""
        resources: dict[str, int] = {f"pool:{pool}": 1} if pool else {}
        if slots:
            resources["build"] = slots
        self.resources[name] = resources
        self.nodes[name] = self._start(name, [f"--address={self.address}"], resources)

    def revive(self) -> None:
        """Start again what gave up while it started, as Ray does when a machine is too busy."""
        if self.head is not None and self.head.poll() is not None:
            for name in self.nodes:
                kill_tree(self.nodes[name])
            self.kill_head()
            self.start_head()
        for name, process in self.nodes.items():
            if process.poll() is not None:
                kill_tree(process)
                address = [f"--address={self.address}"]
                self.nodes[name] = self._start(name, address, self.resources[name])

    def _start(
        self, name: str, options: list[str], resources: Mapping[str, int]
    ) -> subprocess.Popen[bytes]:
        scratch = self.directory / name
        scratch.mkdir(exist_ok=True)
        variables = {**self.environment, "TMPDIR": str(scratch)}
        variables["PERFBISECT_DATA_DIR"] = str(scratch / "data")
        options = [*options, f"--resources={json.dumps(resources)}"]
        options += [f"--labels=perfbisect.io/host={name}", f"--object-store-memory={STORE}"]
        with (scratch / "ray.log").open("ab") as log:
            return subprocess.Popen(
                [ray_program(), "start", *options, "--num-cpus=0", *_QUIETLY],
                env=variables,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_node(self, name: str) -> None:
        """Kill a node as a power cut would: all its processes at once."""
        kill_tree(self.nodes.pop(name))

    def kill_head(self) -> None:
        """Kill the head and everything on its machine."""
        assert self.head is not None
        kill_tree(self.head)
        self.head = None

    def close(self) -> None:
        """Leave nothing behind."""
        for name in list(self.nodes):
            self.kill_node(name)
        if self.head is not None:
            self.kill_head()
        shutil.rmtree(self.directory, ignore_errors=True)


def ray_program() -> str:
    """Return Ray's command line program."""
    return str(Path(sys.executable).with_name("ray"))


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with everything it started, and wait until it is gone."""
    try:
        top = psutil.Process(process.pid)
        family = [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        family = []
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
    psutil.wait_procs(family, timeout=20)


@contextmanager
def cluster(**environment: str) -> Iterator[Cluster]:
    """Yield a cluster with a head alone, which builds.

    Args:
        environment: variables of all nodes.
    """
    # Paths of sockets may have 107 characters only, which pytest's directories exceed.
    directory = Path(tempfile.mkdtemp(prefix="pbr", dir="/tmp"))
    variables = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    variables |= {
        "PYTHONPATH": str(ROOT),
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
        "RAY_raylet_start_wait_time_s": "120",
    }
    made = Cluster(directory, free_port(), variables | environment)
    try:
        made.start_head()
        yield made
    finally:
        made.close()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        assert isinstance(port, int)
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
