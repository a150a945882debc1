"""A clean Python environment for each (wheel, requirements, interpreter), made by uv and kept.

What is installed is byte-compiled at once, so that the first run is like every other.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from perfbisect.core.recipe import digest_of
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.processes import ProcessResult
from perfbisect.publishing.access import index_access
from perfbisect.running.failures import failed
from perfbisect.running.leases import LeasedDirectories
from perfbisect.running.wheels import importable_module
from perfbisect.units import format_duration

#: Seconds that an installation may take.
INSTALL_TIMEOUT = 1800.0
#: Seconds that the wheel's own module may take to import.
IMPORT_TIMEOUT = 300.0

#: Variables by which users tell how to reach package indexes.
_PASSED_ON = re.compile(r"(?i)(https?|all|no)_proxy|ssl_cert_(file|dir)|uv_.*|netrc")
#: uv's words for trouble on the way to an index, rather than with what was asked for.
_NETWORK = re.compile(
    r"(?i)error sending request|failed to (fetch|download)|connection (refused|reset|closed)"
    r"|timed out|timeout|dns error|name resolution|\btls\b|certificate|\b50[234]\b|unreachable"
)
_HOST = re.compile(r"(?i)no space left|disk quota|read-only file system|too many open files")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an environment is made of."""

    #: Wheel file; None: requirements only.
    wheel: Path | None
    wheel_sha256: str
    requirements: tuple[str, ...]
    #: Interpreter: a path or a name that uv finds.
    python: str
    #: Options of ``uv pip install``.
    options: tuple[str, ...] = ()
    #: What else makes the environment another one, e.g. the image it is for.
    identity: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Equal keys share one environment."""
        what = {
            "wheel": self.wheel_sha256 if self.wheel else "",
            "requirements": sorted(self.requirements),
            "python": self.python,
            "options": list(self.options),
            **self.identity,
        }
        return digest_of(what)[:32]


class Installer(Protocol):
    """Where an environment is made: on this machine, or in containers."""

    #: Program uv with its leading arguments.
    uv: tuple[str, ...]

    def prepare(self, environment: Path) -> str:
        """Get ready to fill an empty directory; return its path as the programs see it."""
        ...

    def wheel_path(self, wheel: Path) -> str:
        """Return the wheel's path as the programs see it."""
        ...

    def variables(self) -> Mapping[str, str]:
        """Return uv's environment variables."""
        ...

    def install(
        self, argv: Sequence[str], env: Mapping[str, str], timeout: float, *, quiet: bool = False
    ) -> ProcessResult:
        """Run a step to its end, its output going to the run's log unless ``quiet``."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that is held until its lease ends."""

    path: Path
    #: ``python`` (version) and ``packages`` (name -> version): what was really installed.
    facts: Mapping[str, Any]


@contextmanager
def lease_environment(
    directories: LeasedDirectories, wanted: Wanted, installer: Installer, cancel: CancelToken
) -> Iterator[Environment]:
    """Hold an environment, made now if there is none yet.

    Args:
        directories: where environments are kept.
        wanted: what it is made of.
        installer: where uv and the import check run.
        cancel: ends the installation.

    Raises:
        RunFailed: permanent where the wheel can't be installed or imported; transient where an
            index can't be reached; ours where the benchmark's requirements can't be met.
        CancelledWork: the token asked for the end.
    """

    def fill(directory: Path) -> Mapping[str, Any]:
        return _Installation(wanted, installer, directory).make()

    with directories.lease(wanted.key, fill, cancel) as (path, facts):
        yield Environment(path, facts)


def choose_python(wheel: Path | None, directories: Sequence[str]) -> str:
    """Return the interpreter for a wheel: the one that runs perfbisect where it fits.

    Args:
        wheel: its name says which Pythons it is for; None: any.
        directories: where to look for other interpreters (``PATH``).

    Raises:
        RunFailed: permanent: this machine has no interpreter for this wheel.
    """
    if wheel is None:
        return sys.executable
    try:
        tags = parse_wheel_filename(wheel.name)[3]
    except InvalidWheelFilename as error:
        raise failed(FailureKind.PERMANENT, f"{wheel.name} is no name of a wheel") from error
    if tags & set(sys_tags()):
        return sys.executable
    versions = sorted({tag.interpreter for tag in tags})
    for version in versions:
        if match := re.fullmatch(r"(?:cp|py)(\d)(\d+)", version):
            found = _find_python(f"{match[1]}.{match[2]}", directories)
            if found:
                return found
    cause = f"{wheel.name} is for {', '.join(versions)} on {', '.join({t.platform for t in tags})}"
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    advice = f"perfbisect runs on {own}; install a Python that fits, so that it is on PATH"
    raise failed(FailureKind.PERMANENT, f"{cause}, and no such Python is here", advice=advice)


def _find_python(version: str, directories: Sequence[str]) -> str:
    """Return the path of an interpreter of this version, or an empty string."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    # pyenv's shims are on PATH for versions that are not active, and then don't run.
    listed = [Path(directory) for directory in directories if not directory.endswith("/shims")]
    for directory in [*listed, *sorted(pyenv.glob(f"{version}.*/bin"), reverse=True)]:
        program = directory / f"python{version}"
        if os.access(program, os.X_OK):
            return str(program)
    return ""


def installer_variables(uv_cache: str, home: str, path: str, index_url: str = "") -> dict[str, str]:
    """Return uv's environment: how to reach indexes, and nothing else of the user's.

    Args:
        uv_cache: directory of uv's cache.
        home: home directory.
        path: where programs are looked for.
        index_url: package index that is asked before the machine's own; empty: there is none.

    Raises:
        BadInputError: the index, or pip's configuration of it, can't be right.
    """
    passed = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    return {
        "PATH": path,
        "LANG": "C.UTF-8",
        # pip's configuration too: that is where published wheels are looked up.
        **index_access().installer_variables(),
        **passed,
        **_given_index(index_url, passed.get("UV_INDEX", "")),
        "HOME": home,
        "UV_CACHE_DIR": uv_cache,
        "NO_COLOR": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def _given_index(url: str, others: str) -> dict[str, str]:
    """Return the variable that puts an index in front of others."""
    if not url:
        return {}
    given = index_access(url).installer_variables()["UV_INDEX"]
    return {"UV_INDEX": f"{given} {others}".rstrip()}


class _Installation:
    """The steps that fill an empty directory."""

    def __init__(self, wanted: Wanted, installer: Installer, directory: Path) -> None:
        self._wanted = wanted
        self._installer = installer
        self._path = installer.prepare(directory)
        self._python = f"{self._path}/bin/python"
        self._env = installer.variables()

    def make(self) -> Mapping[str, Any]:
        """Create the environment, install, import, and return what was installed."""
        # Made in place: --allow-existing, as the directory is there and empty.
        created = self._uv("venv", "--allow-existing", "--python", self._wanted.python, self._path)
        if not created.ok:
            cause = f"no environment can be made with Python {self._wanted.python}"
            raise self._failure(created, FailureKind.OURS, cause)
        self._install()
        self._check_import()
        self._forget_wheel()
        return self._facts()

    def _uv(self, *arguments: str, quiet: bool = False) -> ProcessResult:
        argv = [*self._installer.uv, *arguments]
        return self._installer.install(argv, self._env, INSTALL_TIMEOUT, quiet=quiet)

    def _install(self) -> None:
        path = self._wanted.wheel
        wheel = [self._installer.wheel_path(path)] if path else []
        if not wheel and not self._wanted.requirements:
            return
        into = ("--python", self._python, "--compile-bytecode")
        install = ("pip", "install", *into, *self._wanted.options)
        result = self._uv(*install, *wheel, *self._wanted.requirements)
        if result.ok:
            return
        if wheel and self._wanted.requirements and not _is_outside(result):
            # Whose fault is it? If the requirements can't be met alone, they are wrong.
            alone = self._uv(*install, "--dry-run", *self._wanted.requirements)
            if not alone.ok:
                wheel, result = [], alone
        if wheel:
            raise self._failure(result, FailureKind.PERMANENT, "the wheel can't be installed")
        names = ", ".join(Requirement(text).name for text in self._wanted.requirements)
        cause = f"the benchmark's requirements can't be installed: {names}"
        raise self._failure(result, FailureKind.OURS, cause)

    def _check_import(self) -> None:
        """Import the wheel's own module once: a wheel that can't be is broken for good."""
        module = importable_module(self._wanted.wheel) if self._wanted.wheel else ""
        if not module:
            return
        result = self._in_python(f"import {module}", IMPORT_TIMEOUT)
        if not result.ok:
            cause = f"the wheel can't be imported: import {module}"
            raise self._failure(result, FailureKind.PERMANENT, cause, network=False)

    def _forget_wheel(self) -> None:
        """Remove the wheel from uv's cache: it has served, and would only fill the disk.

        Its dependencies stay, as the next wheel most likely has the same.
        """
        if self._wanted.wheel is None:
            return
        name = parse_wheel_filename(self._wanted.wheel.name)[0]
        if self._uv("cache", "clean", name, quiet=True).cancelled:
            raise CancelledWork

    def _in_python(self, program: str, timeout: float, *, quiet: bool = False) -> ProcessResult:
        argv = [self._python, "-I", "-c", program]
        env = {"LANG": "C.UTF-8", "HOME": "/nonexistent", "PATH": os.defpath}
        return self._installer.install(argv, env, timeout, quiet=quiet)

    def _facts(self) -> Mapping[str, Any]:
        listing = ("pip", "list", "--python", self._python, "--format", "json", "--quiet")
        listed = self._uv(*listing, quiet=True)
        version = self._in_python(
            "import platform; print(platform.python_version())", IMPORT_TIMEOUT, quiet=True
        )
        for result in (listed, version):
            if not result.ok:
                cause = "what was installed can't be listed"
                raise self._failure(result, FailureKind.TRANSIENT, cause)
        packages = {item["name"]: item["version"] for item in json.loads(listed.tail)}
        return {"python": version.tail.strip(), "packages": packages}

    def _failure(
        self, result: ProcessResult, kind: FailureKind, cause: str, *, network: bool = True
    ) -> Exception:
        """Return the failure of a step, once it is known not to be the host's or the network's."""
        if result.cancelled:
            return CancelledWork()
        if result.timed_out:
            cause = f"{cause}: killed after {format_duration(result.seconds)}"
        if result.timed_out or _is_outside(result, network=network):
            kind = FailureKind.TRANSIENT
        # An environment is made from the same files each time: a second try would tell nothing.
        certain = kind is FailureKind.PERMANENT
        return failed(kind, cause, output=result.tail, seconds=result.seconds, certain=certain)


def _is_outside(result: ProcessResult, *, network: bool = True) -> bool:
    """Return whether the network or the host failed, rather than what was to be installed."""
    if result.returncode == -signal.SIGKILL or _HOST.search(result.tail):
        return True
    return network and _NETWORK.search(result.tail) is not None
