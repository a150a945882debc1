"""Builds and benchmarks that fork, fill, allocate, stay and lie, here and in containers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
from tests.helpers.building import Yard
from tests.helpers.repositories import Workshop
from tests.helpers.running import make_request, make_wheel
from tests.integration.docker_base import need_base_image, need_docker

from perfbisect.containers import LABEL, ContainerResult, ContainerSpec, Docker
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.overruns import Overrun
from perfbisect.ports import BuildSuccess, CancelToken, Failure, RunRequest
from perfbisect.process_output import LOG_LIMIT, TAIL_LIMIT
from perfbisect.processes import MARKER, ProcessResult, run_process
from perfbisect.runner import make_runner

#: Doubles nine times, and stays.
FORKS = "import os, time\nfor _ in range(9): os.fork()\ntime.sleep(600)\n"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory in memory, whose free space hardly anybody else changes."""
    top = Path("/dev/shm")
    path = top / f"perfbisect-test-{os.getpid()}"
    path.mkdir()
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


def free_in(path: Path) -> int:
    """Return the bytes that are free."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def work(script: str, place: Path, **options: Any) -> ProcessResult:
    """Run a shell command as local work is run."""
    return run_process(
        ["sh", "-c", script],
        cwd=place,
        env={"PATH": os.environ["PATH"]},
        timeout=options.pop("timeout", 120.0),
        cancel=CancelToken(),
        marker=f"hostile-{place.name}-{os.getpid()}",
        **options,
    )


def left_of(marker: str) -> list[int]:
    """Return the processes that carry a marker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER, "").startswith(marker):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_local_work_that_forks_without_end_is_ended_whole(tmp_path: Path) -> None:
    """A tree with too many processes is killed to the last, and said to be at fault."""
    (tmp_path / "forks.py").write_text(FORKS)
    done = work("exec python3 forks.py", tmp_path, most_processes=100)
    assert done.overrun is Overrun.PROCESSES
    assert not done.ok
    assert left_of(f"hostile-{tmp_path.name}") == []


def test_local_work_that_fills_the_disk_is_ended(scratch: Path) -> None:
    """Work is ended while there is still space for others, and what it wrote can go."""
    floor = free_in(scratch) - 8 * 1024**2
    script = "while :; do head -c 1000000 /dev/zero >> filled; sleep 0.02; done"
    done = work(script, scratch, keep_free=floor)
    assert done.overrun is Overrun.DISK
    assert free_in(scratch) > 0


def test_local_work_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Who does not listen is killed once its time is over."""
    done = work("trap '' TERM INT HUP; while :; do sleep 1; done", tmp_path, timeout=1.0, grace=0.2)
    assert done.timed_out
    assert left_of(f"hostile-{tmp_path.name}") == []


def test_a_flood_of_output_is_bounded(tmp_path: Path) -> None:
    """Two hundred megabytes of escape codes leave a bounded log, and a bounded tail in memory."""
    log = tmp_path / "log"
    script = r"head -c 200000000 /dev/zero | tr '\0' '\033'"
    done = work(script, tmp_path, log_path=log, log_limit=1_000_000)
    assert done.returncode == 0
    assert 1_000_000 <= log.stat().st_size < 1_001_000
    assert len(done.tail) <= TAIL_LIMIT < LOG_LIMIT


def build_of(yard: Yard, tmp_path: Path, command: str, **options: Any) -> BuildSuccess | Failure:
    """Build a small repository by a shell command."""
    workshop = Workshop(tmp_path / "shop")
    workshop.commit("one", {"a": "1\n"})
    recipe = Recipe(name="hostile", kind=RecipeKind.COMMAND, command=command, timeout=300.0)
    result = yard.build(yard.request(workshop, replace(recipe, **options)))
    assert isinstance(result, BuildSuccess | Failure)
    return result


@pytest.mark.parametrize("where", ["local", "docker"])
def test_a_build_that_lies_about_its_result(where: str, tmp_path: Path) -> None:
    """Links, pipes and names that lead out, in place of a result, give nothing of the server's."""
    options = _place(where)
    secret = tmp_path / "secret"
    secret.write_text("the server's own")
    command = (
        f"ln -s {secret} {{out}}/x-1.0-py3-none-any.whl;"
        f"ln -s {secret} {{out}}/artifacts.tar.gz; mkfifo {{out}}/pipe; echo done"
    )
    yard = Yard(tmp_path / "yard")
    try:
        result = build_of(yard, tmp_path, command, **options)
    finally:
        yard.close()
    assert isinstance(result, Failure)
    assert result.kind is FailureKind.PERMANENT
    assert "link in place of its wheel" in result.cause
    assert secret.read_text() == "the server's own"


def _place(where: str) -> dict[str, Any]:
    """Return the options of a recipe on the machine, or in a container."""
    if where == "local":
        return {"docker": False}
    return {"docker": True, "base_image": need_base_image(), "toolchain": "python"}


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """A client of the engine beside the one under test."""
    need_docker()
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def spec(tmp_path: Path) -> ContainerSpec:
    """A container as builds and runs get it, with one directory to write to."""
    image = need_base_image()
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    return ContainerSpec(
        work=f"hostile-{tmp_path.name}-{os.getpid()}",
        image=image,
        argv=["true"],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        user="10001:10001",
        working_dir="/out",
        mounts=((out, "/out", False),),
        memory="128m",
        cpus=1.0,
    )


def contained(spec: ContainerSpec, script: str, **options: Any) -> ContainerResult:
    """Run a shell command in a container, and insist that it is gone afterwards."""
    with Docker() as engine:
        done = engine.run(
            replace(spec, argv=["sh", "-c", script]),
            timeout=options.pop("timeout", 300.0),
            cancel=CancelToken(),
            **options,
        )
        label = f"{LABEL}={spec.work}"
        assert engine.client.containers.list(all=True, filters={"label": label}) == []
    return done


def test_a_running_container_is_held_in_its_place(
    spec: ContainerSpec, engine: docker.DockerClient
) -> None:
    """The engine itself says, of a container that runs, everything that it is denied."""
    with Docker() as own:
        started = own.start(replace(spec, argv=["sleep", "600"]))
        try:
            told = engine.api.inspect_container(str(started.id))
            inside = engine.containers.get(str(started.id))
            shown = inside.exec_run(["cat", "/proc/1/status"]).output
            tried = inside.exec_run(["sh", "-c", "touch /usr/x /x /etc/x; echo x > /tmp/x"])
        finally:
            started.remove(force=True)
    host = told["HostConfig"]
    assert told["Config"]["User"] == "10001:10001"
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"]
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == "private"
    assert host["PidMode"] == host["UTSMode"] == ""
    assert host["PidsLimit"] == 8192
    assert host["Memory"] == host["MemorySwap"] == 128 * 1024**2
    assert host["NanoCpus"] == 10**9
    assert host["OomScoreAdj"] == 500
    assert {each["Name"]: each["Hard"] for each in host["Ulimits"]} == {
        "core": 0,
        "fsize": 64 * 1024**3,
    }
    assert set(host["Tmpfs"]) == {"/tmp", "/var/tmp"}
    assert all("size=" in options and "nosuid" in options for options in host["Tmpfs"].values())
    assert not host["Devices"]
    assert not host["Binds"]
    assert [each["Source"] for each in told["Mounts"]] == [str(spec.mounts[0][0])]
    assert "docker.sock" not in str(told["Mounts"])
    assert isinstance(shown, bytes)
    assert isinstance(tried.output, bytes)
    text = shown.decode()
    assert "CapEff:\t0000000000000000" in text
    assert "CapBnd:\t0000000000000000" in text
    assert "NoNewPrivs:\t1" in text
    assert "Seccomp:\t2" in text
    assert tried.output.count(b"Read-only file system") == 3
    assert tried.exit_code == 0


def test_a_container_that_forks_without_end_meets_its_limit(spec: ContainerSpec) -> None:
    """A fork bomb runs against the limit of processes or memory, and is gone with its time."""
    bomb = "b() { b | b & }; b; sleep 600"
    done = contained(replace(spec, memory="64m"), bomb, timeout=5.0)
    assert done.timed_out or done.out_of_memory or done.returncode != 0


def test_a_container_that_fills_the_disk_is_ended(spec: ContainerSpec, scratch: Path) -> None:
    """A directory of this machine is not filled to the end by what a container writes there."""
    scratch.chmod(0o777)
    floor = free_in(scratch) - 8 * 1024**2
    held = replace(spec, mounts=((scratch, "/out", False),), keep_free=floor)
    done = contained(held, "while :; do head -c 1000000 /dev/zero >> f; sleep 0.02; done")
    assert done.overrun is Overrun.DISK
    assert free_in(scratch) > 0


def test_a_container_that_allocates_without_end_is_killed(spec: ContainerSpec) -> None:
    """Memory has a limit without swap; the engine says that this was why."""
    done = contained(spec, "x=xxxxxxxx; while :; do x=$x$x; done")
    assert done.out_of_memory
    assert done.returncode == 128 + signal.SIGKILL


def test_a_container_that_ignores_sigterm_and_floods_its_log(
    spec: ContainerSpec, tmp_path: Path
) -> None:
    """Deaf to signals and printing without end: gone with its time, and its log is bounded."""
    log = tmp_path / "log"
    script = "trap '' TERM INT HUP; yes \"$(printf '\\033[2J\\033]0;x\\007')\""
    done = contained(spec, script, timeout=3.0, log_path=log, log_limit=1_000_000)
    assert done.timed_out
    assert 1_000_000 <= log.stat().st_size < 1_001_000
    assert len(done.tail) <= TAIL_LIMIT


def test_a_benchmark_that_forks_and_prints_without_end(tmp_path: Path) -> None:
    """A hostile benchmark fails with its reason; nothing of it is left, and the next one runs."""
    wheel = make_wheel(tmp_path / "wheels", {"tiny/__init__.py": "SPEED = 12.5\n"})
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(4):\n    os.fork()\n"
        "while True:\n    sys.stdout.write('\\x1b[2J' * 1000)\n"
    )
    request = make_request(tmp_path, wheel, program, timeout=2.0)
    result = _finished(request)
    assert isinstance(result, Failure)
    assert result.kind is FailureKind.TRANSIENT
    assert result.cause.startswith("hung")
    assert left_of(request.id) == []
    again = make_request(tmp_path, wheel, "print('images/sec: 1')\n", run="run-2")
    assert not isinstance(_finished(again), Failure)


def _finished(request: RunRequest) -> object:
    """Run, and insist that it comes to an end."""
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(make_runner().run(request, CancelToken())), daemon=True
    )
    thread.start()
    thread.join(240)
    assert found, f"{request.id} did not end: {log_of_run(request)}"
    return found[0]


def log_of_run(request: RunRequest) -> str:
    """Return the end of a run's log."""
    return request.log_path.read_text(errors="replace")[-500:] if request.log_path.exists() else ""
