"""The engine of a Ray cluster: each host has an agent that works as the local engine does.

Ray places the agents, by the resources ``pool:NAME``, ``build`` and GPUs, and tells which nodes are
there; see docs/cluster.md. What is under way outlives this process, and can be reattached to.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from perfbisect.core.states import FailureKind
from perfbisect.engines.ray_messages import (
    Attach,
    Cancel,
    Command,
    Ended,
    Facts,
    News,
    Node,
    Nodes,
    Recorded,
    Result,
    Start,
)
from perfbisect.errors import BadInputError
from perfbisect.ports import (
    BuildDone,
    BuildRequest,
    Failure,
    HostInfo,
    Orphan,
    Room,
    RunDone,
    RunRequest,
)

log = logging.getLogger(__name__)

#: Makes builder and runner of a host (see ``ray_agent.PARTS``).
PARTS = "perfbisect.wiring:make_parts"
#: Seconds before a lost cluster is looked for again, at first and at most.
_BACKOFF = (1.0, 15.0)
#: Seconds that an idle agent keeps its node.
LINGER = 300.0
#: Seconds that cancelled work may take to be gone.
_FAREWELL = 60.0


@dataclass(slots=True)
class _Flight:
    """A build or run under way."""

    orphan: Orphan
    is_build: bool
    done: Callable[[Any], None]
    #: None: somebody else began it.
    request: BuildRequest | RunRequest | None = None
    #: The driver was told: after that it is only looked for, never begun again.
    handed_over: bool = False
    cancelled: bool = False


class RayEngine:
    """Carries out work on the hosts of a Ray cluster. Implements ``ports.ClusterEngine``."""

    exclusive = False

    def __init__(
        self,
        address: str,
        *,
        grace: float = 120.0,
        linger: float = LINGER,
        parts: str = PARTS,
    ) -> None:
        """Make the engine; the cluster need not be there yet.

        Args:
            address: of the cluster's head, ``host:port``; ``auto``: of this machine's node.
            grace: seconds that a host may be away before what was under way there is lost.
            linger: seconds that an idle agent keeps its node.
            parts: what makes builder and runner on a host: ``module:function``.

        Raises:
            BadInputError: Ray is not installed.
        """
        if importlib.util.find_spec("ray") is None:
            raise BadInputError(
                "--engine: 'ray' needs Ray: pip install 'perfbisect[ray]'", field="engine"
            )
        self._arguments = [address or "auto", parts, str(grace), str(linger)]
        self._guard = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._flights: dict[str, _Flight] = {}
        #: Builds that no node can take yet.
        self._waiting: list[str] = []
        #: (tree, recipe digest) -> the host on which its last build failed for want of luck.
        self._avoid: dict[tuple[str, str], str] = {}
        self._commands: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._connected = threading.Event()
        self._ended = threading.Condition(self._guard)
        self._thread = threading.Thread(target=self._supervise, name="ray", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ what is there

    def wait_connected(self, seconds: float) -> bool:
        """Wait until the cluster was seen; return whether it was."""
        return self._connected.wait(seconds)

    def hosts(self) -> Sequence[HostInfo]:
        """Return the hosts that are there."""
        return tuple(self.room().hosts.values())

    def build_slots(self) -> int:
        """Return how many builds may go on at once, busy or not."""
        with self._guard:
            return sum(node.build_slots for node in self._nodes.values())

    def room(self) -> Room:
        """Return what is there and what is free."""
        with self._guard:
            hosts = {
                node.name: HostInfo(node.name, node.pool, self._facts_of(node))
                for node in self._nodes.values()
                if node.pool
            }
            free = tuple(name for name in hosts if self._may_run(self._nodes[name]))
            slots = sum(self._free_slots(node) for node in self._nodes.values())
            return Room(hosts, free, max(slots - len(self._waiting), 0))

    def _facts_of(self, node: Node) -> dict[str, Any]:
        """Return what a host said of itself, once it has, and what Ray says of it."""
        return {"gpu_slots": node.gpus, **self._facts.get(node.name, {})}

    def _may_run(self, node: Node) -> bool:
        builds, runs = self._load(node)
        return not runs and (node.shared or not builds)

    def _free_slots(self, node: Node) -> int:
        builds, runs = self._load(node)
        return 0 if runs and not node.shared else max(node.build_slots - builds, 0)

    def _load(self, node: Node) -> tuple[int, int]:
        """Return the builds and the runs on a node."""
        here = [each.is_build for each in self._flights.values() if each.orphan.host == node.name]
        return sum(here), len(here) - sum(here)

    # ------------------------------------------------------------------ work

    def submit_build(self, request: BuildRequest, done: Callable[[BuildDone], None]) -> None:
        """Start a build on the host with the most room; wait for one where there is none."""
        orphan = Orphan(request.id, "", request.work_dir, request.log_path)
        with self._guard:
            self._flights[request.id] = _Flight(orphan, True, done, request)
            self._place(request.id)

    def submit_run(self, request: RunRequest, done: Callable[[RunDone], None]) -> None:
        """Start a run on its host."""
        orphan = Orphan(request.id, request.host, request.work_dir, request.log_path)
        with self._guard:
            self._flights[request.id] = _Flight(orphan, False, done, request)
            self._hand_over(request.id)

    def reattach(self, orphan: Orphan, done: Callable[[BuildDone | RunDone], None]) -> None:
        """Look for work that was begun by a process that is gone."""
        is_build = not orphan.host
        with self._guard:
            self._flights[orphan.id] = _Flight(orphan, is_build, done, handed_over=True)
            self._send(Attach(orphan, is_build))

    def cancel(self, work_id: str) -> None:
        """Ask a build or run to end."""
        with self._guard:
            flight = self._flights.get(work_id)
            if flight is None:
                return
            flight.cancelled = True
            if work_id not in self._waiting:
                self._send(Cancel(work_id))
                return
            self._waiting.remove(work_id)
        self._end(work_id, None)

    def recorded(self, work_id: str) -> None:
        """Let the host forget what is stored."""
        with self._guard:
            self._send(Recorded(work_id))

    def let_go(self, work_id: str) -> None:
        """Care about a build or run no more."""
        with self._guard:
            self._flights.pop(work_id, None)
            if work_id in self._waiting:
                self._waiting.remove(work_id)

    def close(self) -> None:
        """Cancel everything and wait until it is gone, or its cluster does not answer."""
        for work_id in list(self._flights):
            self.cancel(work_id)
        with self._guard:
            patience = _FAREWELL if self._nodes else 0.0
            self._ended.wait_for(lambda: not self._flights, timeout=patience)
        self.detach()

    def detach(self) -> None:
        """Close without cancelling."""
        self._closing.set()
        with self._guard:
            if self._commands is not None:
                self._commands.close()
                self._commands = None
            process = self._process
        if process is not None:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._thread.join()

    def _place(self, work_id: str) -> None:
        """Choose a host for a build, or let it wait for one; the guard is held."""
        flight = self._flights[work_id]
        request = flight.request
        assert isinstance(request, BuildRequest)
        able = [node for node in self._nodes.values() if self._free_slots(node) > 0]
        bad = self._avoid.get((request.tree, request.recipe.digest))
        # Hosts that measure are left to those who measure, as long as others build.
        able.sort(key=lambda node: (node.name == bad, bool(node.pool), -self._free_slots(node)))
        if not able:
            if work_id not in self._waiting:
                self._waiting.append(work_id)
            return
        orphan = flight.orphan
        flight.orphan = Orphan(orphan.id, able[0].name, orphan.work_dir, orphan.log_path)
        self._hand_over(work_id)

    def _hand_over(self, work_id: str) -> None:
        flight = self._flights[work_id]
        assert flight.request is not None
        flight.handed_over = self._send(Start(flight.request, flight.orphan.host))

    def _end(self, work_id: str, result: Result) -> None:
        with self._guard:
            flight = self._flights.pop(work_id, None)
            if flight is None:
                return
            self._note_luck(flight, result)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._place(each)
            self._ended.notify_all()
        if flight.cancelled and isinstance(result, Failure):
            result = None
        kind = BuildDone if flight.is_build else RunDone
        flight.done(kind(work_id, result))  # type: ignore[arg-type]

    def _note_luck(self, flight: _Flight, result: Result) -> None:
        """Remember where a build failed without being at fault: it is tried elsewhere next."""
        if not isinstance(flight.request, BuildRequest):
            return
        key = (flight.request.tree, flight.request.recipe.digest)
        if isinstance(result, Failure) and result.kind is FailureKind.TRANSIENT:
            self._avoid[key] = flight.orphan.host
        else:
            self._avoid.pop(key, None)

    # ------------------------------------------------------------------ the driver

    def _send(self, command: Command) -> bool:
        """Tell the driver, if there is one; the guard is held."""
        if self._commands is None:
            return False
        try:
            self._commands.send(command)
        except OSError:
            return False
        return True

    def _supervise(self) -> None:
        """Keep a driver running, and read what it tells."""
        pause = _BACKOFF[0]
        while not self._closing.is_set():
            news = self._start_driver()
            told = False
            while True:
                try:
                    item: News = news.recv()
                except (EOFError, OSError):
                    break
                told = True
                self._take(item)
            news.close()
            self._driver_ended()
            pause = _BACKOFF[0] if told else min(pause * 2, _BACKOFF[1])
            self._closing.wait(pause)

    def _start_driver(self) -> Connection:
        to_read, to_write = os.pipe()
        news_read, news_write = os.pipe()
        command = [sys.executable, "-m", "perfbisect.engines.ray_driver"]
        process = subprocess.Popen(
            [*command, str(to_read), str(news_write), *self._arguments],
            pass_fds=(to_read, news_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Signals of a terminal are for the server.
            start_new_session=True,
        )
        os.close(to_read)
        os.close(news_write)
        with self._guard:
            self._process = process
            self._commands = Connection(to_write, readable=False)
            for work_id, flight in self._flights.items():
                if flight.handed_over:
                    self._send(Attach(flight.orphan, flight.is_build))
                elif flight.orphan.host:
                    self._hand_over(work_id)
                if flight.cancelled:
                    self._send(Cancel(work_id))
        return Connection(news_read, writable=False)

    def _driver_ended(self) -> None:
        with self._guard:
            process, self._process = self._process, None
            if self._commands is not None:
                self._commands.close()
                self._commands = None
            # Hosts are unknown until the cluster is there again.
            self._nodes = {}
        if process is None:
            return
        code = process.wait()
        if not self._closing.is_set():
            log.error("the Ray cluster can't be reached (driver ended with %d); trying again", code)

    def _take(self, news: News) -> None:
        match news:
            case Nodes(nodes):
                with self._guard:
                    self._nodes = {node.name: node for node in nodes}
                    self._connected.set()
                    waiting, self._waiting = self._waiting, []
                    for work_id in waiting:
                        self._place(work_id)
            case Facts(host, facts):
                with self._guard:
                    self._facts[host] = facts
            case Ended(work_id, result):
                self._end(work_id, result)
