"""The engine of this machine: builds and runs in threads, never both at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from perfbisect.engines.failing import failure_of
from perfbisect.ports import (
    BuildDone,
    Builder,
    BuildRequest,
    BuildSuccess,
    CancelledWork,
    CancelToken,
    Failure,
    HostInfo,
    RunDone,
    Runner,
    RunRequest,
    RunSuccess,
)

_T = TypeVar("_T")

log = logging.getLogger(__name__)

#: Seconds between two tries for the machine's lock.
_LOCK_POLL = 0.1


def machine_lock_path() -> Path:
    """Return the file whose lock says who may use this machine: one for all data directories."""
    return Path(tempfile.gettempdir()) / "perfbisect-machine.lock"


@contextlib.contextmanager
def machine_lock(path: Path, cancel: CancelToken, *, exclusive: bool) -> Iterator[None]:
    """Hold the machine: shared by builds, alone for a run, also between processes.

    Whoever waits stands at a gate that lets one in at a time, so that a stream of builds can't keep
    a run waiting for ever. The kernel drops both locks when their holder dies.

    Raises:
        CancelledWork: the token asked for the end while waiting.
    """
    with contextlib.ExitStack() as held:
        machine = _open_lock(path, held)
        with contextlib.ExitStack() as waiting:
            _flock(_open_lock(path.with_name(f"{path.name}.gate"), waiting), fcntl.LOCK_EX, cancel)
            _flock(machine, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, cancel)
        yield


def _open_lock(path: Path, held: contextlib.ExitStack) -> int:
    """Return a descriptor of the file; closing it drops its lock."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        handle = os.open(path, flags | os.O_CREAT, 0o666)
    held.callback(os.close, handle)
    return handle


def _flock(handle: int, wanted: int, cancel: CancelToken) -> None:
    while True:
        try:
            fcntl.flock(handle, wanted | fcntl.LOCK_NB)
        except BlockingIOError:
            if cancel.wait(_LOCK_POLL):
                raise CancelledWork from None
        else:
            return


class LocalEngine:
    """Carries out work on this machine. Implements ``ports.Engine``."""

    exclusive = True

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        host: HostInfo,
        *,
        slots: int = 1,
        lock_path: Path | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the engine of this machine.

        Args:
            builder: builds, in ``slots`` threads.
            runner: runs, in one thread.
            host: what this machine is called.
            slots: builds at once.
            lock_path: file whose lock says who may use the machine; None: one for all.
            on_close: called when nothing is under way any more.
        """
        self._builder = builder
        self._runner = runner
        self._host = host
        self._slots = slots
        self._lock_path = lock_path or machine_lock_path()
        self._on_close = on_close
        self._builds = ThreadPoolExecutor(slots, thread_name_prefix="build")
        self._runs = ThreadPoolExecutor(1, thread_name_prefix="run")
        self._tokens: dict[str, CancelToken] = {}
        self._guard = threading.Lock()

    def hosts(self) -> Sequence[HostInfo]:
        """Return this machine."""
        return (self._host,)

    def build_slots(self) -> int:
        """Return how many builds may go on at once."""
        return self._slots

    def submit_build(self, request: BuildRequest, done: Callable[[BuildDone], None]) -> None:
        """Start a build as soon as a slot is free."""
        token = self._token(request.id)

        def work() -> None:
            def build() -> BuildSuccess | Failure:
                with machine_lock(self._lock_path, token, exclusive=False):
                    return self._builder.build(request, token)

            done(BuildDone(request.id, self._guarded(build, request.id)))

        self._builds.submit(work)

    def submit_run(self, request: RunRequest, done: Callable[[RunDone], None]) -> None:
        """Start a run as soon as the machine is free."""
        token = self._token(request.id)

        def work() -> None:
            def run() -> RunSuccess | Failure:
                with machine_lock(self._lock_path, token, exclusive=True):
                    return self._runner.run(request, token)

            done(RunDone(request.id, self._guarded(run, request.id)))

        self._runs.submit(work)

    def cancel(self, work_id: str) -> None:
        """Ask a build or run to end."""
        with self._guard:
            token = self._tokens.get(work_id)
        if token is not None:
            token.cancel()

    def close(self) -> None:
        """Cancel everything and wait until it is gone."""
        with self._guard:
            tokens = list(self._tokens.values())
        for token in tokens:
            token.cancel()
        self._builds.shutdown(wait=True)
        self._runs.shutdown(wait=True)
        self._on_close()

    def _token(self, work_id: str) -> CancelToken:
        token = CancelToken()
        with self._guard:
            self._tokens[work_id] = token
        return token

    def _guarded(self, work: Callable[[], _T], work_id: str) -> _T | Failure | None:
        """Return the result; None when cancelled; a failure of ours for an unforeseen error."""
        try:
            with self._guard:
                token = self._tokens[work_id]
            return None if token.cancelled else work()
        except CancelledWork:
            return None
        except Exception as error:
            log.exception("unforeseen error in %s", work_id)
            return failure_of(error)
        finally:
            with self._guard:
                self._tokens.pop(work_id, None)
