"""The whole path with real Bazels of two eras, in containers: each with the flags of its time."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from tests.helpers.building import KERNEL, Yard, log_of, make_workspace, need
from tests.helpers.repositories import Workshop
from tests.integration.docker_base import need_base_image

from perfbisect.builder import BuilderSettings
from perfbisect.building.warm import TREE
from perfbisect.containers import Docker
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.ports import BuildRequest

# The first time, an image with Debian's Bazel is made: some hundred packages.
pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(1800)]

#: Bazel 4.2.3 is in Debian; npm has none after 2.1.
DEBIAN = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update \\
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
        bazel-bootstrap g++ git python3 \\
    && rm -rf /var/lib/apt/lists/*
RUN ln -s bazel-4 /usr/bin/bazel-4.2.3
RUN useradd --uid 10001 --create-home --shell /bin/bash builder
USER builder
WORKDIR /build/src
"""


def rules(*names: str) -> str:
    """Return a stand-in for a repository of rules: Bazel's own, which 4.2 would download again."""
    return "".join(f"def {name}(**rule):\n    native.{name}(**rule)\n\n" for name in names)


#: What TensorFlow's tree said in 2021: Bazel 4.2, XLA in each build, API 2 by configuration.
OF_2021: Mapping[str, str] = {
    "WORKSPACE": (
        'workspace(name = "tiny")\n'
        'local_repository(name = "rules_cc", path = "third_party/rules_cc")\n'
        'local_repository(name = "rules_java", path = "third_party/rules_java")\n'
    ),
    "third_party/rules_cc/WORKSPACE": "",
    "third_party/rules_cc/cc/BUILD": "",
    "third_party/rules_cc/cc/defs.bzl": rules(
        *("cc_binary", "cc_import", "cc_library", "cc_proto_library", "cc_test"),
        *("cc_toolchain", "cc_toolchain_suite"),
    ),
    "third_party/rules_java/WORKSPACE": "",
    "third_party/rules_java/java/BUILD": "",
    "third_party/rules_java/java/defs.bzl": rules(
        *("java_binary", "java_import", "java_library", "java_lite_proto_library", "java_plugin"),
        *("java_package_configuration", "java_proto_library", "java_runtime", "java_test"),
        "java_toolchain",
    ),
    ".bazelversion": "4.2.3\n",
    "configure.py": "_TF_MIN_BAZEL_VERSION = '4.2.1'\n_TF_MAX_BAZEL_VERSION = '4.99.0'\n",
    ".bazelrc": (
        "build --define=with_xla_support=true\nbuild:v2 --define=tf_api_version=2\n"
        "build:v2 --action_env=TF2_BEHAVIOR=1\nbuild --config=v2\n"
    ),
}
#: What it says since 2024: Python is hermetic, and the wheel is a target.
OF_2024: Mapping[str, str] = {
    ".bazelrc": (
        f"{OF_2021['.bazelrc']}build --repo_env=HERMETIC_PYTHON_VERSION=3.10\n"
        "build:cuda --repo_env=HERMETIC_CUDA_VERSION=12.5.1\n"
    ),
    "tensorflow/tools/pip_package/BUILD": (
        'genrule(name = "wheel", srcs = ["//tensorflow/core:libkernel.so"],\n'
        '        outs = ["wheel_house/tiny-1.0-py3-none-any.whl"],\n'
        '        tools = ["//:make_wheel.py"],\n'
        '        cmd = "python3 $(location //:make_wheel.py) $< $(@D)")\n'
    ),
}


@pytest.fixture(scope="module")
def base() -> str:
    return need_base_image()


@pytest.fixture(scope="module")
def dockerfiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dockerfiles")
    (directory / "debian-bazel.Dockerfile").write_text(DEBIAN)
    return directory


@pytest.fixture(scope="module")
def modern(
    base: str, dockerfiles: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    made = Yard(tmp_path_factory.mktemp("modern"), BuilderSettings(dockerfiles=dockerfiles))
    yield made
    made.close()


@pytest.fixture(scope="module")
def early(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need("npm")
    made = Yard(tmp_path_factory.mktemp("early"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A workspace of 2019, which one test after the other goes on with."""
    return make_workspace(tmp_path_factory.mktemp("early-workspace") / "repository")


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    with Docker() as opened:
        yield opened.client


def kept(engine: docker.DockerClient, yard: Yard) -> list[str]:
    """Return the states of the containers that a yard keeps."""
    found = engine.containers.list(all=True, filters={"label": TREE})
    own = [each for each in found if each.labels[TREE].startswith(str(yard.path))]
    return [str(each.status) for each in own]


def slower(factor: int) -> dict[str, str]:
    return {"tensorflow/core/kernel.cc": KERNEL.replace("i <= n", f"i <= {factor} * n")}


def bazel(base: str, **options: object) -> Recipe:
    return replace(
        Recipe(name="tiny", kind=RecipeKind.BAZEL, base_image=base, memory="4g", cpus=2.0),
        **options,  # type: ignore[arg-type]
    )


def command_of(yard: Yard, request: BuildRequest) -> str:
    result = yard.succeed(request)
    with zipfile.ZipFile(result.path) as wheel:
        assert "tiny/libkernel.so" in wheel.namelist()
    return str(result.environment["commands"][0])


def test_the_second_build_of_2019_finds_the_server_warm(
    early: Yard, workshop: Workshop, base: str, engine: docker.DockerClient
) -> None:
    """An adjacent commit is built by the server that the first one started, paused meanwhile."""
    recipe = bazel(base, xla=True)
    first = early.request(workshop, recipe)
    assert command_of(early, first) == (
        "bazel build --define=with_xla_support=true "
        "//tensorflow/tools/pip_package:build_pip_package"
    )
    assert kept(engine, early) == ["paused"]
    workshop.commit("Slower", slower(2))
    second = early.request(workshop, recipe)
    command_of(early, second)
    assert "Starting local Bazel server" in log_of(first)
    assert "Starting local Bazel server" not in log_of(second)
    assert "building image" not in log_of(second)
    assert kept(engine, early) == ["paused"]


def test_a_broken_commit_leaves_the_server_for_the_next(
    early: Yard, workshop: Workshop, base: str, engine: docker.DockerClient
) -> None:
    """A compile error is the commit's, not the container's: the next build goes on in it."""
    recipe = bazel(base, xla=True)
    workshop.commit("Break", {"tensorflow/core/kernel.cc": KERNEL.replace("sum +=", "sun +=")})
    failure = early.fail(early.request(workshop, recipe))
    assert failure.kind is FailureKind.PERMANENT
    assert "tensorflow/core/kernel.cc, line 5" in failure.cause
    assert kept(engine, early) == ["paused"]


def test_too_little_memory_in_the_kept_container(
    early: Yard, workshop: Workshop, base: str, engine: docker.DockerClient
) -> None:
    """What the kernel kills for want of memory is infrastructure, and its container is not kept."""
    greedy = (
        'genrule(name = "greedy", outs = ["greedy.txt"],\n'
        "    cmd = \"python3 -c 'len(bytearray(2 << 30))' && touch $@\")\n"
    )
    workshop.commit("Greedy", {"greedy/BUILD": greedy, "tensorflow/core/kernel.cc": KERNEL})
    recipe = bazel(base, xla=True, memory="700m", target="//greedy", artifacts=("bazel-bin/*",))
    failure = early.fail(early.request(workshop, recipe))
    assert failure.kind is FailureKind.TRANSIENT
    assert "needs more memory than its limit of 700m" in failure.cause
    assert kept(engine, early) == []


def test_nothing_is_kept_once_the_builder_is_closed(
    early: Yard, workshop: Workshop, base: str, engine: docker.DockerClient
) -> None:
    """Closing removes the paused containers; a later build starts a new one."""
    recipe = bazel(base, xla=True)
    early.succeed(early.request(workshop, recipe))
    assert kept(engine, early) == ["paused"]
    early.close()
    assert kept(engine, early) == []


def test_flags_of_2021_and_of_2024(modern: Yard, base: str, tmp_path: Path) -> None:
    """Debian's Bazel 4.2.3 builds both later styles through the whole path, and then again."""
    workshop = make_workspace(tmp_path / "repository")
    workshop.commit("2021", OF_2021)
    recipe = bazel(
        base,
        toolchain="debian-bazel",
        bazel_binary="image",
        python="/usr/bin/python3.11",
        xla=True,
        tf_api_version=2,
    )
    first = modern.request(workshop, recipe)
    script = "//tensorflow/tools/pip_package:build_pip_package"
    assert command_of(modern, first) == (
        f"bazel build --config=v2 --python_path=/usr/bin/python3.11 {script}"
    )
    workshop.commit("2024", OF_2024)
    second = modern.request(workshop, recipe)
    assert command_of(modern, second) == (
        "bazel build --config=v2 --repo_env=HERMETIC_PYTHON_VERSION=3.11 "
        "//tensorflow/tools/pip_package:wheel"
    )
    workshop.commit("Words", {"README.md": "words\n"})
    third = modern.request(workshop, recipe)
    command_of(modern, third)
    assert "INFO: 0 processes" in log_of(third) or "1 process: 1 internal" in log_of(third)
    assert "Starting local Bazel server" not in log_of(third)


def test_an_image_without_bazel_is_ours(early: Yard, workshop: Workshop, base: str) -> None:
    """Where the image has no Bazel of its own, the recipe is at fault and not the tree."""
    recipe = bazel(base, toolchain="python", bazel_binary="image")
    failure = early.fail(early.request(workshop, recipe))
    assert failure.kind is FailureKind.OURS
    assert "has no Bazel that runs" in failure.cause
