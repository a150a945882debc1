"""The one place that runs a process tree: streams its output, bounds it, and leaves nothing behind.

Everything started here carries the environment variable ``PERFBISECT_WORK``, so that even a process
that forked twice into a session of its own is found again, also after perfbisect itself was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

from perfbisect.errors import BadInputError, TransientError
from perfbisect.overruns import KEEP_FREE, MOST_PROCESSES, CrowdGuard, DiskGuard, Overrun
from perfbisect.ports import CancelToken
from perfbisect.process_output import LOG_LIMIT, POLL_SECONDS, ProcessOutput

#: Environment variable that marks every process of a piece of work.
MARKER = "PERFBISECT_WORK"
#: Seconds that killed processes get to disappear before we give up on them.
KILL_DEADLINE = 30.0
#: From so many processes on, all are stopped before any is killed.
_MANY = 50


class _End(Enum):
    """Why the wait for a program was over."""

    ENDED = "ended"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    DISK_FULL = "disk full"
    CROWDED = "too many processes"
    RAISED = "raised"


_OVERRUNS = {_End.DISK_FULL: Overrun.DISK, _End.CROWDED: Overrun.PROCESSES}


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of each process of a tree; zero means unlimited."""

    #: Bytes of address space.
    memory: int = 0
    #: Bytes of the largest file it may write.
    file_size: int = 0
    open_files: int = 0

    def command_prefix(self) -> list[str]:
        """Return the ``prlimit`` command that sets the limits before the program starts.

        Raises:
            BadInputError: limits are asked for where ``prlimit`` is not installed.
        """
        chosen = [
            f"--{option}={value}"
            for option, value in (
                ("as", self.memory),
                ("fsize", self.file_size),
                ("nofile", self.open_files),
            )
            if value
        ]
        if not chosen:
            return []
        program = shutil.which("prlimit")
        if program is None:
            raise BadInputError("limits need the program 'prlimit' (package util-linux)")
        return [program, *chosen, "--"]


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a process tree ended. Nothing of it is left when this is returned."""

    #: Exit status; ``-N``: killed by signal N; 127: no such program; 126: it can't be executed.
    returncode: int
    seconds: float
    timed_out: bool
    cancelled: bool
    #: Last part of the output, at most 64 KiB of it.
    tail: str
    #: Why the log file could not be written in full (for example a full disk); empty: it could.
    log_error: str = ""
    #: What the tree took too much of, and was killed for; None: nothing.
    overrun: Overrun | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit status 0."""
        ended = self.timed_out or self.cancelled or self.overrun is not None
        return self.returncode == 0 and not ended


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    cancel: CancelToken,
    marker: str,
    log_path: Path | None = None,
    sink: Callable[[bytes], None] | None = None,
    limits: Limits | None = None,
    log_limit: int = LOG_LIMIT,
    grace: float = 2.0,
    keep_children: bool = False,
    keep_free: int = KEEP_FREE,
    most_processes: int = MOST_PROCESSES,
) -> ProcessResult:
    """Run a program in a new session until its whole process tree is gone.

    Works from any thread. Standard output and error go, as they come, to the end of ``log_path``
    and to ``sink``; standard input is empty.

    Args:
        argv: program and arguments.
        cwd: working directory.
        env: the whole environment, to which only the marker is added.
        timeout: seconds until the tree is killed.
        cancel: asks for the tree to be killed.
        marker: name of this piece of work, unique among those running.
        log_path: file to append to; at most ``log_limit`` bytes, then a notice.
        sink: called with each chunk of output, unbounded.
        limits: resource limits of each process.
        log_limit: bytes written to ``log_path`` at most.
        grace: seconds between SIGTERM and SIGKILL on timeout and cancel.
        keep_children: leave processes running that outlive the program (a Bazel server between
            two commands); the caller ends them with ``kill_leftovers(marker)``.
        keep_free: bytes that must stay free where ``cwd`` is; with less, the tree is killed.
        most_processes: processes that the tree may have; with more, it is killed.

    Raises:
        TransientError: a killed process does not go away.
    """
    output = ProcessOutput(log_path, sink, log_limit)
    started = time.monotonic()
    command = [*(limits.command_prefix() if limits else []), *argv]
    try:
        process = _start(command, cwd, {**env, MARKER: marker})
    except OSError as error:
        return _not_started(output, command[0], error)
    tree = _Tree(process, marker)
    disk, crowd = DiskGuard([cwd], keep_free), CrowdGuard(tree.count, most_processes)

    def must_end() -> _End | None:
        if cancel.cancelled:
            return _End.CANCELLED
        if time.monotonic() >= started + timeout:
            return _End.TIMED_OUT
        if disk.full():
            return _End.DISK_FULL
        return _End.CROWDED if crowd.crowded() else None

    end = _until_gone(process, tree, output, started + timeout, must_end, grace, keep_children)
    return ProcessResult(
        returncode=process.returncode,
        seconds=time.monotonic() - started,
        timed_out=end is _End.TIMED_OUT,
        cancelled=end is _End.CANCELLED,
        tail=output.tail,
        log_error=output.error,
        overrun=_OVERRUNS.get(end),
    )


def kill_leftovers(prefix: str) -> int:
    """Kill every process whose marker starts with ``prefix``, and wait until they are gone.

    For recovery after perfbisect was killed. Neither this process nor its ancestors are touched.

    Returns:
        How many processes were killed.

    Raises:
        BadInputError: the prefix is empty, which would name everybody's work.
        TransientError: a killed process does not go away.
    """
    if not prefix:
        raise BadInputError("prefix of leftovers is empty", field="prefix", value=prefix)
    return _kill_until_gone(lambda: _marked(prefix, whole=False))


def _start(command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _not_started(output: ProcessOutput, program: str, error: OSError) -> ProcessResult:
    """Answer as a shell does when a program can't be started."""
    output.write(f"{program}: {error.strerror}\n".encode())
    output.close()
    code = 127 if isinstance(error, FileNotFoundError) else 126
    return ProcessResult(code, 0.0, False, False, output.tail, output.error)


def _until_gone(
    process: subprocess.Popen[bytes],
    tree: _Tree,
    output: ProcessOutput,
    deadline: float,
    must_end: Callable[[], _End | None],
    grace: float,
    keep_children: bool,
) -> _End:
    """Follow a program, and whatever happens, leave only what is to be kept of its tree."""
    end = _End.RAISED
    try:
        end = _follow(process, tree, output, deadline, must_end)
    finally:
        try:
            if end is not _End.ENDED:
                # What forks without end is not asked: each moment makes it more.
                patience = 0.0 if end is _End.CROWDED else grace
                tree.terminate(patience, output.drain_from(process))
            if end is not _End.ENDED or not keep_children:
                tree.kill()
            output.drain_from(process)(0.0)
        finally:
            _close(process, output)
    return end


def _close(process: subprocess.Popen[bytes], output: ProcessOutput) -> None:
    """Collect the program's status and let go of its pipe and of the log."""
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    output.close()


def _follow(
    process: subprocess.Popen[bytes],
    tree: _Tree,
    output: ProcessOutput,
    deadline: float,
    must_end: Callable[[], _End | None],
) -> _End:
    """Copy output until the program ends or must end."""
    drain = output.drain_from(process)
    while process.poll() is None:
        if (end := must_end()) is not None:
            return end
        drain(min(POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))
        tree.remember()
    return _End.ENDED


class _Tree:
    """The processes that belong to one program: descendants, its session, and all marked ones."""

    #: Seconds after the start at which descendants are noted down, then every last one of these.
    _SCHEDULE = (0.2, 0.5, 1.0, 2.0, 5.0)

    def __init__(self, process: subprocess.Popen[bytes], marker: str) -> None:
        self._process = process
        self._marker = marker
        self._known: set[psutil.Process] = set()
        self._started = time.monotonic()
        self._looks = 0

    def remember(self) -> None:
        """Note descendants now and then: who clears its environment and escapes is still known.

        Seldom, because looking costs the benchmark that runs beside it.
        """
        steps = len(self._SCHEDULE)
        due = self._SCHEDULE[min(self._looks, steps - 1)]
        due += max(0, self._looks - steps + 1) * self._SCHEDULE[-1]
        if time.monotonic() - self._started >= due:
            self._looks += 1
            self._known |= set(self._descendants())

    def terminate(self, grace: float, drain: Callable[[float], None]) -> None:
        """Ask the program's group to end, and give it ``grace`` seconds."""
        self._known |= set(self._descendants())
        if grace <= 0:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        end = time.monotonic() + grace
        while self._process.poll() is None and time.monotonic() < end:
            drain(POLL_SECONDS)

    def count(self) -> int:
        """Return how many processes there are."""
        return len(self._left())

    def kill(self) -> None:
        """Kill everything that is left, and wait until it is gone."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        _kill_until_gone(self._left)

    def _left(self) -> list[psutil.Process]:
        found = {*self._known, *self._descendants(), *_marked(self._marker, whole=True)}
        found |= set(_in_session(self._process.pid))
        return [process for process in found if _alive(process)]

    def _descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _kill_until_gone(find: Callable[[], list[psutil.Process]]) -> int:
    """Kill what ``find`` returns until it returns nothing; a fork may outrun one round."""
    killed: set[psutil.Process] = set()
    deadline = time.monotonic() + KILL_DEADLINE
    while left := find():
        if len(left) > _MANY:
            # Stopped first: what forks while others are killed would never come to an end.
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        killed |= set(left)
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in left)
            raise TransientError(f"processes {pids} were killed but do not go away")
        psutil.wait_procs(left, timeout=POLL_SECONDS)
    return len(killed)


def _marked(marker: str, *, whole: bool) -> list[psutil.Process]:
    """Return the processes that carry the marker (or start with it), never us or our parents."""
    wanted = f"{MARKER}={marker}".encode() + (b"\0" if whole else b"")
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for pid in psutil.pids():
        if pid in spared:
            continue
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue  # gone meanwhile, or another user's
        if environ.startswith(wanted) or b"\0" + wanted in environ:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
    return [process for process in found if _alive(process)]


def _in_session(session: int) -> list[psutil.Process]:
    """Return the processes of a session: orphans that never left it."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(pid) == session:
                found.append(psutil.Process(pid))
    return found


def _alive(process: psutil.Process) -> bool:
    """Return whether it still runs; a zombie only waits for its parent, and can't be killed."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
