"""The steps of each kind of recipe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from perfbisect.building.artifacts import ARTIFACTS
from perfbisect.building.place import Place, Step, Stopped
from perfbisect.core.bazel_flags import bazel_command
from perfbisect.core.bazel_machine import Machine, machine_flags
from perfbisect.core.python_releases import requirements_date
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.core.toolchain import ToolchainFacts, makes_script, output_path
from perfbisect.ports import Failure

#: Name of the file of build constraints in the build's home.
CONSTRAINTS = "build-constraints.txt"
#: Seconds after which a Bazel server that nobody uses ends by itself.
_SERVER_IDLE = 3600

_ALONE = Machine()


def steps_of(
    recipe: Recipe,
    facts: ToolchainFacts,
    place: Place,
    home: Path,
    epoch: int,
    machine: Machine = _ALONE,
) -> list[Step]:
    """Return the commands that build a tree, in order.

    Args:
        recipe: what to build and how.
        facts: of the tree.
        place: where the commands will run.
        home: the build's home as this machine sees it; files that the commands need go there.
        epoch: date of the commit, seconds since 1970.
        machine: caches and limits of the machine, for Bazel.

    Raises:
        Stopped: the tree can't be built by this recipe.
        BadInputError: the recipe contradicts itself or the tree.
    """
    if recipe.kind is RecipeKind.BAZEL:
        return _bazel(recipe, facts, place, home, machine)
    if recipe.kind is RecipeKind.PIP_WHEEL:
        return _pip_wheel(recipe, place, home, epoch)
    return _command(recipe, place)


def _bazel(
    recipe: Recipe, facts: ToolchainFacts, place: Place, home: Path, machine: Machine
) -> list[Step]:
    if recipe.target == "auto" and not facts.target:
        reason = "this tree has no target that makes a wheel"
        raise Stopped(Failure(FailureKind.PERMANENT, reason, facts.reasons))
    version = facts.bazel if recipe.bazel == "auto" else recipe.bazel
    program, found = place.bazel(version)
    command = bazel_command(recipe, facts)
    (home / ".bazelrc").write_text(bazelrc(place, found, machine))
    text = shlex.join(command)
    return [Step((program, *command[1:]), text=text), *_after_bazel(recipe, command[-1], place)]


def _after_bazel(recipe: Recipe, label: str, place: Place) -> list[Step]:
    """Return how what Bazel built gets out of its tree."""
    out = place.paths.out
    if recipe.artifacts:
        return [_copy(recipe.artifacts, out)]
    built = output_path(label)
    if makes_script(label):
        return [Step((built, out))]
    folder = built.rpartition("/")[0]
    script = f"find -L {shlex.quote(folder)} -name '*.whl' -exec cp -f {{}} {shlex.quote(out)} \\;"
    return [Step(("/bin/sh", "-c", script), text=script)]


def bazelrc(place: Place, version: str = "", machine: Machine = _ALONE) -> str:
    """Return the rc file for the build's home: what concerns this machine and not the wheel.

    Startup options are here too, so that the command line stays the recipe's own. Without a server
    (``--batch``) nothing is left running.

    Args:
        place: where Bazel runs.
        version: of Bazel.
        machine: further caches, and limits.
    """
    cache, key = f"{place.paths.cache}/bazel", place.toolchain_key
    server = f"--max_idle_secs={_SERVER_IDLE}" if place.keeps_server else "--batch"
    further = "".join(f"build {flag}\n" for flag in machine_flags(version, machine))
    return (
        f"startup {server} --output_user_root={place.paths.bazel_root}/{key}\n"
        f"build --disk_cache={cache}/disk-{key} --repository_cache={cache}/repository\n"
        f"{further}"
        f"build --jobs={place.jobs}\n"
        "build --color=no --curses=no --show_progress_rate_limit=5\n"
    )


def _pip_wheel(recipe: Recipe, place: Place, home: Path, epoch: int) -> list[Step]:
    if recipe.subdirectory.startswith("/") or ".." in recipe.subdirectory.split("/"):
        cause = f"subdirectory = {recipe.subdirectory!r} leads out of the repository"
        raise Stopped(Failure(FailureKind.OURS, cause))
    argv = [place.uv, "build", "--wheel", "--no-progress", "--python", place.python]
    argv += ["--out-dir", place.paths.out]
    if recipe.as_of == "commit":
        date = requirements_date(epoch, place.python_version())
        argv += ["--exclude-newer", date.isoformat()]
    if recipe.build_requirements:
        (home / CONSTRAINTS).write_text("\n".join(recipe.build_requirements) + "\n")
        argv += ["--build-constraints", f"{place.paths.home}/{CONSTRAINTS}"]
    env = {
        "UV_CACHE_DIR": f"{place.paths.cache}/uv",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "copy",
    }
    return [Step((*argv, recipe.subdirectory), env, _shown_uv(argv, recipe))]


def _shown_uv(argv: Sequence[str], recipe: Recipe) -> str:
    return shlex.join(["uv", *argv[1:], recipe.subdirectory])


def _command(recipe: Recipe, place: Place) -> list[Step]:
    if not recipe.command.strip():
        raise Stopped(Failure(FailureKind.OURS, "recipe: command is empty; say what builds"))
    text = recipe.command
    for name, value in (
        ("out", place.paths.out),
        ("python", place.python),
        ("jobs", str(place.jobs)),
    ):
        text = text.replace("{" + name + "}", shlex.quote(value))
    steps = [Step(("/bin/sh", "-e", "-c", text), text=text)]
    if recipe.artifacts:
        steps.append(_copy(recipe.artifacts, place.paths.out))
    return steps


def _copy(globs: Sequence[str], out: str) -> Step:
    """Return the step that copies what the globs match, links followed, paths kept."""
    chosen = " ".join(_quoted_glob(glob) for glob in globs)
    target = shlex.quote(f"{out}/{ARTIFACTS}")
    script = (
        f"shopt -s globstar failglob; mkdir -p {target} && cp -rL --parents -- {chosen} {target}/"
    )
    return Step(("bash", "-c", script), text=script)


def _quoted_glob(glob: str) -> str:
    """Quote all but ``*``, ``?``, ``[…]`` and ``{…}`` for the shell."""
    if glob.startswith("/") or ".." in glob.split("/"):
        cause = f"artifacts = {glob!r} leads out of the repository"
        raise Stopped(Failure(FailureKind.OURS, cause))
    return re.sub(r"[^A-Za-z0-9_./*?\[\]{},+@%-]", lambda match: "\\" + match[0], glob)
