"""LocalRunner on real wheels, environments and processes; no package index is needed."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.helpers.running import failure, make_request, make_wheel, success

from perfbisect.core.recipe import Metric, ReaderKind, Take
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelledWork, CancelToken, RunRequest
from perfbisect.runner import LocalRunner, Shelves

FAST = {"tiny/__init__.py": "SPEED = 12.5\n"}
PRINT_SPEED = "import tiny\nprint('images/sec:', tiny.SPEED)\n"


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an index: what a test needs lies in ``links``."""
    links = tmp_path / "links"
    links.mkdir()
    config = tmp_path / "index.toml"
    config.write_text(f"[pip]\nno-index = true\nfind-links = ['{links}']\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(config))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "wheels", FAST)


def processes_of(request: RunRequest) -> list[int]:
    """Return the processes that carry the run's marker."""
    wanted = f"PERFBISECT_WORK={request.id}".encode()
    found = []
    for pid in psutil.pids():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environ.split(b"\0"):
            found.append(pid)
    return found


def test_a_value_and_its_circumstances(tmp_path: Path, wheel: Path) -> None:
    """A run gives the value, and records all it takes to understand it and to run it again."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, env={"MODE": "x"})
    result = success(LocalRunner().run(request, CancelToken()))
    assert result.value == 12.5
    assert result.within == (12.5,)
    assert not result.rejected
    environment = result.environment
    assert environment["packages"] == {"tiny": "1.0"}
    assert environment["wheel_sha256"] == request.wheel_sha256
    assert environment["command"][1:] == ["bench.py"]
    assert environment["variables"] == {"MODE": "x"}
    assert environment["host"]["kernel"] == os.uname().release
    assert environment["host"]["cores"] >= 1
    assert environment["observed"]["seconds"] > 0
    assert "images/sec: 12.5" in request.log_path.read_text()


def test_warm_up_is_dropped_and_the_series_kept(tmp_path: Path, wheel: Path) -> None:
    """``skip`` drops the first values, ``take`` picks of the others, which are kept in order."""
    program = "for v in (1, 5, 9, 7): print('images/sec:', v)\n"
    metric = Metric(pattern=r"^images/sec: (\S+)$", skip=1, take=Take.MAX)
    request = make_request(tmp_path, wheel, program, metric=metric)
    result = success(LocalRunner().run(request, CancelToken()))
    assert result.value == 9.0
    assert result.within == (5.0, 9.0, 7.0)


def test_environments_are_shared_by_runs(tmp_path: Path, wheel: Path) -> None:
    """The second run of a wheel installs nothing; another wheel gets another environment."""
    success(LocalRunner().run(make_request(tmp_path, wheel, PRINT_SPEED), CancelToken()))
    second = make_request(tmp_path, wheel, PRINT_SPEED, run="run-2")
    success(LocalRunner().run(second, CancelToken()))
    assert "tiny==1.0" in (tmp_path / "logs" / "run-1.log").read_text()
    assert "tiny==1.0" not in second.log_path.read_text()
    # The unpacked wheel is not kept a second time in the installer's cache.
    assert not list((tmp_path / "cache" / "uv").rglob("tiny/__init__.py"))
    slow = make_wheel(tmp_path / "other", {"tiny/__init__.py": "SPEED = 3\n"})
    third = make_request(tmp_path, slow, PRINT_SPEED, run="run-3")
    assert success(LocalRunner().run(third, CancelToken())).value == 3.0


def test_requirements_are_installed_and_recorded(tmp_path: Path, wheel: Path) -> None:
    """The benchmark's own requirements stand beside the wheel, and versions are recorded."""
    make_wheel(tmp_path / "links", {"helper.py": "X = 2\n"}, name="helper", version="0.3")
    program = "import helper, tiny\nprint('images/sec:', tiny.SPEED * helper.X)\n"
    request = make_request(tmp_path, wheel, program, requirements=("helper>=0.1",))
    result = success(LocalRunner().run(request, CancelToken()))
    assert result.value == 25.0
    assert result.environment["packages"] == {"tiny": "1.0", "helper": "0.3"}


def test_options_of_the_installation(tmp_path: Path, wheel: Path) -> None:
    """Options reach the installer, make another environment, and are recorded."""
    for version in ("0.3", "0.4"):
        make_wheel(tmp_path / "links", {"helper.py": ""}, name="helper", version=version)
    request = make_request(tmp_path, wheel, PRINT_SPEED, requirements=("helper",))
    lowest = replace(request, install_options=("--resolution", "lowest"))
    for asked, version in ((request, "0.4"), (lowest, "0.3")):
        environment = success(LocalRunner().run(asked, CancelToken())).environment
        assert environment["packages"]["helper"] == version
        assert environment["install_options"] == list(asked.install_options)


def test_nothing_of_the_user_reaches_the_benchmark(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables, HOME, current directory and site packages are the run's own."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    program = (
        "import json, os, sys\n"
        "assert 'SECRET_TOKEN' not in os.environ and 'PYTHONPATH' not in os.environ\n"
        "assert os.listdir() == ['bench.py'], os.listdir()\n"
        "assert os.listdir(os.environ['HOME']) == [] == os.listdir(os.environ['TMPDIR'])\n"
        "assert os.environ['MINE'] == '1'\n"
        "assert not any('perfbisect' in path for path in sys.path[1:]), sys.path\n"
        "print('images/sec: 1')\n"
    )
    request = make_request(tmp_path, wheel, program, env={"MINE": "1"})
    assert success(LocalRunner().run(request, CancelToken())).value == 1.0


def test_wheel_that_cannot_be_imported(tmp_path: Path) -> None:
    """A wheel whose module raises on import is broken for good, and the log says why."""
    broken = make_wheel(tmp_path / "wheels", {"tiny/__init__.py": "import libmissing\n"})
    failed = failure(LocalRunner().run(make_request(tmp_path, broken, PRINT_SPEED), CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert failed.cause == "the wheel can't be imported: import tiny"
    assert any("No module named 'libmissing'" in line for line in failed.lines)


def test_wheel_whose_dependencies_cannot_be_had(tmp_path: Path) -> None:
    """A wheel that wants what does not exist is broken for good; the benchmark is not blamed."""
    make_wheel(tmp_path / "links", {"helper.py": ""}, name="helper")
    lonely = make_wheel(tmp_path / "wheels", FAST, requires=["nowhere>=3"])
    request = make_request(tmp_path, lonely, PRINT_SPEED, requirements=("helper",))
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert any("nowhere" in line for line in failed.lines)


def test_requirements_that_cannot_be_met(tmp_path: Path, wheel: Path) -> None:
    """A requirement that can't be met even without the wheel is the benchmark's mistake."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, requirements=("nowhere==1",))
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert failed.cause == "the benchmark's requirements can't be installed: nowhere"


def test_no_way_to_the_index(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that can't be reached is worth another try."""
    monkeypatch.delenv("UV_CONFIG_FILE")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    request = make_request(tmp_path, wheel, PRINT_SPEED, requirements=("nowhere",))
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.TRANSIENT


def test_damaged_wheel(tmp_path: Path) -> None:
    """A file that is no wheel is broken for good."""
    junk = tmp_path / "tiny-1.0-py3-none-any.whl"
    junk.write_bytes(b"junk")
    failed = failure(LocalRunner().run(make_request(tmp_path, junk, PRINT_SPEED), CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert failed.cause == "the wheel can't be installed"


def test_wheel_for_another_machine(tmp_path: Path) -> None:
    """A wheel for a Python that is not here is said to be so, with the Pythons it is for."""
    foreign = make_wheel(tmp_path / "wheels", FAST, tag="cp399-cp399-manylinux_2_17_x86_64")
    failed = failure(LocalRunner().run(make_request(tmp_path, foreign, ""), CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert "is for cp399" in failed.cause


def test_benchmark_that_fails(tmp_path: Path, wheel: Path) -> None:
    """A non-zero status is what this revision does; the last 20 lines of output tell why."""
    program = "for i in range(30): print('line', i)\nraise SystemExit(3)\n"
    failed = failure(LocalRunner().run(make_request(tmp_path, wheel, program), CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert "status 3" in failed.cause
    assert failed.lines == tuple(f"line {i}" for i in range(10, 30))


def test_benchmark_that_crashes(tmp_path: Path, wheel: Path) -> None:
    """A crash is named by its signal."""
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"
    failed = failure(LocalRunner().run(make_request(tmp_path, wheel, program), CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert failed.cause == "crashed: SIGILL"
    assert "-march" in failed.advice


def test_benchmark_killed_from_outside(tmp_path: Path, wheel: Path) -> None:
    """A kill that was not ours is the host's trouble."""
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    failed = failure(LocalRunner().run(make_request(tmp_path, wheel, program), CancelToken()))
    assert failed.kind is FailureKind.TRANSIENT


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("for i in range(30): print('line', i)\n", "matches nothing in the output"),
        ("print('images/sec: nan')\n", "not a finite number"),
        ("print('images/sec: 0.0')\n", "which is zero"),
        ("print('images/sec: -3')\n", "which is negative"),
        ("print('images/sec: fast')\n", "which is not a number"),
    ],
)
def test_metric_that_cannot_be_right(tmp_path: Path, wheel: Path, program: str, says: str) -> None:
    """No value, or one that can't be measured, stops the request and shows what was printed."""
    failed = failure(LocalRunner().run(make_request(tmp_path, wheel, program), CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert says in failed.cause
    assert failed.lines
    assert len(failed.lines) <= 20
    assert failed.advice


def test_command_that_does_not_exist(tmp_path: Path, wheel: Path) -> None:
    """A program that isn't there is the benchmark's mistake."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, command="no-such-program {python}")
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert any("no-such-program" in line for line in failed.lines)


def test_unknown_placeholder(tmp_path: Path, wheel: Path) -> None:
    """A placeholder that can't be filled in is named, with those that can."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, command="{python} {artefact}")
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert "{artefact}" in failed.cause
    assert "did you mean 'artifact'" in failed.cause


def test_missing_benchmark_file(tmp_path: Path, wheel: Path) -> None:
    """A file of the benchmark that is gone is the request's mistake."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, files=("gone.py",))
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert "gone.py" in failed.cause


def test_hang_is_killed_with_its_children(tmp_path: Path, wheel: Path) -> None:
    """A hang is ended with all its processes; first tried again, then blamed on the wheel."""
    program = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "                 start_new_session=True)\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    request = make_request(tmp_path, wheel, program, timeout=5.0)
    first = failure(LocalRunner().run(request, CancelToken()))
    assert first.kind is FailureKind.TRANSIENT
    assert first.cause == "hung: killed after 5s"
    assert first.lines == ("started",)
    assert processes_of(request) == []
    second = failure(LocalRunner().run(request, CancelToken()))
    assert second.kind is FailureKind.PERMANENT
    assert "second time" in second.cause


def test_one_hang_is_forgiven(tmp_path: Path, wheel: Path) -> None:
    """A wheel that hung and then ran is not blamed for a hang much later."""
    program = (
        "import os, time\n"
        "time.sleep(600 if os.path.exists(os.environ['HANG']) else 0)\n"
        "print('images/sec: 1')\n"
    )
    flag = tmp_path / "hang"
    request = make_request(tmp_path, wheel, program, timeout=5.0, env={"HANG": str(flag)})
    for hangs in (True, False, True):
        flag.touch() if hangs else flag.unlink()
        result = LocalRunner().run(request, CancelToken())
        if hangs:
            assert failure(result).kind is FailureKind.TRANSIENT
        else:
            assert success(result).value == 1.0


def test_cancelled_run_leaves_nothing(tmp_path: Path, wheel: Path) -> None:
    """Cancelling ends the run's processes before the runner raises."""
    program = "import time\nprint('started', flush=True)\ntime.sleep(600)\n"
    request = make_request(tmp_path, wheel, program)
    cancel = CancelToken()

    def cancel_when_started() -> None:
        while not cancel.wait(0.05):
            if request.log_path.exists() and "started" in request.log_path.read_text():
                cancel.cancel()

    thread = threading.Thread(target=cancel_when_started)
    thread.start()
    with pytest.raises(CancelledWork):
        LocalRunner().run(request, cancel)
    thread.join()
    assert processes_of(request) == []


def test_cancelled_before_it_starts(tmp_path: Path, wheel: Path) -> None:
    """A run that was cancelled while it waited installs nothing and leaves no environment."""
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(CancelledWork):
        LocalRunner().run(make_request(tmp_path, wheel, PRINT_SPEED), cancel)
    assert [p for p in (tmp_path / "cache" / "environments").iterdir() if p.is_dir()] == []


def test_half_made_and_broken_environments_are_made_again(tmp_path: Path, wheel: Path) -> None:
    """An environment that a kill left half-made, or whose interpreter went, is replaced."""
    request = make_request(tmp_path, wheel, PRINT_SPEED)
    success(LocalRunner().run(request, CancelToken()))
    (kept,) = (p for p in (tmp_path / "cache" / "environments").iterdir() if p.is_dir())
    (kept / "complete.json").unlink()
    assert success(LocalRunner().run(request, CancelToken())).value == 12.5
    (kept / "content" / "bin" / "python").unlink()
    (kept / "content" / "bin" / "python").symlink_to("/nowhere/python")
    assert success(LocalRunner().run(request, CancelToken())).value == 12.5


def test_few_environments_are_kept(tmp_path: Path) -> None:
    """No more environments stay than asked for; the one used last is among them."""
    runner = LocalRunner(Shelves(environments=2))
    for speed in (1, 2, 3, 4):
        made = make_wheel(tmp_path / str(speed), {"tiny/__init__.py": f"SPEED = {speed}\n"})
        request = make_request(tmp_path, made, PRINT_SPEED, run=f"run-{speed}")
        assert success(runner.run(request, CancelToken())).value == speed
    kept = [p for p in (tmp_path / "cache" / "environments").iterdir() if p.is_dir()]
    assert len(kept) == 2
    again = make_request(tmp_path, made, PRINT_SPEED, run="again")
    success(runner.run(again, CancelToken()))
    assert "tiny==1.0" not in again.log_path.read_text()


def test_metric_in_a_file(tmp_path: Path, wheel: Path) -> None:
    """A value may be read from a file that the benchmark writes, named by a glob."""
    program = (
        "import os, json\nos.mkdir('out-123')\n"
        "json.dump({'runs': [{'v': 3}, {'v': 5}]}, open('out-123/summary.json', 'w'))\n"
    )
    metric = Metric(
        reader=ReaderKind.JSON, path="runs.*.v", file="out-*/summary.json", take=Take.MAX
    )
    request = make_request(tmp_path, wheel, program, metric=metric)
    assert success(LocalRunner().run(request, CancelToken())).value == 5.0


def test_metric_file_that_is_not_there_or_a_link(tmp_path: Path, wheel: Path) -> None:
    """A missing file is named with those that are there; a link to elsewhere is not followed."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"v": 7}')
    metric = Metric(reader=ReaderKind.JSON, path="v", file="out.json")
    program = f"import os\nos.symlink({str(secret)!r}, 'out.json')\n"
    request = make_request(tmp_path, wheel, program, metric=metric)
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert "did not write 'out.json'" in failed.cause
    assert "bench.py" in failed.advice


def test_a_busy_neighbour_is_seen(tmp_path: Path, wheel: Path) -> None:
    """CPU time that others used during the run is recorded, with who used it; none is rejected."""
    program = (
        "import os, subprocess, sys, time\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: pass\n"
        "print('images/sec: 1')\n"
    )
    burn = "import threading\nwhile True: pass\n"
    neighbour = psutil.Popen(["python3", "-c", burn])
    try:
        request = make_request(tmp_path, wheel, program)
        result = success(LocalRunner().run(request, CancelToken()))
    finally:
        neighbour.kill()
        neighbour.wait()
    observed = result.environment["observed"]
    assert observed["foreign_cpu_seconds"] > 0.2
    assert observed["cpu_seconds"] > 0.2
    assert observed["neighbours"]
    assert not result.rejected
