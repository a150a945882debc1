"""Builds on this machine, in clean directories and with a small environment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import uv

from perfbisect.building.bazel_binaries import BazelBinaries
from perfbisect.building.place import (
    Directories,
    Paths,
    Step,
    StepResult,
    Stopped,
    network_environment,
    parse_python_version,
    step_environment,
)
from perfbisect.core.recipe import Recipe, digest_of
from perfbisect.core.states import FailureKind
from perfbisect.ports import BuildRequest, CancelToken, Failure
from perfbisect.processes import run_process


class LocalPlace:
    """Runs steps as processes of this machine. Implements ``Place``."""

    def __init__(
        self,
        request: BuildRequest,
        directories: Directories,
        binaries: BazelBinaries,
        cancel: CancelToken,
        *,
        epoch: int,
        jobs: int,
    ) -> None:
        self._request = request
        self._directories = directories
        self._binaries = binaries
        self._cancel = cancel
        self._epoch = epoch
        self._program = _find_python(request.recipe.python)
        self._jobs = _jobs(request.recipe, jobs)
        self._bin = _stable_bin(directories.cache, self._program)
        self._bazel: dict[str, str] = {}

    @property
    def paths(self) -> Paths:
        """The directories as they are."""
        own = self._directories
        named = (own.src, own.out, own.home, own.cache, own.bazel_root, own.distdir)
        return Paths(*map(str, named))

    @property
    def python(self) -> str:
        """The Python of the build."""
        return self._program

    @property
    def uv(self) -> str:
        """The uv that is installed with perfbisect."""
        return str(uv.find_uv_bin())

    @property
    def jobs(self) -> int:
        """How many processes may compile at once."""
        return self._jobs

    @property
    def environment(self) -> dict[str, Any]:
        """Versions of what built here."""
        versions = {
            "python": self._version(self._program, "--version"),
            "gcc": self._version("gcc", "--version"),
        }
        return {"docker": False, **versions, **self._bazel}

    def prepare(self) -> None:
        """This machine is as it is."""

    def python_version(self) -> tuple[int, int] | None:
        """Return the version of the Python of the build."""
        return parse_python_version(self._version(self._program, "--version"))

    @property
    def toolchain_key(self) -> str:
        """Digest of what the compilers say of themselves."""
        compilers = [self._version(name, "--version") for name in ("gcc", "g++", "clang", "ld")]
        return digest_of([self._program, *compilers])[:20]

    def bazel(self, version: str) -> tuple[str, str]:
        """Return a Bazel of this version, fetched if need be."""
        found = self._binaries.find(version, self._request.recipe.bazel_binary, self._cancel)
        self._bazel = {"bazel": found.version, "bazel_binary": str(found.path)}
        return str(found.path), found.version

    @property
    def keeps_server(self) -> bool:
        """No: nothing of a build is left running on the machine itself."""
        return False

    def run(self, step: Step, timeout: float) -> StepResult:
        """Run a step as a process tree, killed on timeout and cancel."""
        done = run_process(
            step.argv,
            cwd=self._directories.src,
            env=self._variables(step),
            timeout=timeout,
            cancel=self._cancel,
            marker=self._request.id,
            log_path=self._request.log_path,
        )
        return StepResult(
            done.returncode,
            timed_out=done.timed_out,
            cancelled=done.cancelled,
            overrun=done.overrun,
            log_error=done.log_error,
        )

    def _variables(self, step: Step) -> dict[str, str]:
        return {
            **network_environment(),
            "PATH": f"{self._bin}:{_path()}",
            **step_environment(self, self._request.recipe.env, self._epoch),
            **step.env,
        }

    def _version(self, *argv: str) -> str:
        """Return the first line a program says of itself, or an empty string."""
        done = run_process(
            argv,
            cwd=self._directories.home,
            env={"PATH": f"{self._bin}:{_path()}"},
            timeout=20.0,
            cancel=self._cancel,
            marker=self._request.id,
        )
        return done.tail.strip().partition("\n")[0] if done.ok else ""


def _path() -> str:
    """Return PATH without the shims of version managers, which need their user's home."""
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in given if not part.rstrip("/").endswith("/shims"))


def _find_python(name: str) -> str:
    """Return the interpreter's path; ``python3`` is the one that perfbisect runs on."""
    if name == "python3":
        base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        return str(base) if base.exists() else sys.executable
    found = shutil.which(name, path=_path())
    if found is None:
        cause = f"there is no Python '{name}' on this machine"
        advice = "Install it, or give the recipe's python as a path."
        raise Stopped(Failure(FailureKind.OURS, cause, advice=advice))
    return found


def _jobs(recipe: Recipe, jobs: int) -> int:
    available = jobs or len(os.sched_getaffinity(0))
    return max(1, min(available, int(recipe.cpus)) if recipe.cpus else available)


def _stable_bin(cache: Path, python: str) -> Path:
    """Return a directory in which ``python3`` is the Python of the build.

    It is the same for all builds, because PATH is part of what Bazel's cache goes by.
    """
    directory = cache / "bin" / python.strip("/").replace("/", "-")
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("python3", "python"):
        link = directory / name
        if not link.exists():
            temporary = directory / f".{name}-{os.getpid()}"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(python)
            temporary.replace(link)
    return directory
