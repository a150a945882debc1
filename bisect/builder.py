"""Revision + recipe -> wheel: with Docker or on this machine, by Bazel, pip or any command."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfbisect.building.artifacts import NoResultError, result_of, sha256_of
from perfbisect.building.bazel_binaries import BazelBinaries
from perfbisect.building.checkout import empty, remove, slot
from perfbisect.building.distdirs import distdirs
from perfbisect.building.docker_place import DockerPlace
from perfbisect.building.failures import classify, read_log
from perfbisect.building.images import Images
from perfbisect.building.kept_tree import KeptTree
from perfbisect.building.local_place import LocalPlace
from perfbisect.building.place import Directories, Place, Step, StepResult, Stopped
from perfbisect.building.steps import steps_of
from perfbisect.building.warm import WarmContainers, remove_orphans
from perfbisect.containers import Docker
from perfbisect.core.bazel_flags import check_options, left_out
from perfbisect.core.bazel_machine import Machine
from perfbisect.core.eras import toolchain_of
from perfbisect.core.recipe import RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.core.toolchain import TOOLCHAIN_FILES, ToolchainFacts, toolchain_facts
from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.git.process import Git
from perfbisect.overruns import words_of
from perfbisect.ports import (
    BuildRequest,
    BuildSuccess,
    CancelledWork,
    CancelToken,
    Failure,
)
from perfbisect.processes import kill_leftovers
from perfbisect.resources import dockerfiles_dir
from perfbisect.units import format_duration, parse_size

_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class BuilderSettings:
    """What the builder is told about this machine."""

    #: Docker engine URL; empty: from the environment (DOCKER_HOST) or the default socket.
    docker_host: str = ""
    #: Processes that compile at once; 0: as many as there are cores.
    jobs: int = 0
    #: Cache that several machines share, for recipes that name none; empty: none.
    remote_cache: str = ""
    #: Archives that builds need not download; None: ``distdir`` in the cache directory.
    distdir: Path | None = None
    #: Containers with a Bazel server that are kept between builds; 0: none.
    warm_servers: int = 1
    #: Directory of Dockerfiles; None: those that travel with the package.
    dockerfiles: Path | None = None


def make_builder(settings: BuilderSettings | None = None) -> RecipeBuilder:
    """Return the builder of this machine; nothing is started or connected until it builds."""
    return RecipeBuilder(settings or BuilderSettings())


class RecipeBuilder:
    """Builds by any recipe. Implements ``ports.Builder``."""

    def __init__(self, settings: BuilderSettings) -> None:
        self._settings = settings
        self._warm = WarmContainers(settings.warm_servers)

    def close(self) -> None:
        """Remove the containers that are kept between builds."""
        self._warm.close()

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        """Build, streaming the log to ``request.log_path``.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        started = time.monotonic()
        try:
            result: BuildSuccess | Failure = self._build(request, cancel)
        except Stopped as stopped:
            result = stopped.failure
        except (PerfbisectError, OSError) as error:
            if cancel.cancelled:
                raise CancelledWork from error
            result = failure_of(error)
        if isinstance(result, Failure):
            with contextlib.suppress(OSError):
                _say(request.log_path, f"[failed ({result.kind}): {result.cause}]")
        return replace(result, seconds=time.monotonic() - started)

    def _build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess:
        recipe = request.recipe
        if recipe.kind is RecipeKind.BAZEL:
            check_options(recipe)
        epoch = int(Git(request.mirror).text("show", "-s", "--format=%ct", request.commit, "--"))
        with self._directories(request) as directories:
            kept = KeptTree(directories.src)
            told = kept.update(request.mirror, request.tree, request.commit)
            facts = read_facts(directories.src)
            self._introduce(request, facts, str(told))
            with self._place(request, directories, facts, cancel, epoch) as place:
                machine = self._machine(request, place, directories)
                steps = steps_of(recipe, facts, place, directories.home, epoch, machine)
                place.prepare()
                if recipe.docker:
                    kept.settle()
                deadline = time.monotonic() + recipe.timeout
                for step in steps:
                    _run(step, place, request, deadline - time.monotonic())
                return _success(request, directories, place, facts, steps, epoch)

    @contextlib.contextmanager
    def _directories(self, request: BuildRequest) -> Iterator[Directories]:
        """Lend the directories of a build: all fresh, but a kept tree for Bazel."""
        recipe, work = request.recipe, request.work_dir
        kept = request.cache_dir / ("docker" if recipe.docker else "local")
        fresh = Directories(
            src=work / "src",
            out=work / "out",
            home=work / "home",
            cache=kept / "shared",
            bazel_root=work / "bazel",
            distdir=self._settings.distdir or request.cache_dir / "distdir",
        )
        for stale in (fresh.src, fresh.out, fresh.home):
            remove(stale)
        if recipe.kind is not RecipeKind.BAZEL:
            fresh.create()
            yield fresh
            return
        name = f"{request.mirror.stem}-{recipe.toolchain}"
        with slot(kept / "trees", name) as tree:
            directories = replace(
                fresh,
                src=tree / "src",
                out=tree / "out",
                home=tree / "home",
                bazel_root=tree / "bazel",
            )
            # A container that was kept has these very directories mounted: they must stay.
            empty(directories.out)
            empty(directories.home)
            directories.create()
            os.utime(tree)
            yield directories

    def _introduce(self, request: BuildRequest, facts: ToolchainFacts, checkout: str) -> None:
        """Open the log with what is built, and why in this way."""
        lines = [f"[{request.recipe.name}: tree {request.tree} on commit {request.commit}]"]
        lines += [f"[carried along: {change}]" for change in request.carried]
        lines.append(f"[{checkout}]")
        if request.recipe.kind is RecipeKind.BAZEL:
            reasons = (*facts.reasons, *left_out(request.recipe, facts))
            if request.recipe.docker:
                reasons = (*reasons, f"toolchain: {toolchain_of(request.recipe, facts)}")
            lines += [f"[{reason}]" for reason in reasons]
        _say(request.log_path, *lines)

    @contextlib.contextmanager
    def _place(
        self,
        request: BuildRequest,
        directories: Directories,
        facts: ToolchainFacts,
        cancel: CancelToken,
        epoch: int,
    ) -> Iterator[Place]:
        binaries = BazelBinaries(request.cache_dir, request.id)
        jobs = self._settings.jobs
        if not request.recipe.docker:
            yield LocalPlace(request, directories, binaries, cancel, epoch=epoch, jobs=jobs)
            return
        with Docker(self._settings.docker_host) as docker:
            dockerfiles = self._settings.dockerfiles or dockerfiles_dir()
            images = Images(docker, dockerfiles, request.cache_dir / "docker" / "images")
            bazel = request.recipe.kind is RecipeKind.BAZEL
            place = DockerPlace(
                request,
                directories,
                docker,
                images,
                binaries,
                cancel,
                toolchain=toolchain_of(request.recipe, facts),
                epoch=epoch,
                jobs=jobs,
                warm=self._warm if bazel and self._settings.warm_servers else None,
                docker_host=self._settings.docker_host,
            )
            with contextlib.closing(place):
                yield place

    def _machine(self, request: BuildRequest, place: Place, directories: Directories) -> Machine:
        """Return what of this machine Bazel is told."""
        recipe = request.recipe
        remote = recipe.remote_cache or self._settings.remote_cache
        if remote and recipe.docker and not recipe.network:
            _say(request.log_path, "[remote cache left out: the build has no network]")
            remote = ""
        inside = [str(path.relative_to(directories.distdir)) for path in distdirs(directories)]
        return Machine(
            remote_cache=remote,
            distdirs=tuple(
                place.paths.distdir if each == "." else f"{place.paths.distdir}/{each}"
                for each in inside
            ),
            memory=parse_size(recipe.memory, "memory") if recipe.memory else 0,
            cpus=recipe.cpus,
        )


def remove_leftovers(prefix: str, docker_host: str = "") -> int:
    """End what a killed perfbisect left running of work whose id starts with ``prefix``.

    Containers can only be found where the engine answers; where it does not, none runs.

    Returns:
        How many processes and containers were removed.

    Raises:
        BadInputError: the prefix is empty, which would name everybody's work.
    """
    removed = kill_leftovers(prefix)
    with contextlib.suppress(TransientError), Docker(docker_host) as docker:
        removed += docker.remove_leftovers(prefix)
        # Kept containers belong to no single piece of work: they go with their process.
        remove_orphans(docker)
    return removed


def read_facts(src: Path) -> ToolchainFacts:
    """Return the facts of a tree on disk."""
    files = {}
    for name in TOOLCHAIN_FILES:
        path = src / name
        # A link in the tree may lead anywhere on this machine.
        if path.is_file() and path.resolve().is_relative_to(src.resolve()):
            files[name] = path.read_text("utf-8", errors="replace")
    return toolchain_facts(files)


def failure_of(error: PerfbisectError | OSError) -> Failure:
    """Say whose fault an exception is: a full disk passes, a wrong recipe does not."""
    if isinstance(error, OSError):
        if error.errno in _FULL_DISK:
            advice = "Free space where the caches and work directories are."
            return Failure(FailureKind.TRANSIENT, "the disk is full", (str(error),), advice)
        return Failure(FailureKind.OURS, f"this machine can't build: {error}")
    kind = FailureKind.TRANSIENT if isinstance(error, TransientError) else FailureKind.OURS
    if isinstance(error, BadInputError) and error.field == "tree":
        kind = FailureKind.PERMANENT
    return Failure(kind, error.message)


def _say(log_path: Path, *lines: str) -> None:
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("a", encoding="utf-8", errors="replace") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _run(step: Step, place: Place, request: BuildRequest, timeout: float) -> None:
    """Run a step; anything but success unwinds the build."""
    _say(request.log_path, f"$ {step.shown}")
    start = request.log_path.stat().st_size
    result = place.run(step, max(timeout, 0.0))
    if result.cancelled:
        raise CancelledWork
    if result.returncode == 0 and not result.timed_out and not result.log_error:
        return
    raise Stopped(_why(step, place, result, request, start))


def _why(
    step: Step, place: Place, result: StepResult, request: BuildRequest, start: int
) -> Failure:
    recipe = request.recipe
    network = recipe.network or not recipe.docker
    if result.log_error:
        cause = f"the log can't be written: {result.log_error}"
        return Failure(FailureKind.TRANSIENT, cause, advice="Free space where the logs are.")
    told = classify(
        read_log(request.log_path, start, root=place.paths.src),
        summary=f"'{_shortened(step.shown)}' ended with status {result.returncode}",
        network_allowed=network,
    )
    if result.timed_out:
        cause = f"the build took longer than {format_duration(recipe.timeout)}"
        advice = "Raise the recipe's timeout if other revisions need about as long."
        return Failure(FailureKind.PERMANENT, cause, told.lines, advice)
    if result.overrun is not None:
        words = words_of(result.overrun)
        return Failure(words.kind, words.cause, told.lines, words.advice)
    if result.out_of_memory:
        cause = f"the build needs more memory than its limit of {recipe.memory or 'the machine'}"
        advice = "Give the build more memory (recipe: memory), or fewer jobs at once (cpus)."
        return Failure(FailureKind.TRANSIENT, cause, told.lines, advice)
    return told


def _taken_out(result: Path, out: Path) -> Path:
    """Move a result to the build's own directory: the kept tree goes to the next build."""
    if result.is_relative_to(out):
        return result
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(result, out / result.name))


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"


def _success(
    request: BuildRequest,
    directories: Directories,
    place: Place,
    facts: ToolchainFacts,
    steps: list[Step],
    epoch: int,
) -> BuildSuccess:
    try:
        path = _taken_out(result_of(directories.out, epoch=epoch), request.work_dir / "out")
    except NoResultError as error:
        kind = FailureKind.OURS if "wheels" in str(error) else FailureKind.PERMANENT
        raise Stopped(Failure(kind, str(error))) from error
    environment: dict[str, Any] = {
        **place.environment,
        "commands": [step.shown for step in steps],
        "source_date_epoch": epoch,
        "jobs": place.jobs,
    }
    if request.carried:
        environment["carried"] = list(request.carried)
    if request.recipe.kind is RecipeKind.BAZEL:
        environment["facts"] = list(facts.reasons)
    return BuildSuccess(path, sha256_of(path), path.stat().st_size, 0.0, environment)
