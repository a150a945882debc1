"""What works on a host of the cluster: builds and runs as the local engine does, and keeps results.

It is a Ray actor that outlives the server, but knows nothing of Ray. Results stay on the host's
disk until somebody says that they are recorded, so that they outlive the actor too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from filelock import FileLock

from perfbisect.builder import remove_leftovers
from perfbisect.engines.failing import failure_of
from perfbisect.engines.local import LocalEngine
from perfbisect.engines.ray_messages import (
    Delivery,
    FileInfo,
    MirrorState,
    Result,
    WorkReport,
)
from perfbisect.engines.ray_shipping import Parcels, mirror_state, unpack, untar
from perfbisect.errors import PerfbisectError
from perfbisect.ports import (
    BuildDone,
    Builder,
    BuildRequest,
    BuildSuccess,
    HostInfo,
    RunDone,
    Runner,
    RunRequest,
    RunSuccess,
)
from perfbisect.runner import host_facts
from perfbisect.services import open_artifacts
from perfbisect.settings import Settings
from perfbisect.store.artifacts import key_of, sha256_of

log = logging.getLogger(__name__)

#: Makes builder and runner of a host: ``module:function`` that takes the host's settings.
PARTS = "perfbisect.wiring:make_parts"
#: Bytes of a log in one report.
_LOG_PIECE = 1 << 20
#: Seconds between two looks at the logs.
_LOOK = 0.1
#: Seconds that an agent before this one gets to be gone.
_PATIENCE = 60.0
#: Seconds that a result is kept for somebody who would record it.
_KEEP = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class Kept:
    """How a piece of work ended, on disk."""

    result: Result
    files: Mapping[str, FileInfo]


#: Stands for work that is not known.
_NOTHING = Kept(None, {})


class AgentError(Exception):
    """An agent can't do what it was asked for; its one argument is the failure.

    Our own errors don't all survive the journey: they are made from more than a message.
    """


_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def _answering(method: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
    """Make a method raise errors that can travel."""

    @functools.wraps(method)
    def answered(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Answer:
        try:
            return method(*args, **kwargs)
        except (PerfbisectError, OSError) as error:
            raise AgentError(failure_of(error)) from None

    return answered


class HostAgent:
    """Builds and runs on this machine for whoever asks. Its methods are called from any thread."""

    def __init__(
        self, name: str, pool: str, slots: int, *, shared: bool = False, parts: str = PARTS
    ) -> None:
        """Make the agent of a host; ends what an agent before it left running.

        Args:
            name: of the host.
            pool: that it belongs to; empty: none.
            slots: builds at once; 0: none, ever.
            shared: builds and runs may go on at the same time.
            parts: what makes builder and runner.
        """
        settings = Settings()
        self._settings = settings
        self._name = name
        self._root = agent_root(settings, name)
        for part in ("work", "logs", "done", "started", "benchmarks"):
            (self._root / part).mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self._root / "lock")
        self._lock.acquire(timeout=_PATIENCE)
        clean_started(self._root, settings.docker_host)
        self._parcels = Parcels(self._root / "parcels")
        self._news = threading.Condition()
        self._starts = 0
        self._used_at = time.monotonic()
        #: None: it is under way.
        self._work: dict[str, Kept | None] = {}
        self._unwanted: set[str] = set()
        for path in list((self._root / "done").glob("*.pickle")):
            if time.time() - path.stat().st_mtime > _KEEP:
                self.forget(path.stem)
            else:
                self._work[path.stem] = self._read(path.stem)
        module, _, function = parts.partition(":")
        make: Callable[[Settings], tuple[Builder, Runner]]
        make = getattr(importlib.import_module(module), function)
        builder, runner = make(settings)
        host = HostInfo(name, pool)
        # Two engines exclude each other by the machine's lock, unless each has its own.
        own = self._root / "builds.lock" if shared else None
        close = getattr(builder, "close", lambda: None)
        self._builds = LocalEngine(
            builder, runner, host, slots=max(slots, 1), lock_path=own, on_close=close
        )
        alone = self._root / "runs.lock" if shared else None
        self._runs = LocalEngine(builder, runner, host, lock_path=alone)
        self._mirrors = threading.Lock()

    def about(self) -> dict[str, Any]:
        """Return the facts of this machine."""
        return host_facts()

    def close(self) -> None:
        """Cancel everything and wait until it is gone."""
        self._builds.close()
        self._runs.close()
        self._lock.release()

    # ------------------------------------------------------------------ what is needed first

    @_answering
    def needs(self, sha256: str) -> bool:
        """Return whether a file has to be sent: it is neither here nor in a shared store."""
        if not self._parcels.has(sha256) and not self._fetch_shared(sha256):
            return True
        self._make_room(sha256)
        return False

    @_answering
    def add(self, sha256: str, sender: str, offset: int, data: bytes) -> None:
        """Take a piece of a file; ``sender`` tells its pieces from another's."""
        self._parcels.add(sha256, sender, offset, data)

    @_answering
    def seal(self, sha256: str, sender: str) -> None:
        """Check a file that has arrived whole.

        Raises:
            TransientError: it is damaged.
        """
        self._parcels.seal(sha256, sender)
        self._make_room(sha256)

    def _make_room(self, needed: str) -> None:
        for gone in self._parcels.keep_below(self._settings.wheel_cache_size, needed):
            shutil.rmtree(self._root / "wheels" / gone, ignore_errors=True)

    def _fetch_shared(self, sha256: str) -> bool:
        """Take a file from the artifact store that this host shares with the server, if any."""
        if not self._settings.artifacts:
            return False
        try:
            self._parcels.put(sha256, open_artifacts(self._settings).fetch(key_of(sha256)))
        except PerfbisectError as error:
            log.info("%s is not in the shared store: %s", sha256, error)
            return False
        return True

    @_answering
    def mirror_state(self, name: str) -> MirrorState:
        """Return what is here of a repository."""
        return mirror_state(self._mirror(name))

    @_answering
    def deliver(self, delivery: Delivery) -> None:
        """Put a pack that has arrived into its mirror."""
        pack = self._parcels.path(delivery.parcel)
        with self._mirrors:
            unpack(self._mirror(delivery.name), delivery, pack)
        pack.unlink(missing_ok=True)

    def _mirror(self, name: str) -> Path:
        return self._root / "mirrors" / Path(name).name

    # ------------------------------------------------------------------ work

    @_answering
    def build(self, request: BuildRequest) -> None:
        """Begin a build; one that is known already is not begun again."""
        if self._begin(request.id):
            mirror = self._mirror(request.mirror.name)
            self._builds.submit_build(
                replace(request, mirror=mirror, **self._places(request.id)), self._build_ended
            )

    @_answering
    def run(self, request: RunRequest, files: str) -> None:
        """Begin a run; one that is known already is not begun again.

        Args:
            files: parcel with the benchmark's files; empty: it has none.
        """
        if not self._begin(request.id):
            return
        companions = tuple(
            replace(each, mirror=self._mirror(each.mirror.name)) for each in request.companions
        )
        here = replace(
            request,
            wheel=request.wheel if request.published else self._wheel(request),
            benchmark_dir=self._benchmark(files),
            companions=companions,
            **self._places(request.id),
        )
        self._runs.submit_run(here, self._run_ended)

    def cancel(self, work_id: str) -> None:
        """Ask a build or run to end."""
        self._builds.cancel(work_id)
        self._runs.cancel(work_id)

    def forget(self, work_id: str) -> None:
        """Remove what a build or run left here: it is stored elsewhere, or wanted by nobody."""
        with self._news:
            if self._work.get(work_id, _NOTHING) is None:
                self._unwanted.add(work_id)
                return
            self._work.pop(work_id, None)
        self._done(work_id).unlink(missing_ok=True)
        self._log(work_id).unlink(missing_ok=True)
        shutil.rmtree(self._root / "work" / work_id, ignore_errors=True)

    def unrecorded(self) -> list[str]:
        """Return what is under way, or ended without anybody having recorded it."""
        with self._news:
            return sorted(self._work)

    def idle_seconds(self) -> float:
        """Return for how long nothing was under way and nobody asked for anything."""
        with self._news:
            busy = any(kept is None for kept in self._work.values())
            return 0.0 if busy else time.monotonic() - self._used_at

    def poll(self, wanted: Mapping[str, int], patience: float) -> dict[str, WorkReport]:
        """Return what there is to tell, as soon as there is something.

        Args:
            wanted: id of a build or run -> bytes of its log that are known.
            patience: seconds after which nothing is an answer too. It is one at once when other
                work begins meanwhile.
        """
        end = time.monotonic() + patience
        with self._news:
            starts = self._starts
            while True:
                self._used_at = time.monotonic()
                told = dict(self._telling(wanted))
                if told or self._starts != starts or time.monotonic() >= end:
                    return told
                self._news.wait(_LOOK)

    @_answering
    def read(self, work_id: str, name: str, offset: int, size: int) -> bytes:
        """Return a piece of a file that work left."""
        with self._news:
            kept = self._work[work_id]
        if kept is None:
            return b""
        with kept.files[name].path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def _telling(self, wanted: Mapping[str, int]) -> Iterator[tuple[str, WorkReport]]:
        for work_id, offset in wanted.items():
            if work_id not in self._work:
                yield work_id, WorkReport(known=False)
                continue
            # Looked at before the log: what is written before the end is told before it.
            kept = self._work[work_id]
            log = self._log_after(work_id, offset)
            whole = kept is not None and len(log) < _LOG_PIECE
            if kept is not None and whole:
                yield work_id, WorkReport(True, log, True, kept.result, kept.files)
            elif log:
                yield work_id, WorkReport(True, log)

    def _log_after(self, work_id: str, offset: int) -> bytes:
        try:
            with self._log(work_id).open("rb") as log:
                log.seek(offset)
                return log.read(_LOG_PIECE)
        except FileNotFoundError:
            return b""

    def _begin(self, work_id: str) -> bool:
        with self._news:
            if work_id in self._work:
                return False
            (self._root / "started" / work_id).touch()
            (self._root / "work" / work_id).mkdir(parents=True, exist_ok=True)
            self._work[work_id] = None
            self._starts += 1
            self._news.notify_all()
        return True

    def _places(self, work_id: str) -> dict[str, Any]:
        return {
            "work_dir": self._root / "work" / work_id,
            "log_path": self._log(work_id),
            "cache_dir": self._settings.cache_dir,
        }

    def _wheel(self, request: RunRequest) -> Path:
        """Return a wheel under its own name, which pip reads."""
        named = self._root / "wheels" / request.wheel_sha256 / request.wheel.name
        if not named.exists():
            named.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                named.hardlink_to(self._parcels.path(request.wheel_sha256))
        return named

    def _benchmark(self, parcel: str) -> Path:
        """Return a directory with a benchmark's files."""
        target = self._root / "benchmarks" / (parcel or "none")
        if not target.is_dir():
            partial = target.with_suffix(f".{threading.get_ident()}")
            partial.mkdir(parents=True)
            if parcel:
                untar(self._parcels.path(parcel).read_bytes(), partial)
            with contextlib.suppress(OSError):
                partial.rename(target)
        return target

    def _build_ended(self, news: BuildDone) -> None:
        files = {}
        if isinstance(news.result, BuildSuccess):
            result = news.result
            environment = {**result.environment, "host": self._name}
            news = replace(news, result=replace(result, environment=environment))
            files["wheel"] = FileInfo(result.path, result.sha256, result.size)
        self._keep(news.id, news.result, files)

    def _run_ended(self, news: RunDone) -> None:
        files = {}
        if isinstance(news.result, RunSuccess):
            for name, path in news.result.artifacts.items():
                files[name] = FileInfo(path, sha256_of(path), path.stat().st_size)
        self._keep(news.id, news.result, files)

    def _keep(self, work_id: str, result: Result, files: Mapping[str, FileInfo]) -> None:
        """Write how work ended to disk, before anybody is told."""
        kept = Kept(result, files)
        partial = self._done(work_id).with_suffix(".part")
        partial.write_bytes(pickle.dumps(kept))
        partial.replace(self._done(work_id))
        (self._root / "started" / work_id).unlink(missing_ok=True)
        with self._news:
            self._work[work_id] = kept
            self._used_at = time.monotonic()
            unwanted = work_id in self._unwanted
            self._unwanted.discard(work_id)
            self._news.notify_all()
        if unwanted:
            self.forget(work_id)

    def _read(self, work_id: str) -> Kept:
        # Written by an agent of this host and this version: its directory is nobody else's.
        kept = pickle.loads(self._done(work_id).read_bytes())  # noqa: S301
        assert isinstance(kept, Kept)
        return kept

    def _done(self, work_id: str) -> Path:
        return self._root / "done" / f"{work_id}.pickle"

    def _log(self, work_id: str) -> Path:
        return self._root / "logs" / f"{work_id}.log"


def agent_root(settings: Settings, host: str) -> Path:
    """Return the directory that the agent of a host has for itself."""
    return settings.data_dir / "agents" / host


def clean_started(root: Path, docker_host: str = "") -> int:
    """End everything that an agent which is gone left running; return how much work that was."""
    left = [path.name for path in (root / "started").glob("*")]
    for work_id in left:
        remove_leftovers(work_id, docker_host)
        shutil.rmtree(root / "work" / work_id, ignore_errors=True)
        (root / "started" / work_id).unlink(missing_ok=True)
    return len(left)
