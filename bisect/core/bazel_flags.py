"""The Bazel command of a recipe, flag for flag, in an order that never changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfbisect.core.bazel_machine import check_remote_cache
from perfbisect.core.recipe import Recipe
from perfbisect.core.toolchain import ToolchainFacts
from perfbisect.errors import BadInputError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEFINE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_MARCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_CAPABILITY = re.compile(r"(?:(?:sm|compute)_)?\d{1,2}\.?\d[a-z]?")
_LABEL = re.compile(r"(?:@[\w.~-]+)?//[\w./+@=,~-]*(?::[\w./+@=,~-]+)?")
_OPTION = re.compile(r"--?[A-Za-z@/][^\s]*(?:\s.*)?")


def check_options(recipe: Recipe) -> None:
    """Refuse options that can't be right for any commit.

    Raises:
        BadInputError: names the field, its value and what would be right.
    """
    for problem in option_problems(recipe):
        raise problem


def option_problems(
    recipe: Recipe, facts: ToolchainFacts | None = None
) -> tuple[BadInputError, ...]:
    """Return what can't be right about a recipe's options: each names its field and says why.

    Args:
        recipe: what is asked for.
        facts: of a tree that it shall build; None: only what is wrong for every tree.
    """
    found = [*_problems(recipe)]
    if facts is not None:
        found += _era_problems(recipe, facts)
    return tuple(found)


def bazel_command(recipe: Recipe, facts: ToolchainFacts) -> list[str]:
    """Return ``bazel build …`` with the flags of the recipe, in the style of the tree's era.

    Caches and other matters of this machine are not in it; they are in the rc file of the build's
    own home directory, so that what is shown is what anybody may type.

    Raises:
        BadInputError: the options contradict each other or what the tree supports.
    """
    for problem in option_problems(recipe, facts):
        raise problem
    target = facts.target if recipe.target == "auto" else recipe.target
    if not target:
        raise _refuse("target", "auto", "the tree has no target that makes a wheel; name one")
    march = (f"-march={recipe.march}",) if recipe.march else ()
    defines = _defines(recipe, facts)
    return [
        "bazel",
        "build",
        *(f"--action_env={name}={value}" for name, value in sorted(_action_env(recipe, facts))),
        *(f"--config={name}" for name in sorted(_configs(recipe, facts))),
        *(f"--copt={flag}" for flag in (*recipe.copt, *march)),
        *(f"--define={name}={value}" for name, value in sorted(defines.items())),
        *(f"--host_copt={flag}" for flag in (*recipe.host_copt, *march)),
        *_python(recipe, facts),
        *recipe.extra,
        target,
    ]


def left_out(recipe: Recipe, facts: ToolchainFacts) -> tuple[str, ...]:
    """Return what the recipe asks for and the tree doesn't need or know, each with its reason."""
    notes = []
    if recipe.numa and not _numa_known(facts):
        notes.append("--config=numa left out: the tree's .bazelrc does not define it")
    if recipe.tf_api_version is not None and facts.api_by_config:
        notes.append(
            f"--config=v{recipe.tf_api_version} in place of --define=tf_api_version: the tree "
            "chooses its API by configuration"
        )
    if recipe.xla and facts.xla_by_default:
        notes.append("--define=with_xla_support=true left out: XLA is on by default")
    return tuple(notes)


def _numa_known(facts: ToolchainFacts) -> bool:
    return not facts.configs or "numa" in facts.configs


def _action_env(recipe: Recipe, facts: ToolchainFacts) -> Iterator[tuple[str, str]]:
    ours = {}
    if recipe.cuda and not facts.hermetic_cuda:
        ours["CUDA_TOOLKIT_PATH"] = recipe.cuda_path
        if recipe.compute_capabilities:
            ours["TF_CUDA_COMPUTE_CAPABILITIES"] = ",".join(recipe.compute_capabilities)
    yield from {**ours, **recipe.action_env}.items()


def _configs(recipe: Recipe, facts: ToolchainFacts) -> Iterator[str]:
    if recipe.cuda:
        yield "cuda"
        if "cuda_wheel" in facts.configs and facts.target.endswith(":wheel"):
            yield "cuda_wheel"
    if recipe.mkl:
        yield "mkl"
    if recipe.numa and _numa_known(facts):
        yield "numa"
    if recipe.tensorrt:
        yield "tensorrt"
    if recipe.tf_api_version is not None and facts.api_by_config:
        # The tree's own --config=v2 sets variables as well, which a define would leave as they are.
        yield f"v{recipe.tf_api_version}"


def _defines(recipe: Recipe, facts: ToolchainFacts) -> dict[str, str]:
    ours = {}
    if recipe.tf_api_version is not None and not facts.api_by_config:
        ours["tf_api_version"] = str(recipe.tf_api_version)
    if recipe.xla and not facts.xla_by_default:
        ours["with_xla_support"] = "true"
    return {**ours, **recipe.define}


def _python(recipe: Recipe, facts: ToolchainFacts) -> Iterator[str]:
    """Yield how the tree is told its Python, and its CUDA where that is chosen the same way."""
    if facts.hermetic_python:
        version = re.search(r"python(\d+\.\d+)$", recipe.python)
        if version:
            yield f"--repo_env=HERMETIC_PYTHON_VERSION={version[1]}"
    elif recipe.python.startswith("/"):
        yield f"--python_path={recipe.python}"
    if recipe.cuda and facts.hermetic_cuda and recipe.compute_capabilities:
        chosen = ",".join(_hermetic_capability(each) for each in recipe.compute_capabilities)
        yield f"--repo_env=HERMETIC_CUDA_COMPUTE_CAPABILITIES={chosen}"


def _hermetic_capability(capability: str) -> str:
    return capability if "_" in capability else f"sm_{capability.replace('.', '')}"


def _problems(recipe: Recipe) -> Iterator[BadInputError]:
    yield from _combinations(recipe)
    yield from _words(recipe)
    try:
        check_remote_cache(recipe.remote_cache, "recipe: remote_cache")
    except BadInputError as error:
        yield _refuse("remote_cache", recipe.remote_cache, error.message.partition(": give ")[2])
    if recipe.remote_cache and recipe.docker and not recipe.network:
        yield _refuse(
            "remote_cache",
            recipe.remote_cache,
            "a container without network can't reach it; set network = true",
        )


def _era_problems(recipe: Recipe, facts: ToolchainFacts) -> Iterator[BadInputError]:
    """Yield what is asked for and can't be had from a tree."""
    if recipe.tensorrt and not facts.tensorrt:
        yield _refuse("tensorrt", True, "TensorRT was removed in TensorFlow 2.18; leave it out")
    if recipe.mkl and facts.configs and "mkl" not in facts.configs:
        yield _refuse("mkl", True, "the tree's .bazelrc has no --config=mkl; leave it out")
    if recipe.tf_api_version == 1 and not facts.api_v1:
        yield _refuse("tf_api_version", 1, "this tree has the API of version 2 only")


def _combinations(recipe: Recipe) -> Iterator[BadInputError]:
    if recipe.tensorrt and not recipe.cuda:
        yield _refuse("tensorrt", True, "TensorRT needs CUDA; set cuda = true or leave it out")
    if recipe.compute_capabilities and not recipe.cuda:
        yield _refuse(
            "compute_capabilities",
            list(recipe.compute_capabilities),
            "they need CUDA; set cuda = true or leave them out",
        )
    if recipe.march:
        for name, flags in (("copt", recipe.copt), ("host_copt", recipe.host_copt)):
            if any(flag.startswith("-march=") for flag in flags):
                yield _refuse(name, list(flags), f"march = '{recipe.march}' sets -march already")
    for name, value in (
        ("tf_api_version", str(recipe.tf_api_version) if recipe.tf_api_version else None),
        ("with_xla_support", "true" if recipe.xla else None),
    ):
        if value is not None and recipe.define.get(name, value) != value:
            yield _refuse("define", recipe.define, f"{name} is set to {value} by its own option")


def _words(recipe: Recipe) -> Iterator[BadInputError]:
    if recipe.tf_api_version not in (None, 1, 2):
        yield _refuse("tf_api_version", recipe.tf_api_version, "it is 1 or 2")
    if recipe.march and not _MARCH.fullmatch(recipe.march):
        yield _refuse("march", recipe.march, "give a CPU name as gcc knows it, e.g. broadwell")
    for capability in recipe.compute_capabilities:
        if not _CAPABILITY.fullmatch(capability):
            yield _refuse("compute_capabilities", capability, "give e.g. 7.0, or sm_70")
    for name in recipe.action_env:
        if not _NAME.fullmatch(name):
            yield _refuse("action_env", name, "give a name of an environment variable")
    for name in recipe.define:
        if not _DEFINE.fullmatch(name):
            yield _refuse("define", name, "give a name of letters, digits and _")
    if recipe.target != "auto" and not _LABEL.fullmatch(recipe.target):
        yield _refuse("target", recipe.target, "give one label, e.g. //package:name, or auto")
    for flag in recipe.extra:
        if not _OPTION.fullmatch(flag):
            yield _refuse(
                "extra", flag, "each is one option of bazel build, e.g. --verbose_failures"
            )


def _refuse(field: str, value: object, why: str) -> BadInputError:
    return BadInputError(f"recipe: {field} = {value!r}: {why}", field=field, value=value)
