"""perfbisect.core.bazel_flags: the command of a recipe."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from perfbisect.core.bazel_flags import (
    bazel_command,
    check_options,
    left_out,
    option_problems,
)
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.toolchain import ToolchainFacts, toolchain_facts
from perfbisect.errors import BadInputError

DATA = Path(__file__).resolve().parents[1] / "data"
PIP_PACKAGE = "//tensorflow/tools/pip_package:build_pip_package"

PLAIN = Recipe(name="plain", kind=RecipeKind.BAZEL)
FULL = Recipe(
    name="tf2-cuda10",
    kind=RecipeKind.BAZEL,
    python="/usr/bin/python3",
    cuda=True,
    xla=True,
    tensorrt=True,
    numa=True,
    tf_api_version=2,
    march="broadwell",
    compute_capabilities=("6.1", "7.0", "7.5"),
    define={"with_default_optimizations": "true"},
    copt=("-Wno-sign-compare",),
)
ERA_OF_2019 = ToolchainFacts(bazel="0.26.1", target=PIP_PACKAGE, tensorflow="1.14")
HERMETIC = ToolchainFacts(
    target="//tensorflow/tools/pip_package:wheel",
    configs=frozenset({"cuda", "cuda_wheel", "mkl"}),
    xla_by_default=True,
    hermetic_python=True,
    hermetic_cuda=True,
    tensorrt=False,
)


def test_the_command_of_the_discussion_flag_for_flag() -> None:
    """With the options of its author, the command equals the published one, in the same order."""
    recipe = replace(
        FULL,
        action_env={
            "GCC_HOST_COMPILER_PATH": "/usr/bin/gcc",
            "PYTHON_BIN_PATH": "/usr/bin/python3",
            "PYTHON_LIB_PATH": "/usr/local/lib/python3.5/dist-packages",
            "TF_CONFIGURE_IOS": "0",
        },
    )
    published = (DATA / "seed_bazel_command.txt").read_text()
    assert bazel_command(recipe, ERA_OF_2019) == shlex.split(published.replace("\\\n", ""))


def test_the_command_of_the_design() -> None:
    """Without further action_env the command is the shorter line of the design."""
    assert " ".join(bazel_command(FULL, ERA_OF_2019)) == (
        "bazel build --action_env=CUDA_TOOLKIT_PATH=/usr/local/cuda "
        "--action_env=TF_CUDA_COMPUTE_CAPABILITIES=6.1,7.0,7.5 "
        "--config=cuda --config=numa --config=tensorrt --copt=-Wno-sign-compare "
        "--copt=-march=broadwell --define=tf_api_version=2 "
        "--define=with_default_optimizations=true --define=with_xla_support=true "
        "--host_copt=-march=broadwell --python_path=/usr/bin/python3 " + PIP_PACKAGE
    )


def test_nothing_asked_for_nothing_added() -> None:
    """A recipe without options is the bare command and the tree's target."""
    assert bazel_command(PLAIN, ERA_OF_2019) == ["bazel", "build", PIP_PACKAGE]


def test_named_target_wins_and_extra_comes_before_it() -> None:
    """A target named in the recipe replaces the tree's, after all options."""
    recipe = replace(PLAIN, target="//a:b", extra=("--verbose_failures",))
    assert bazel_command(recipe, ERA_OF_2019)[2:] == ["--verbose_failures", "//a:b"]


def test_hermetic_era() -> None:
    """A hermetic tree gets its Python and capabilities by repo_env, its wheel config, no XLA."""
    recipe = replace(FULL, tensorrt=False, python="python3.10", compute_capabilities=("7.0",))
    assert bazel_command(recipe, HERMETIC)[2:] == [
        "--config=cuda",
        "--config=cuda_wheel",
        "--copt=-Wno-sign-compare",
        "--copt=-march=broadwell",
        "--define=tf_api_version=2",
        "--define=with_default_optimizations=true",
        "--host_copt=-march=broadwell",
        "--repo_env=HERMETIC_PYTHON_VERSION=3.10",
        "--repo_env=HERMETIC_CUDA_COMPUTE_CAPABILITIES=sm_70",
        "//tensorflow/tools/pip_package:wheel",
    ]
    assert len(left_out(recipe, HERMETIC)) == 2


def test_tree_without_a_target_is_refused_by_name() -> None:
    """Where the tree has no known target and the recipe names none, the field is target."""
    with pytest.raises(BadInputError) as caught:
        bazel_command(PLAIN, toolchain_facts({}))
    assert caught.value.field == "target"


def test_tensorrt_is_refused_where_it_is_gone() -> None:
    """TensorRT on a tree of 2.18 or later is refused with the reason."""
    with pytest.raises(BadInputError, match=r"removed in TensorFlow 2\.18"):
        bazel_command(FULL, HERMETIC)


@pytest.mark.parametrize(
    ("field", "recipe"),
    [
        ("tensorrt", replace(PLAIN, tensorrt=True)),
        ("compute_capabilities", replace(PLAIN, compute_capabilities=("7.0",))),
        ("compute_capabilities", replace(FULL, compute_capabilities=("volta",))),
        ("copt", replace(FULL, copt=("-march=native",))),
        ("host_copt", replace(FULL, host_copt=("-march=native",))),
        ("define", replace(FULL, define={"tf_api_version": "1"})),
        ("define", replace(FULL, define={"with_xla_support": "false"})),
        ("define", replace(PLAIN, define={"a b": "1"})),
        ("tf_api_version", replace(PLAIN, tf_api_version=3)),
        ("march", replace(PLAIN, march="x; rm -rf /")),
        ("action_env", replace(PLAIN, action_env={"A=B": "1"})),
        ("target", replace(PLAIN, target="--keep_going")),
        ("target", replace(PLAIN, target="//a:b //c:d")),
        ("extra", replace(PLAIN, extra=("//another:target",))),
    ],
)
def test_nonsense_is_refused_by_name(field: str, recipe: Recipe) -> None:
    """An option or combination that can't be right is refused, naming its field."""
    with pytest.raises(BadInputError) as caught:
        check_options(recipe)
    assert caught.value.field == field
    assert field in caught.value.message


def test_the_api_by_configuration() -> None:
    """Where the tree chooses its API by configuration, so does the recipe."""
    facts = ToolchainFacts(target="//a:b", configs=frozenset({"v1", "v2"}), api_by_config=True)
    command = bazel_command(replace(PLAIN, tf_api_version=1), facts)
    assert "--config=v1" in command
    assert not any("tf_api_version" in each for each in command)


@pytest.mark.parametrize(
    ("field", "recipe", "facts"),
    [
        ("tensorrt", replace(PLAIN, cuda=True, tensorrt=True), ToolchainFacts(tensorrt=False)),
        ("mkl", replace(PLAIN, mkl=True), ToolchainFacts(configs=frozenset({"cuda"}))),
        ("tf_api_version", replace(PLAIN, tf_api_version=1), ToolchainFacts(api_v1=False)),
        ("remote_cache", replace(PLAIN, remote_cache="http://cache:8080"), None),
        ("remote_cache", replace(PLAIN, network=True, remote_cache="cache"), None),
    ],
)
def test_options_that_can_not_be_had_are_told_with_their_reason(
    field: str, recipe: Recipe, facts: ToolchainFacts | None
) -> None:
    """A form may ask before it submits: the same problems, each with its field."""
    (problem,) = option_problems(recipe, facts)
    assert problem.field == field
    assert f"recipe: {field} = " in problem.message
