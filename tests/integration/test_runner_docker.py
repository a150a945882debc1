"""DockerRunner on a real engine, in an image that holds Debian and its Python."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.running import failure, make_request, make_wheel, success
from tests.integration.docker_base import need_base_image

from perfbisect.containers import LABEL, Docker
from perfbisect.core.recipe import Metric, ReaderKind
from perfbisect.core.states import FailureKind
from perfbisect.errors import TransientError
from perfbisect.ports import CancelledWork, CancelToken, RunRequest, RunSuccess
from perfbisect.runner import DockerRunner, make_runner

pytestmark = [pytest.mark.docker, pytest.mark.network]

TAG = "perfbisect-test-python:bookworm"
FAST = {"tiny/__init__.py": "SPEED = 12.5\n"}
PRINT_SPEED = "import tiny\nprint('images/sec:', tiny.SPEED)\n"
_INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3"


@pytest.fixture(scope="module")
def image() -> str:
    """The base image with Python, made now if need be."""
    base = need_base_image()
    have = subprocess.run(["docker", "image", "inspect", TAG], capture_output=True, check=False)
    if have.returncode != 0:
        name = f"perfbisect-test-python-{os.getpid()}"
        subprocess.run(
            ["docker", "run", "--name", name, base, "sh", "-ec", _INSTALL],
            capture_output=True,
            check=True,
        )
        subprocess.run(["docker", "commit", name, TAG], capture_output=True, check=True)
        subprocess.run(["docker", "rm", name], capture_output=True, check=True)
    return TAG


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "wheels", FAST)


def containers_of(request: RunRequest) -> list[str]:
    with Docker() as docker:
        label = f"{LABEL}={request.id}"
        found = docker.client.containers.list(all=True, filters={"label": label})
        return [str(container.id) for container in found]


def test_a_value_from_a_container(tmp_path: Path, wheel: Path, image: str) -> None:
    """The same request gives the same kind of point, with the image recorded."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, docker=True, image=image)
    result = success(make_runner().run(request, CancelToken()))
    assert result.value == 12.5
    assert result.environment["runner"] == "docker"
    assert result.environment["image"] == image
    assert result.environment["image_digest"].startswith("sha256:")
    assert result.environment["packages"] == {"tiny": "1.0"}
    assert result.environment["observed"]["seconds"] > 0
    assert "images/sec: 12.5" in request.log_path.read_text()
    assert containers_of(request) == []


def test_environments_in_containers_are_shared(tmp_path: Path, wheel: Path, image: str) -> None:
    """The second run installs nothing."""
    changes: dict[str, Any] = {"docker": True, "image": image}
    for run in ("run-1", "run-2"):
        request = make_request(tmp_path, wheel, PRINT_SPEED, run=run, **changes)
        assert success(DockerRunner().run(request, CancelToken())).value == 12.5
    assert "tiny==1.0" in (tmp_path / "logs" / "run-1.log").read_text()
    assert "tiny==1.0" not in (tmp_path / "logs" / "run-2.log").read_text()


def test_the_container_is_without_privileges(tmp_path: Path, wheel: Path, image: str) -> None:
    """While measuring: no root, no capabilities, no network, a read-only environment."""
    program = (
        "import os, socket, sys\n"
        "assert os.getuid() != 0\n"
        "status = open('/proc/self/status').read()\n"
        "assert 'CapEff:\\t0000000000000000' in status and 'NoNewPrivs:\\t1' in status, status\n"
        "assert os.listdir('/sys/class/net') == ['lo'], os.listdir('/sys/class/net')\n"
        "assert not os.path.exists('/var/run/docker.sock')\n"
        "for directory in (sys.prefix, '/'):\n"
        "    try:\n"
        "        open(directory + '/mine', 'w')\n"
        "        raise SystemExit(directory + ' can be written to')\n"
        "    except OSError:\n"
        "        pass\n"
        "open(os.environ['HOME'] + '/mine', 'w')\n"
        "print('images/sec: 1')\n"
    )
    request = make_request(tmp_path, wheel, program, docker=True, image=image)
    assert success(DockerRunner().run(request, CancelToken())).value == 1.0


def test_requirements_come_from_an_index(tmp_path: Path, wheel: Path, image: str) -> None:
    """While installing there is network, and what was installed is recorded."""
    program = "import six, tiny\nprint('images/sec:', tiny.SPEED)\n"
    request = make_request(
        tmp_path, wheel, program, docker=True, image=image, requirements=("six==1.16.0",)
    )
    result = success(DockerRunner().run(request, CancelToken()))
    assert result.environment["packages"] == {"six": "1.16.0", "tiny": "1.0"}


def test_a_file_written_in_a_container_is_read(tmp_path: Path, wheel: Path, image: str) -> None:
    """A metric may be in a file; a link that the benchmark leaves in its place is not followed."""
    metric = Metric(reader=ReaderKind.JSON, path="v", file="out.json")
    changes: dict[str, Any] = {"docker": True, "image": image, "metric": metric}
    program = "open('out.json', 'w').write('{\"v\": 7}')\n"
    request = make_request(tmp_path, wheel, program, **changes)
    assert success(DockerRunner().run(request, CancelToken())).value == 7.0
    program = "import os\nos.symlink('/etc/hostname', 'out.json')\n"
    request = make_request(tmp_path, wheel, program, run="run-2", **changes)
    assert "did not write" in failure(DockerRunner().run(request, CancelToken())).cause


@pytest.mark.parametrize(
    ("program", "kind", "says"),
    [
        ("raise SystemExit(3)\n", FailureKind.PERMANENT, "failed with status 3"),
        ("import os\nos.kill(os.getpid(), 4)\n", FailureKind.PERMANENT, "crashed: SIGILL"),
        ("import nowhere\n", FailureKind.PERMANENT, "failed with status 1"),
        ("print('nothing')\n", FailureKind.OURS, "matches nothing"),
    ],
)
def test_failures_are_told_apart(
    tmp_path: Path, wheel: Path, image: str, program: str, kind: FailureKind, says: str
) -> None:
    """In a container as on the machine: who is to blame, and the last lines of the output."""
    request = make_request(tmp_path, wheel, program, docker=True, image=image)
    failed = failure(DockerRunner().run(request, CancelToken()))
    assert failed.kind is kind
    assert says in failed.cause


def test_wheel_that_cannot_be_imported_there(tmp_path: Path, image: str) -> None:
    """The import check runs in the image."""
    broken = make_wheel(tmp_path / "wheels", {"tiny/__init__.py": "import libmissing\n"})
    request = make_request(tmp_path, broken, PRINT_SPEED, docker=True, image=image)
    failed = failure(DockerRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert failed.cause == "the wheel can't be imported: import tiny"


def test_command_that_is_not_in_the_image(tmp_path: Path, wheel: Path, image: str) -> None:
    """A program that isn't there is the benchmark's mistake."""
    request = make_request(
        tmp_path, wheel, PRINT_SPEED, docker=True, image=image, command="no-such-program"
    )
    failed = failure(DockerRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert "can't be started" in failed.cause


def test_hang_in_a_container(tmp_path: Path, wheel: Path, image: str) -> None:
    """A hang is killed with its container."""
    program = "import time\nprint('started')\ntime.sleep(600)\n"
    request = make_request(tmp_path, wheel, program, docker=True, image=image, timeout=5.0)
    failed = failure(DockerRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.TRANSIENT
    assert failed.cause == "hung: killed after 5s"
    assert containers_of(request) == []


def test_cancel_removes_the_container(tmp_path: Path, wheel: Path, image: str) -> None:
    """Cancelling ends the container before the runner raises."""
    program = "import time\nprint('started')\ntime.sleep(600)\n"
    request = make_request(tmp_path, wheel, program, docker=True, image=image)
    cancel = CancelToken()

    def cancel_when_started() -> None:
        while not cancel.wait(0.05):
            if request.log_path.exists() and "started" in request.log_path.read_text():
                cancel.cancel()

    thread = threading.Thread(target=cancel_when_started)
    thread.start()
    with pytest.raises(CancelledWork):
        DockerRunner().run(request, cancel)
    thread.join()
    assert containers_of(request) == []


def test_image_that_does_not_exist(tmp_path: Path, wheel: Path, image: str) -> None:
    """An image that is not here and can't be pulled is named."""
    name = "perfbisect.invalid/nothing:1"
    request = make_request(tmp_path, wheel, PRINT_SPEED, docker=True, image=name)
    failed = failure(DockerRunner().run(request, CancelToken()))
    assert failed.kind in (FailureKind.OURS, FailureKind.TRANSIENT)
    assert name in failed.cause


def test_no_engine(tmp_path: Path, wheel: Path) -> None:
    """An engine that does not answer is worth another try."""
    request = make_request(tmp_path, wheel, PRINT_SPEED, docker=True, image="x")
    failed = failure(DockerRunner(f"unix://{tmp_path}/none.sock").run(request, CancelToken()))
    assert failed.kind is FailureKind.TRANSIENT


def test_a_benchmark_runs_where_it_asks_to(tmp_path: Path, wheel: Path) -> None:
    """The runner of a host sends only benchmarks with docker = true to the engine."""
    runner = make_runner(f"unix://{tmp_path}/none.sock")
    local = runner.run(make_request(tmp_path, wheel, PRINT_SPEED), CancelToken())
    assert isinstance(local, RunSuccess)
    request = make_request(tmp_path, wheel, PRINT_SPEED, docker=True, image="x")
    assert failure(runner.run(request, CancelToken())).kind is FailureKind.TRANSIENT
    with pytest.raises(TransientError):
        Docker(f"unix://{tmp_path}/none.sock")
