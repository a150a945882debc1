"""The process that speaks with Ray on behalf of the engine.

Ray ends a process that lost its cluster. The server must not end with it: so this process does, and
the engine starts another. It is started with two file descriptors, an address and the name of what
makes the hosts' parts; it reads commands from one and writes news to the other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import ray
from ray.exceptions import RayError

from perfbisect.core.states import FailureKind
from perfbisect.engines.ray_link import HostLink
from perfbisect.engines.ray_messages import (
    BUILD,
    HOST_LABEL,
    POOL,
    SHARED_LABEL,
    Attach,
    Cancel,
    Command,
    Ended,
    News,
    Node,
    Nodes,
    Recorded,
    Start,
)
from perfbisect.ports import Failure

log = logging.getLogger(__name__)

#: Seconds between two looks at the cluster.
LOOK = 1.0
#: Threads in which work is begun: each may wait for what travels.
_BEGINNING = 64
#: Exit status: the cluster can't be reached.
NO_CLUSTER = 3


class Driver:
    """Carries out the engine's commands."""

    def __init__(self, news: Connection, parts: str, grace: float, linger: float) -> None:
        """Make one; the cluster is connected.

        Args:
            grace: seconds that a host may be away before what was under way there is lost.
            linger: seconds that an idle agent keeps its node.
        """
        self._news = news
        self._parts = parts
        self._grace = grace
        self._linger = linger
        self._writing = threading.Lock()
        self._guard = threading.Lock()
        self._links: dict[str, HostLink] = {}
        self._nodes: dict[str, Node] = {}
        #: Id of work -> the host it is on.
        self._where: dict[str, str] = {}
        self._cancelled: set[str] = set()
        self._pool = ThreadPoolExecutor(_BEGINNING, thread_name_prefix="begin")

    def serve(self, commands: Connection) -> None:
        """Carry out commands until the engine is gone."""
        self._look()
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()
        while True:
            try:
                command: Command = commands.recv()
            except EOFError:
                return
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Start():
                self._pool.submit(self._start, command)
            case Attach():
                self._pool.submit(self._attach, command)
            case Cancel(work_id):
                self._cancelled.add(work_id)
                if link := self._link_of(work_id):
                    link.cancel(work_id)
            case Recorded(work_id):
                if link := self._link_of(work_id):
                    link.forget(work_id)
                self._where.pop(work_id, None)
                self._cancelled.discard(work_id)

    # ------------------------------------------------------------------ the cluster

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK)
            try:
                self._look()
            except Exception:
                # Without the cluster's head this process is of no use; the engine starts another.
                log.exception("the cluster can't be reached any more")
                os._exit(NO_CLUSTER)

    def _look(self) -> None:
        """Read which nodes are there, and tell what is new."""
        listing = ray.nodes()  # type: ignore[no-untyped-call]
        found = {node.name: node for node in nodes_of(listing)}
        with self._guard:
            before, self._nodes = self._nodes, found
            links = dict(self._links)
        for name, link in links.items():
            now = found.get(name)
            if now is None or now.node_id != link.node.node_id:
                with self._guard:
                    self._links.pop(name, None)
                link.lost()
            elif link.idle_seconds() > self._linger:
                self._pool.submit(link.release, self._linger)
        if found != before or not before:
            self._tell(Nodes(tuple(found.values())))

    def _fits(self, node_id: str) -> bool:
        with self._guard:
            return any(node.node_id == node_id for node in self._nodes.values())

    def _link(self, host: str) -> HostLink | None:
        with self._guard:
            node = self._nodes.get(host)
            if node is None:
                return None
            if host not in self._links:
                self._links[host] = HostLink(node, self._parts, self._tell, self._fits)
            return self._links[host]

    def _link_of(self, work_id: str) -> HostLink | None:
        with self._guard:
            return self._links.get(self._where.get(work_id, ""))

    # ------------------------------------------------------------------ work

    def _start(self, command: Start) -> None:
        work_id = command.request.id
        link = self._link(command.host)
        if link is None:
            self._fail(work_id, f"host {command.host} was lost before it could begin")
            return
        self._where[work_id] = command.host
        link.begin(command.request)
        if work_id in self._cancelled:
            link.cancel(work_id)

    def _attach(self, command: Attach) -> None:
        """Look for work where it may be, until it is found or its host was away for too long."""
        orphan = command.orphan
        end = time.monotonic() + self._grace
        while True:
            with self._guard:
                names = [orphan.host] if orphan.host else list(self._nodes)
                there = [name for name in names if name in self._nodes]
            for name in there:
                if self._adopt(name, command):
                    return
            # A run can only be where it was begun, and that host has spoken.
            if (orphan.host and there) or time.monotonic() >= end:
                self._fail(orphan.id, f"host {orphan.host} lost it" if orphan.host else "lost")
                return
            time.sleep(LOOK)

    def _adopt(self, name: str, command: Attach) -> bool:
        link = self._link(name)
        work_id = command.orphan.id
        try:
            if link is None or not link.adopt(command.orphan):
                return False
        except RayError:
            return False
        self._where[work_id] = name
        if work_id in self._cancelled:
            link.cancel(work_id)
        return True

    def _fail(self, work_id: str, why: str) -> None:
        self._tell(Ended(work_id, Failure(FailureKind.TRANSIENT, why)))

    def _tell(self, news: News) -> None:
        # The engine may be gone: then there is nobody to tell.
        with self._writing, contextlib.suppress(OSError):
            self._news.send(news)


def nodes_of(listing: list[dict[str, Any]]) -> list[Node]:
    """Return the nodes that build or run, of what Ray says of all of them.

    A node without a label is called after its machine; where several are on one, also by its id.
    """
    alive = [each for each in listing if each.get("Alive")]
    machines = [each.get("NodeManagerHostname", "") for each in alive]
    found = []
    for each in alive:
        has, labels = each.get("Resources", {}), each.get("Labels", {})
        pools = sorted(name for name in has if name.startswith(POOL))
        slots = int(has.get(BUILD, 0))
        if not pools and not slots:
            continue
        machine = each.get("NodeManagerHostname", "")
        name = machine if machines.count(machine) == 1 else f"{machine}-{each['NodeID'][:8]}"
        found.append(
            Node(
                name=labels.get(HOST_LABEL, name),
                node_id=each["NodeID"],
                pool=pools[0].removeprefix(POOL) if pools else "",
                build_slots=slots,
                gpus=int(has.get("GPU", 0)),
                shared=labels.get(SHARED_LABEL) == "yes",
            )
        )
    return found


def main() -> None:
    """Connect to the cluster and serve the engine that started this process."""
    commands, news, address, parts, grace, linger = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RayError, RuntimeError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        sys.exit(NO_CLUSTER)
    driver = Driver(Connection(int(news)), parts, float(grace), float(linger))
    driver.serve(Connection(int(commands)))
    # Ray's own good-bye waits for nothing of ours; the agents go on.
    os._exit(0)


if __name__ == "__main__":
    main()
