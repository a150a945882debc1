"""A cluster in which anything may die at any moment: hosts, servers, the way to the database.

Work goes on without the server that asked for it, as on a real cluster, and is found by the next.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.conductor import Conductor
from perfbisect.core.states import FailureKind
from perfbisect.errors import TransientError
from perfbisect.ports import (
    BuildDone,
    BuildRequest,
    BuildSuccess,
    Failure,
    HostInfo,
    Orphan,
    Room,
    RunDone,
    RunRequest,
    RunSuccess,
)
from perfbisect.services import Services
from perfbisect.store.database import Database

Result = BuildSuccess | RunSuccess | Failure | None
LOST = Failure(FailureKind.TRANSIENT, "the host was lost")


@dataclass
class _Work:
    host: str
    due: float
    #: Makes the result, into a scratch directory.
    finish: Callable[[Path], Result]
    result: Result = None


@dataclass
class World:
    """The machines: what they do, whoever asked for it."""

    hosts: tuple[str, ...]
    #: Commit -> value.
    value: Callable[[str], float]
    seconds: float
    seed: int
    work: dict[str, _Work] = field(default_factory=dict)
    #: Host -> when it comes back.
    away: dict[str, float] = field(default_factory=dict)
    guard: threading.RLock = field(default_factory=threading.RLock)
    lost: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def noise(self) -> float:
        """A factor close to one."""
        with self.guard:
            return self._random.lognormvariate(0.0, 0.005)

    def alive(self) -> list[str]:
        """The hosts that are there now."""
        now = time.monotonic()
        return [host for host in self.hosts if self.away.get(host, 0.0) <= now]

    def kill(self, host: str, seconds: float) -> bool:
        """Take a host away for a while, with all that is under way there; not one that idles."""
        with self.guard:
            if host not in self.busy():
                return False
            self.away[host] = time.monotonic() + seconds
            for work_id in [key for key, each in self.work.items() if each.host == host]:
                del self.work[work_id]
                self.lost += 1
            return True

    def busy(self) -> list[str]:
        """The hosts on which something is under way."""
        with self.guard:
            return sorted({each.host for each in self.work.values()})

    def begin(self, work_id: str, host: str, finish: Callable[[Path], Result]) -> None:
        """Begin work on a host; on one that is gone it is lost at once."""
        with self.guard:
            if host in self.alive():
                due = time.monotonic() + self.seconds
                self.work[work_id] = _Work(host, due, finish)


class Reach:
    """One server's way to everything else, until it is cut."""

    def __init__(self) -> None:
        self.cut = threading.Event()


class ReachedDatabase(Database):
    """A database that is there as long as it can be reached."""

    def __init__(self, database: Database, reach: Reach) -> None:
        self.__dict__.update(database.__dict__)
        self._reach = reach

    @contextmanager
    def write(self) -> Iterator[Session]:
        self._try()
        with super().write() as session:
            yield session
            # Cut in the middle of a transaction: none of it stays.
            self._try()

    @contextmanager
    def read(self) -> Iterator[Session]:
        self._try()
        with super().read() as session:
            yield session

    def _try(self) -> None:
        if self._reach.cut.is_set():
            raise TransientError("the connection to the database is cut")


class ChaosEngine:
    """One server's view of the world. Implements ``ports.ClusterEngine``."""

    exclusive = False

    def __init__(self, world: World, reach: Reach) -> None:
        self._world = world
        self._reach = reach
        self._flights: dict[str, tuple[Path, Callable[[Any], None], bool]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def hosts(self) -> Sequence[HostInfo]:
        return tuple(self.room().hosts.values())

    def build_slots(self) -> int:
        return 4

    def room(self) -> Room:
        with self._world.guard:
            alive = self._world.alive()
            busy = {each.host for each in self._world.work.values()}
            free = tuple(host for host in alive if host not in busy)
            return Room({host: HostInfo(host, "pool") for host in alive}, free, 4)

    def submit_build(self, request: BuildRequest, done: Callable[[BuildDone], None]) -> None:
        def finish(scratch: Path) -> Result:
            content = f"{request.commit}\n{request.tree}\n".encode()
            wheel = scratch / f"chaos-{request.tree[:12]}.whl"
            wheel.write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            return BuildSuccess(wheel, digest, len(content), self._world.seconds)

        self._flights[request.id] = (request.work_dir, done, True)
        with self._world.guard:
            alive = self._world.alive() or list(self._world.hosts)
        self._world.begin(request.id, alive[hash(request.tree) % len(alive)], finish)

    def submit_run(self, request: RunRequest, done: Callable[[RunDone], None]) -> None:
        value = self._world.value(request.wheel.read_text().splitlines()[0])
        value *= self._world.noise()
        result = RunSuccess(value, (value,), self._world.seconds)
        self._flights[request.id] = (request.work_dir, done, False)
        self._world.begin(request.id, request.host, lambda scratch: result)

    def reattach(self, orphan: Orphan, done: Callable[[BuildDone | RunDone], None]) -> None:
        self._flights[orphan.id] = (orphan.work_dir, done, not orphan.host)

    def recorded(self, work_id: str) -> None:
        with self._world.guard:
            self._world.work.pop(work_id, None)

    def let_go(self, work_id: str) -> None:
        self._flights.pop(work_id, None)

    def cancel(self, work_id: str) -> None:
        with self._world.guard:
            self._world.work.pop(work_id, None)

    def detach(self) -> None:
        self._closed.set()
        self._thread.join()

    def close(self) -> None:
        self.detach()

    def _follow(self) -> None:
        while not self._closed.wait(0.005):
            if self._reach.cut.is_set():
                continue
            for work_id, (scratch, done, is_build) in list(self._flights.items()):
                with self._world.guard:
                    work = self._world.work.get(work_id)
                    if work is not None and work.due > time.monotonic():
                        continue
                    result = LOST if work is None else work.result or work.finish(scratch)
                    if work is not None:
                        work.result = result
                if self._flights.pop(work_id, None) is not None:
                    done(BuildDone(work_id, result) if is_build else RunDone(work_id, result))  # type: ignore[arg-type]


@dataclass
class Servers:
    """Two servers on one database, of which one may be killed at any time."""

    services: Services
    world: World
    lease: float
    running: list[tuple[Conductor, Reach]] = field(default_factory=list)
    dead: list[Conductor] = field(default_factory=list)

    def start(self) -> None:
        """Start a further server."""
        reach = Reach()
        database = ReachedDatabase(self.services.database, reach)
        conductor = Conductor(
            replace(self.services, database=database),
            ChaosEngine(self.world, reach),
            lease_seconds=self.lease,
            host_grace=1.0,
            detach=True,
        )
        conductor.start()
        self.running.append((conductor, reach))

    def kill(self) -> None:
        """Kill the server that conducts, in whatever it does; a new one takes its place."""
        chosen = next((each for each in self.running if each[0].conducts), self.running[0])
        chosen[1].cut.set()
        self.running.remove(chosen)
        self.dead.append(chosen[0])
        self.start()

    def stop(self) -> None:
        """End all of them."""
        for conductor in (*self.dead, *(each[0] for each in self.running)):
            conductor.stop()
