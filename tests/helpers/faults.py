"""Faults by chance: builds, runs, artifacts and database transactions that go wrong now and then.

The parts behave as ``bisect/testing.py``'s do, except that each operation may be struck; how many
there were of each kind is counted, so that a test can say what it was exposed to.
"""

from __future__ import annotations

import errno
import math
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from perfbisect.core.states import FailureKind
from perfbisect.errors import TransientError
from perfbisect.ports import (
    BuildRequest,
    BuildSuccess,
    CancelToken,
    Failure,
    RunRequest,
    RunSuccess,
)
from perfbisect.store.artifacts import FsspecArtifactStore
from perfbisect.store.database import Database
from perfbisect.testing import ScriptedBuilder

#: Every message of a fault says so.
INJECTED = "injected"

#: Kind of operation -> what may happen to it, with weights.
MISHAPS: Mapping[str, Mapping[str, int]] = {
    "build": {"network": 6, "disk full": 3},
    "run": {"host lost": 6, "disk full": 3, "disturbed": 4, "crash": 3, "mistake of ours": 1},
    "put": {"disk full": 2, "torn": 3},
    "fetch": {"unreadable": 1},
    "transaction": {"locked": 1, "disk error": 1},
}


@dataclass
class Faults:
    """Decides by chance, and counts. Thread-safe."""

    #: Of all operations.
    share: float
    seed: int
    operations: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def mishap(self, operation: str) -> str:
        """Return what happens to this operation; empty: nothing."""
        kinds = MISHAPS[operation]
        with self._lock:
            self.operations[operation] += 1
            if self._random.random() >= self.share:
                return ""
            (kind,) = self._random.choices(list(kinds), list(kinds.values()))
            self.struck[f"{operation}: {kind}"] += 1
            return kind

    def breaks(self, name: str) -> bool:
        """Return whether something never works: the same answer each time it is asked."""
        broken = random.Random(f"{self.seed} {name}").random() < self.share / 4
        if broken:
            with self._lock:
                self.struck["build: does not compile"] += 1
        return broken

    def noise(self, sigma: float) -> float:
        """Return a log-normal factor."""
        with self._lock:
            return math.exp(self._random.gauss(0.0, sigma))

    def told(self) -> dict[str, dict[str, int]]:
        """Return how many operations and faults of each kind there were."""
        with self._lock:
            return {"operations": dict(self.operations), "struck": dict(self.struck)}


def _disk_full(path: Path) -> OSError:
    return OSError(errno.ENOSPC, f"{INJECTED}: No space left on device", str(path))


class FaultyBuilder:
    """A scripted builder that is struck, and leaves half a wheel behind when it is."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._builder = ScriptedBuilder()

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        self._builder.requests.clear()
        kind = self._faults.mishap("build")
        if self._faults.breaks(f"{request.tree} {request.recipe.digest}"):
            line = f"{INJECTED}: error: no such header"
            return Failure(FailureKind.PERMANENT, line, (line,))
        if not kind:
            return self._builder.build(request, cancel)
        request.work_dir.mkdir(parents=True, exist_ok=True)
        (request.work_dir / "half.whl").write_bytes(b"half a wheel")
        if kind == "disk full":
            raise _disk_full(request.work_dir)
        if kind == "network":
            return Failure(FailureKind.TRANSIENT, f"{INJECTED}: network unreachable")
        line = f"{INJECTED}: error: no such header"
        return Failure(FailureKind.PERMANENT, line, (line,))


class FaultyRunner:
    """Measures what the benchmark's command says: ``simulated POSITION=FACTOR ...``."""

    def __init__(self, faults: Faults, positions: Mapping[str, int], *, noise: float) -> None:
        """Make one.

        Args:
            positions: of commits.
            noise: relative standard deviation of a run.
        """
        self._faults = faults
        self._positions = positions
        self._noise = noise

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        kind = self._faults.mishap("run")
        request.work_dir.mkdir(parents=True, exist_ok=True)
        (request.work_dir / "result.json").write_text("{}", encoding="utf-8")
        request.log_path.write_text(f"running {request.wheel.name}\n", encoding="utf-8")
        if kind == "disk full":
            raise _disk_full(request.work_dir)
        if kind == "host lost":
            return Failure(FailureKind.TRANSIENT, f"{INJECTED}: the host went away")
        if kind == "crash":
            return Failure(FailureKind.PERMANENT, f"{INJECTED}: Segmentation fault")
        if kind == "mistake of ours":
            raise ValueError(f"{INJECTED}: a mistake of ours")
        value = self._value(request) * self._faults.noise(self._noise)
        rejected = f"{INJECTED}: a neighbour was busy" if kind == "disturbed" else ""
        return RunSuccess(value, (value,), 0.01, rejected=rejected)

    def _value(self, request: RunRequest) -> float:
        commit = request.wheel.read_text(encoding="utf-8").splitlines()[0]
        value = 9000.0
        for word in request.benchmark.command.split()[1:]:
            at, _, factor = word.partition("=")
            if self._positions[commit] >= int(at):
                value *= float(factor)
        return value


class FaultyArtifacts(FsspecArtifactStore):
    """A store whose disk is full, can't be read, or keeps half of a file."""

    def __init__(self, url: str, local_dir: Path, faults: Faults) -> None:
        super().__init__(url, local_dir)
        self._directory = Path(url)
        self._faults = faults

    def put(self, path: Path, *, keep_copy: bool = True) -> str:
        kind = self._faults.mishap("put")
        if kind == "disk full":
            raise TransientError(f"{INJECTED}: artifact {path.name} could not be stored")
        key = super().put(path, keep_copy=keep_copy)
        if kind == "torn":
            stored = self._directory / key
            content = stored.read_bytes()
            stored.chmod(0o600)
            stored.write_bytes(content[: len(content) // 2])
        return key

    def fetch(self, key: str) -> Path:
        if self._faults.mishap("fetch"):
            raise TransientError(f"{INJECTED}: artifact {key} can't be read")
        return super().fetch(key)


def strike_transactions(database: Database, faults: Faults) -> None:
    """Let transactions that write fail by chance, when they begin or when they are committed."""
    pending = threading.local()

    def begin(connection: Connection) -> None:
        pending.kind = ""
        if not connection.get_execution_options().get("perfbisect_read_only"):
            pending.kind = faults.mishap("transaction")
        if pending.kind == "locked":
            _fail(pending.kind)

    def commit(connection: Connection) -> None:
        if pending.kind == "disk error":
            _fail(pending.kind)

    event.listen(database.engine, "begin", begin)
    event.listen(database.engine, "commit", commit)


def _fail(kind: str) -> None:
    cause = sqlite3.OperationalError(f"{INJECTED}: {kind}")
    raise OperationalError("COMMIT", {}, cause)
