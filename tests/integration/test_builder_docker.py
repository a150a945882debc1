"""Builds in containers, with the real engine and the real Bazel 0.26.1."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from tests.helpers.building import KERNEL, Yard, log_of, make_workspace, need
from tests.helpers.repositories import Workshop
from tests.integration.docker_base import need_base_image

from perfbisect.builder import BuilderSettings, remove_leftovers
from perfbisect.containers import LABEL, Docker
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.ports import BuildRequest, CancelledWork, CancelToken

pytestmark = [pytest.mark.docker, pytest.mark.network]


@pytest.fixture(scope="module")
def base() -> str:
    return need_base_image()


@pytest.fixture(scope="module")
def yard(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need("npm")
    made = Yard(tmp_path_factory.mktemp("yard"))
    yield made
    made.close()


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return make_workspace(tmp_path / "repository")


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    with Docker() as opened:
        yield opened.client


@pytest.fixture
def bazel(base: str) -> Recipe:
    return Recipe(
        name="tiny",
        kind=RecipeKind.BAZEL,
        base_image=base,
        march="x86-64",
        xla=True,
        define={"with_default_optimizations": "true"},
    )


@pytest.fixture
def command(base: str) -> Recipe:
    """A shell command in the image that the Bazel builds use as well."""
    return Recipe(name="shell", kind=RecipeKind.COMMAND, base_image=base, toolchain="python")


def containers_of(engine: docker.DockerClient, work: str) -> list[str]:
    found = engine.containers.list(all=True, filters={"label": f"{LABEL}={work}"})
    return [str(container.id) for container in found]


def test_bazel_builds_a_wheel_without_network(
    yard: Yard, workshop: Workshop, bazel: Recipe, engine: docker.DockerClient
) -> None:
    """The tree's own Bazel builds a wheel in a container that has no network and is not root."""
    request = yard.request(workshop, bazel)
    result = yard.succeed(request)
    with zipfile.ZipFile(result.path) as wheel:
        assert "tiny/libkernel.so" in wheel.namelist()
    found = result.environment
    assert (found["bazel"], found["toolchain"], found["network"]) == ("0.26.1", "tf-cpu", False)
    assert found["image"].startswith("sha256:")
    assert found["commands"][0] == (
        "bazel build --copt=-march=x86-64 --define=with_default_optimizations=true "
        "--define=with_xla_support=true --host_copt=-march=x86-64 "
        "//tensorflow/tools/pip_package:build_pip_package"
    )
    assert containers_of(engine, request.id) == []


def test_second_build_reuses_image_and_cache(yard: Yard, workshop: Workshop, bazel: Recipe) -> None:
    """Building again starts from the image and from what Bazel kept, and gives the same bytes."""
    first = yard.succeed(yard.request(workshop, bazel))
    workshop.commit("Words", {"README.md": "words\n"})
    request = yard.request(workshop, bazel)
    second = yard.succeed(request)
    assert "building image" not in log_of(request)
    assert "INFO: 0 processes." in log_of(request)
    assert first.sha256 == second.sha256


def test_compile_error_is_permanent(yard: Yard, workshop: Workshop, bazel: Recipe) -> None:
    """The first telling lines of a failed build are the compiler's."""
    workshop.commit("Break", {"tensorflow/core/kernel.cc": KERNEL.replace("sum +=", "sun +=")})
    failure = yard.fail(yard.request(workshop, bazel))
    assert failure.kind is FailureKind.PERMANENT
    assert "tensorflow/core/kernel.cc, line 5" in failure.cause
    assert "was not declared" in failure.lines[0]


def test_container_has_no_privileges(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """A build is an ordinary user without capabilities, network or a way to gain privileges."""
    text = "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; ls /sys/class/net; touch {out}/x"
    request = yard.request(workshop, replace(command, command=text))
    yard.succeed(request)
    said = log_of(request).split("\n")
    assert "0" not in said
    assert "CapEff:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said
    assert [line for line in said if line in ("lo", "eth0")] == ["lo"]


def test_git_is_real_inside(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """Version stamping works inside: the tree's git knows its tags and objects."""
    workshop.git("tag", "v1.2")
    text = "git describe --tags --dirty; git log -1 --format=%s; touch {out}/x"
    request = yard.request(workshop, replace(command, command=text))
    yard.succeed(request)
    assert {"v1.2", "A kernel and a wheel"} <= set(log_of(request).split("\n"))


def test_cancel_kills_the_container(
    yard: Yard, workshop: Workshop, command: Recipe, engine: docker.DockerClient
) -> None:
    """After a cancel, build() raises once the container is gone."""
    request = yard.request(workshop, replace(command, command="echo started; sleep 600"))
    cancel = CancelToken()
    raised: list[BaseException] = []
    thread = threading.Thread(target=_build, args=(yard, request, cancel, raised), daemon=True)
    thread.start()
    while "started\n" not in log_of(request):
        assert thread.is_alive(), log_of(request)
        time.sleep(0.02)
    assert len(containers_of(engine, request.id)) == 1
    cancel.cancel()
    thread.join()
    assert len(raised) == 1
    assert containers_of(engine, request.id) == []


def _build(
    yard: Yard, request: BuildRequest, cancel: CancelToken, raised: list[BaseException]
) -> None:
    try:
        yard.build(request, cancel)
    except CancelledWork as error:
        raised.append(error)


def test_timeout_is_permanent(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """A container that does not end in time is killed, and the revision is skipped."""
    recipe = replace(command, command="echo started; sleep 600", timeout=5.0)
    failure = yard.fail(yard.request(workshop, recipe))
    assert failure.kind is FailureKind.PERMANENT
    assert "longer than" in failure.cause


def test_too_little_memory_is_transient(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """A compiler that the kernel kills for want of memory is infrastructure, not the revision."""
    source = "int table[] = {" + "1," * 400_000 + "};"
    workshop.commit("Large", {"large.cc": source})
    recipe = replace(command, command="g++ -O2 -c large.cc -o {out}/large.o", memory="24m")
    failure = yard.fail(yard.request(workshop, recipe))
    assert failure.kind is FailureKind.TRANSIENT
    assert "memory" in failure.cause


def test_full_disk_is_transient(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """A volume that is full inside the container is infrastructure, not the revision."""
    text = "head -c 100000000 /dev/zero > /dev/shm/filled; touch {out}/x"
    failure = yard.fail(yard.request(workshop, replace(command, command=text)))
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.cause == "the disk is full"


def test_network_that_is_not_allowed_is_ours(yard: Yard, workshop: Workshop, base: str) -> None:
    """A wheel whose requirements must be fetched says that its recipe needs network = true."""
    workshop.commit("A project", {"setup.py": "import setuptools; setuptools.setup(name='x')"})
    recipe = Recipe(name="pip", kind=RecipeKind.PIP_WHEEL, base_image=base)
    failure = yard.fail(yard.request(workshop, recipe))
    assert failure.kind is FailureKind.OURS
    assert "network = true" in failure.advice


def test_pip_wheel_with_network(yard: Yard, workshop: Workshop, base: str) -> None:
    """A Python project is built in its container with requirements as of its date."""
    workshop.commit("A project", {"setup.py": "import setuptools; setuptools.setup(name='x')"})
    recipe = Recipe(name="pip", kind=RecipeKind.PIP_WHEEL, base_image=base, network=True)
    result = yard.succeed(yard.request(workshop, recipe))
    assert result.path.suffix == ".whl"
    assert result.environment["toolchain"] == "python"
    assert "--exclude-newer" in result.environment["commands"][0]


def test_dead_daemon_is_transient(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """Where no engine answers, the build is tried again later."""
    dead = Yard(yard.path, BuilderSettings(docker_host="unix:///nonexistent/docker.sock"))
    failure = dead.fail(dead.request(workshop, command))
    assert failure.kind is FailureKind.TRANSIENT
    assert "does not answer" in failure.cause


def test_unknown_toolchain_is_ours(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """A toolchain that has no Dockerfile is named, with the nearest that has one."""
    recipe = replace(command, toolchain="tf-cpus", command="true")
    failure = yard.fail(yard.request(workshop, recipe))
    assert failure.kind is FailureKind.OURS
    assert "did you mean 'tf-cpu'" in failure.cause


def test_unknown_argument_is_ours(yard: Yard, workshop: Workshop, command: Recipe) -> None:
    """An argument that the Dockerfile does not have is named."""
    recipe = replace(command, toolchain_args={"UV_VERSON": "1"}, command="true")
    failure = yard.fail(yard.request(workshop, recipe))
    assert failure.kind is FailureKind.OURS
    assert "did you mean 'UV_VERSION'" in failure.cause


def test_base_image_that_can_not_be_pulled_is_not_the_revision(
    yard: Yard, workshop: Workshop, command: Recipe
) -> None:
    """A base image that is nowhere to be had never makes a revision unbuildable."""
    recipe = replace(command, base_image="localhost:1/nothing:here", command="true")
    failure = yard.fail(yard.request(workshop, recipe))
    assert failure.kind is not FailureKind.PERMANENT
    assert failure.cause.startswith("the toolchain's image does not build")


def test_image_build_can_be_cancelled(
    yard: Yard,
    workshop: Workshop,
    command: Recipe,
    engine: docker.DockerClient,
    tmp_path: Path,
) -> None:
    """A cancel during the image's build raises, and the engine stops building it."""
    dockerfiles = tmp_path / "dockerfiles"
    dockerfiles.mkdir()
    mark = f"mark-{time.monotonic_ns()}"
    text = f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nRUN echo started {mark} && sleep 600\n"
    (dockerfiles / "slow.Dockerfile").write_text(text)
    slow = Yard(yard.path, BuilderSettings(dockerfiles=dockerfiles))
    request = slow.request(workshop, replace(command, toolchain="slow", command="true"))
    cancel = CancelToken()
    raised: list[BaseException] = []
    thread = threading.Thread(target=_build, args=(slow, request, cancel, raised), daemon=True)
    thread.start()
    while not building(engine, mark):
        assert thread.is_alive(), log_of(request)
        time.sleep(0.02)
    cancel.cancel()
    thread.join()
    assert len(raised) == 1
    while building(engine, mark):
        time.sleep(0.1)


def building(engine: docker.DockerClient, mark: str) -> list[str]:
    """Return the running containers of an image's build."""
    return [
        str(container.id)
        for container in engine.containers.list(ignore_removed=True)
        if mark in str(container.attrs)
    ]


def test_leftovers_are_removed_by_prefix(base: str, engine: docker.DockerClient) -> None:
    """After a kill, containers of the lost work are found by their label and removed."""
    work = f"left-{time.monotonic_ns()}"
    engine.containers.run(base, ["sleep", "600"], detach=True, labels={LABEL: work})
    assert len(containers_of(engine, work)) == 1
    assert remove_leftovers(work[:-2]) == 1
    assert containers_of(engine, work) == []


KILLED = """
import sys
from pathlib import Path
from perfbisect.builder import make_builder
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.ports import BuildRequest, CancelToken

work, base, mirror, commit, tree, directory = sys.argv[1:]
directory = Path(directory)
(directory / "work").mkdir(parents=True)
make_builder().build(
    BuildRequest(
        id=work, mirror=Path(mirror), commit=commit, tree=tree, work_dir=directory / "work",
        log_path=directory / "log", cache_dir=directory / "cache",
        recipe=Recipe(name="slow", kind=RecipeKind.COMMAND, toolchain="python", base_image=base,
                      command="echo started; sleep 600"),
    ),
    CancelToken(),
)
"""


def test_a_killed_builder_leaves_a_container_that_recovery_removes(
    workshop: Workshop, base: str, engine: docker.DockerClient, tmp_path: Path
) -> None:
    """After kill -9 of the whole program its container runs on until recovery names the work."""
    work = f"killed-{time.monotonic_ns()}"
    log = tmp_path / "build" / "log"
    arguments = [work, base, str(workshop.path / ".git"), workshop.head, workshop.tree()]
    command = [sys.executable, "-c", KILLED, *arguments, str(tmp_path / "build")]
    with subprocess.Popen(command) as process:
        while not (log.exists() and "started\n" in log.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    assert len(containers_of(engine, work)) == 1
    assert remove_leftovers(work) == 1
    assert containers_of(engine, work) == []
