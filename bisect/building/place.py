"""Where the commands of a build run: its directories, and the interface of a place."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from perfbisect.overruns import Overrun
from perfbisect.ports import Failure

#: Variables that say how to get to the network, never what to do there.
NETWORK_VARIABLES = (
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
    *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"),
    *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_OFFLINE",),
)


class Stopped(Exception):
    """Unwinds a build that failed; never leaves the builder."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of one build, as this machine sees them."""

    #: The tree.
    src: Path
    #: Where the wheel or the artifacts go.
    out: Path
    #: A clean HOME.
    home: Path
    #: Caches shared by builds.
    cache: Path
    #: What Bazel keeps from build to build of this ``src``.
    bazel_root: Path
    #: Archives that the build need not download; may be missing.
    distdir: Path

    def create(self) -> None:
        """Create all but ``src``, which the checkout makes."""
        made = (self.out, self.home, self.home / "tmp", self.cache, self.bazel_root, self.distdir)
        for path in made:
            path.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True)
class Paths:
    """The same directories as the commands see them."""

    src: str
    out: str
    home: str
    cache: str
    bazel_root: str
    distdir: str


@dataclass(frozen=True, slots=True)
class Step:
    """One command, run at the root of the tree."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    #: What people may type to do the same; empty: ``argv``.
    text: str = ""

    @property
    def shown(self) -> str:
        """The command for the log and for the wheel's environment."""
        return self.text or shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended."""

    returncode: int
    timed_out: bool = False
    cancelled: bool = False
    #: Killed for want of memory, as the kernel says.
    out_of_memory: bool = False
    #: What it took too much of; None: nothing.
    overrun: Overrun | None = None
    #: Why the log is not whole; empty: it is.
    log_error: str = ""


class Place(Protocol):
    """Runs the steps of one build, with their output appended to its log."""

    @property
    def paths(self) -> Paths:
        """The directories as steps see them."""
        ...

    @property
    def python(self) -> str:
        """The Python of the build."""
        ...

    @property
    def uv(self) -> str:
        """The program uv."""
        ...

    @property
    def jobs(self) -> int:
        """How many processes may compile at once."""
        ...

    @property
    def environment(self) -> dict[str, Any]:
        """What it takes to have the same place again: image, versions."""
        ...

    def prepare(self) -> None:
        """Have all that the steps need, and give them the directories; the recipe's timeout starts
        afterwards.

        Raises:
            Stopped: something can't be had.
        """
        ...

    def python_version(self) -> tuple[int, int] | None:
        """Return the version of the Python of the build, or None where it can't be told."""
        ...

    @property
    def toolchain_key(self) -> str:
        """Name that changes with the compilers. What they compiled is kept apart by it: Bazel takes
        a compiler for the same as long as its path is.
        """
        ...

    def bazel(self, version: str) -> tuple[str, str]:
        """Return the program Bazel of this version (empty: any), and the version that it has.

        Raises:
            Stopped: there is none.
        """
        ...

    @property
    def keeps_server(self) -> bool:
        """Whether Bazel's server may stay between two steps, and between two builds."""
        ...

    def run(self, step: Step, timeout: float) -> StepResult:
        """Run a step to its end; nothing of it is left running."""
        ...


def parse_python_version(said: str) -> tuple[int, int] | None:
    """Read what ``python --version`` says, or return None."""
    found = re.search(r"Python (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


def step_environment(place: Place, env: Mapping[str, str], epoch: int) -> dict[str, str]:
    """Return the variables of every step: little, the same each time, and the recipe's."""
    return {
        "HOME": place.paths.home,
        "TMPDIR": f"{place.paths.home}/tmp",  # noqa: S108
        "USER": "builder",
        "LOGNAME": "builder",
        "LANG": "C.UTF-8",
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHON_BIN_PATH": place.python,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(place.jobs),
        "MAX_JOBS": str(place.jobs),
        # The tree may belong to another user than the one that builds in a container.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        **env,
    }


def network_environment() -> dict[str, str]:
    """Return this process's variables that say how to get to the network."""
    return {name: os.environ[name] for name in NETWORK_VARIABLES if os.environ.get(name)}
