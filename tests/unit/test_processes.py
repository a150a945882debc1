"""perfbisect.processes: real processes, no pretence."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from pathlib import Path

import psutil
import pytest
from tests.helpers.waiting import until

from perfbisect.errors import BadInputError
from perfbisect.ports import CancelToken
from perfbisect.processes import MARKER, Limits, ProcessResult, kill_leftovers, run_process

ENV = {"PATH": os.environ["PATH"]}


def sh(script: str, tmp_path: Path, **options: object) -> ProcessResult:
    chosen: dict[str, object] = {
        "cwd": tmp_path,
        "env": ENV,
        "timeout": 60.0,
        "cancel": CancelToken(),
        "marker": f"test-{uuid.uuid4().hex}",
        "log_path": tmp_path / "log",
        **options,
    }
    return run_process(["/bin/sh", "-c", script], **chosen)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(path: Path) -> str:
    until(lambda: path.exists() and path.read_text().strip() != "", f"text in {path.name}")
    return path.read_text()


def test_output_and_status(tmp_path: Path) -> None:
    """Both streams land in the log in order, and the exit status comes back."""
    result = sh("echo out; echo err >&2; exit 7", tmp_path)
    assert (result.returncode, result.ok) == (7, False)
    assert (tmp_path / "log").read_text() == result.tail == "out\nerr\n"


def test_log_is_appended(tmp_path: Path) -> None:
    """A second command continues the log of the first."""
    sh("echo one", tmp_path)
    sh("echo two", tmp_path)
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_environment_is_exact(tmp_path: Path) -> None:
    """The program sees the given environment and the marker, nothing of ours."""
    result = run_process(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"],
        cwd=tmp_path,
        env={"LC_ALL": "C"},
        timeout=60,
        cancel=CancelToken(),
        marker="test-environment",
    )
    assert result.tail.strip() == "['LC_ALL', 'PERFBISECT_WORK']"


def test_missing_program_answers_like_a_shell(tmp_path: Path) -> None:
    """A program that does not exist is status 127 with its name in the log."""
    result = run_process(
        ["no-such-program-here"],
        cwd=tmp_path,
        env=ENV,
        timeout=60,
        cancel=CancelToken(),
        marker="test-missing",
        log_path=tmp_path / "log",
    )
    assert result.returncode == 127
    assert "no-such-program-here" in (tmp_path / "log").read_text()


def test_log_streams_while_it_runs(tmp_path: Path) -> None:
    """A line is in the log file while the program still waits for us to have read it."""
    cancel = CancelToken()
    seen: list[ProcessResult] = []
    script = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second"
    thread = threading.Thread(target=lambda: seen.append(sh(script, tmp_path, cancel=cancel)))
    thread.start()
    assert wait_for(tmp_path / "log") == "first\n"
    (tmp_path / "go").touch()
    thread.join()
    assert seen[0].ok
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_log_is_bounded_but_the_tail_is_the_end(tmp_path: Path) -> None:
    """Past its limit the log says it is truncated, the program goes on, the tail is the last."""
    result = sh("yes 0123456789 | head -n 100000; echo the end", tmp_path, log_limit=1000)
    log = (tmp_path / "log").read_text()
    assert result.ok
    assert log.startswith("0123456789\n")
    assert "[log truncated here" in log
    assert len(log) < 1100
    assert result.tail.endswith("the end\n")


def test_sink_gets_everything(tmp_path: Path) -> None:
    """The sink receives every byte, also past the log's limit."""
    chunks: list[bytes] = []
    sh("yes 0123456789 | head -n 50000", tmp_path, log_limit=10, sink=chunks.append)
    assert b"".join(chunks) == b"0123456789\n" * 50000


def test_full_disk_for_the_log_is_reported(tmp_path: Path) -> None:
    """A log that can't be written does not stop the program; the result says so."""
    result = sh("echo hello", tmp_path, log_path=Path("/dev/full"))
    assert result.returncode == 0
    assert "No space left" in result.log_error


def test_timeout_kills_children(tmp_path: Path) -> None:
    """On timeout a child of a child is gone too, before the call returns."""
    result = sh("sh -c 'sleep 600 & echo $! > pid; wait' & wait", tmp_path, timeout=1.0, grace=0.2)
    assert result.timed_out
    assert not result.ok
    assert not alive(int((tmp_path / "pid").read_text()))


ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid.tmp", "w").write(str(os.getpid()))
        os.rename("pid.tmp", "pid")
        time.sleep(600)
    os._exit(0)
os.wait()
if "stay" in sys.argv:
    time.sleep(600)
while not os.path.exists("pid"):
    time.sleep(0.01)
"""


def test_cancel_kills_an_escaped_daemon(tmp_path: Path) -> None:
    """A daemon that forked twice into its own session is found by its marker and killed."""
    cancel = CancelToken()
    results: list[ProcessResult] = []

    def run() -> None:
        results.append(
            run_process(
                [sys.executable, "-c", ESCAPE, "stay"],
                cwd=tmp_path,
                env=ENV,
                timeout=60,
                cancel=cancel,
                marker=f"test-{uuid.uuid4().hex}",
                grace=0.0,
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    daemon = int(wait_for(tmp_path / "pid"))
    assert alive(daemon)
    cancel.cancel()
    thread.join()
    assert results[0].cancelled
    assert not alive(daemon)


def test_normal_end_leaves_no_daemon(tmp_path: Path) -> None:
    """A daemon left behind by a program that ended well is killed as well."""
    result = run_process(
        [sys.executable, "-c", ESCAPE],
        cwd=tmp_path,
        env=ENV,
        timeout=60,
        cancel=CancelToken(),
        marker=f"test-{uuid.uuid4().hex}",
    )
    assert result.ok
    assert not alive(int((tmp_path / "pid").read_text()))


def test_children_can_be_kept_and_collected(tmp_path: Path) -> None:
    """With keep_children the daemon survives its program and ends with kill_leftovers."""
    marker = f"test-{uuid.uuid4().hex}"
    run_process(
        [sys.executable, "-c", ESCAPE],
        cwd=tmp_path,
        env=ENV,
        timeout=60,
        cancel=CancelToken(),
        marker=marker,
        keep_children=True,
    )
    daemon = int((tmp_path / "pid").read_text())
    assert alive(daemon)
    assert kill_leftovers(marker[:-3]) == 1
    assert not alive(daemon)


def test_an_orphan_without_the_marker_is_known_by_its_session(tmp_path: Path) -> None:
    """A child that cleared its environment but kept the session is killed with the tree."""
    result = sh("env -i sleep 600 & echo $! > pid", tmp_path)
    assert result.ok
    assert not alive(int((tmp_path / "pid").read_text()))


def test_leftovers_spare_ourselves(tmp_path: Path) -> None:
    """kill_leftovers run inside marked work kills its siblings, not itself nor its parents."""
    marker = f"test-{uuid.uuid4().hex}"
    script = (
        f"import os; from perfbisect.processes import kill_leftovers; "
        f"print(kill_leftovers({marker!r}), os.environ[{MARKER!r}] == {marker!r})"
    )
    result = sh(f'sleep 600 & "{sys.executable}" -c "{script}"', tmp_path, marker=marker)
    assert result.tail == "1 True\n"


def test_empty_prefix_is_refused() -> None:
    """An empty prefix would name everybody's processes."""
    with pytest.raises(BadInputError, match="empty"):
        kill_leftovers("")


def test_memory_limit_holds(tmp_path: Path) -> None:
    """A program that wants more address space than its limit fails by itself."""
    result = run_process(
        [sys.executable, "-c", "bytearray(10**9); print('got it')"],
        cwd=tmp_path,
        env=ENV,
        timeout=60,
        cancel=CancelToken(),
        marker="test-limits",
        limits=Limits(memory=500 * 1024 * 1024),
    )
    assert result.returncode != 0
    assert "MemoryError" in result.tail


def test_closed_output_does_not_end_the_wait(tmp_path: Path) -> None:
    """A program that closes its output and works on is waited for."""
    result = sh("exec >/dev/null 2>&1; sleep 0.5; echo done > ended", tmp_path)
    assert result.ok
    assert (tmp_path / "ended").exists()


def test_a_program_that_never_stops_printing_is_stopped(tmp_path: Path) -> None:
    """Endless output does not keep the deadline from being seen."""
    result = sh("yes", tmp_path, timeout=0.5, grace=0.0, log_limit=100)
    assert result.timed_out
