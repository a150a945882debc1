"""The interfaces where I/O starts, and the values that cross them.

Requests and results are plain and picklable, so that an engine may carry them to another host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from perfbisect.core.recipe import Benchmark, Recipe
from perfbisect.core.states import FailureKind


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """One build: (tree, recipe) -> wheel."""

    id: str
    #: Bare mirror of the repository.
    mirror: Path
    #: Base commit: its date dates the build dependencies, its name goes into version stamps.
    commit: str
    #: Tree to build; the base commit's own tree unless the revision has changes.
    tree: str
    recipe: Recipe
    #: Scratch directory of this build alone; removed by the engine afterwards.
    work_dir: Path
    #: The builder appends here while it runs; people follow it live.
    log_path: Path
    #: Shared caches (Bazel disk cache, pip cache, environments).
    cache_dir: Path
    #: Changes that the tree has on top of the commit, for log and wheel: ``pick 1a2b3c…``.
    carried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildSuccess:
    """A wheel, or an archive of artifacts, in the build's scratch directory."""

    path: Path
    sha256: str
    size: int
    seconds: float
    #: Toolchain, image digest, command, versions: what it takes to build it again.
    environment: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a build or a run failed."""

    kind: FailureKind
    #: One line for people.
    cause: str
    #: The first telling lines of the log.
    lines: tuple[str, ...] = ()
    advice: str = ""
    seconds: float = 0.0
    #: It would fail like this every time, whatever the host: no need to see it twice.
    certain: bool = False


@dataclass(frozen=True, slots=True)
class CompanionSource:
    """A commit of a companion, to be checked out beside a benchmark's files."""

    #: Also the name of its directory.
    name: str
    #: Where it is mirrored from.
    repository: str
    #: Bare mirror of the repository.
    mirror: Path
    #: Full SHA.
    commit: str


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One process start of a benchmark on one wheel."""

    id: str
    #: File of the wheel (or archive of artifacts).
    wheel: Path
    wheel_sha256: str
    benchmark: Benchmark
    #: Directory that holds the benchmark's ``files``.
    benchmark_dir: Path
    host: str
    work_dir: Path
    log_path: Path
    #: Environments by wheel and requirements are kept below this directory.
    cache_dir: Path
    #: Options of ``uv pip install``, such as those that install dependencies as they were at a
    #: moment (``packages.dating_options``). Part of the environment's identity, and recorded.
    install_options: tuple[str, ...] = ()
    #: A published wheel (``packages.Published.to_dict``) that is fetched just before the run:
    #: ``wheel`` is no more than its name until then.
    published: Mapping[str, Any] | None = None
    companions: tuple[CompanionSource, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSuccess:
    """One value, and everything that was seen while it was measured."""

    #: In the benchmark's unit, finite and greater than zero.
    value: float
    #: Values within the process, warm-up dropped, in order.
    within: tuple[float, ...]
    seconds: float
    environment: dict[str, Any] = field(default_factory=dict)
    #: Empty, or why the point must not be used (disturbed, throttled); it is kept and repeated.
    rejected: str = ""
    #: Files that the benchmark's ``artifacts`` name: path relative to where it ran -> file in the
    #: run's scratch directory.
    artifacts: Mapping[str, Path] = field(default_factory=dict)


class CancelToken:
    """Asks a build or run to stop; checked and waited on by builders and runners."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Ask for the end."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether the end was asked for."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait; return True as soon as the end is asked for."""
        return self._event.wait(seconds)


class CancelledWork(Exception):
    """Raised by builders and runners once everything they started is gone."""


class Builder(Protocol):
    """Turns a build request into a wheel."""

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        """Build, streaming the log to ``request.log_path``.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        ...


class Runner(Protocol):
    """Turns a run request into one value."""

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Run the benchmark once.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        ...


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A machine that runs benchmarks."""

    name: str
    pool: str
    #: CPU model, cores, memory, GPUs, driver…
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildDone:
    """An engine's word that a build ended. ``result`` is None when it was cancelled or lost."""

    id: str
    result: BuildSuccess | Failure | None


@dataclass(frozen=True, slots=True)
class RunDone:
    """An engine's word that a run ended. ``result`` is None when it was cancelled or lost."""

    id: str
    result: RunSuccess | Failure | None


class Engine(Protocol):
    """Carries out builds and runs somewhere. ``done`` is called from any thread."""

    #: Builds and runs share a machine, so that at most one kind happens at a time.
    exclusive: bool

    def hosts(self) -> Sequence[HostInfo]:
        """Return the hosts of all pools."""
        ...

    def build_slots(self) -> int:
        """Return how many builds may go on at once, busy or not."""
        ...

    def submit_build(self, request: BuildRequest, done: Callable[[BuildDone], None]) -> None:
        """Start a build as soon as a slot is free."""
        ...

    def submit_run(self, request: RunRequest, done: Callable[[RunDone], None]) -> None:
        """Start a run on ``request.host`` as soon as it is free."""
        ...

    def cancel(self, work_id: str) -> None:
        """Ask a build or run to end; ``done`` follows once it is gone."""
        ...

    def close(self) -> None:
        """Cancel everything and wait until it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """What a cluster has at this moment, and what of it could start something now."""

    #: Name -> host, of those that are there.
    hosts: Mapping[str, HostInfo]
    #: Those of them on which a run could start now.
    free_hosts: tuple[str, ...]
    free_build_slots: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """Work that a process asked for which is gone: where its result is to be put."""

    id: str
    #: Where it runs; empty: a build, which may be anywhere.
    host: str
    work_dir: Path
    log_path: Path


@runtime_checkable
class ClusterEngine(Engine, Protocol):
    """An engine of many machines, whose work outlives the process that asked for it.

    A job is measured on one of its hosts, which are told apart by name.
    """

    def room(self) -> Room:
        """Return what is there and what is free; asked often, so it must not wait for anything."""
        ...

    def reattach(self, orphan: Orphan, done: Callable[[BuildDone | RunDone], None]) -> None:
        """Take over work under way; ``done`` follows, with a transient failure if it is lost."""
        ...

    def recorded(self, work_id: str) -> None:
        """Take note that a result is stored for good: until then it is kept where it was made."""
        ...

    def let_go(self, work_id: str) -> None:
        """Care about a build or run no more, without ending it: it is somebody else's now."""
        ...

    def detach(self) -> None:
        """Close without cancelling: what is under way goes on, for whoever reattaches to it."""
        ...


class ArtifactStore(Protocol):
    """Content-addressed files: wheels, logs, artifacts."""

    def put(self, path: Path, *, keep_copy: bool = True) -> str:
        """Copy a file in, whole or not at all; return its key (``sha256/ab/cdef…``).

        Args:
            keep_copy: it will soon be wanted on this machine.
        """
        ...

    def fetch(self, key: str) -> Path:
        """Return a local path of the content, verified.

        Raises:
            NotFoundError: no such key.
            DamagedError: the content does not match its key.
            TransientError: it can't be read.
        """
        ...

    def exists(self, key: str) -> bool:
        """Return whether the content is there."""
        ...
