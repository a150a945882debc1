"""Where a run takes place: as processes of this machine, or in containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perfbisect.ports import RunRequest
from perfbisect.processes import ProcessResult


@dataclass(frozen=True, slots=True)
class Scratch:
    """The directories of one run alone."""

    #: Where the benchmark's files are copied to and its command runs.
    run: Path
    home: Path
    temporary: Path

    @staticmethod
    def below(work: Path) -> Scratch:
        """Make them, empty, below the run's scratch directory.

        Raises:
            OSError: they can't be made.
        """
        scratch = Scratch(work / "run", work / "home", work / "tmp")
        for directory in (scratch.run, scratch.home, scratch.temporary):
            directory.mkdir(parents=True, exist_ok=True)
        return scratch


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a run as its programs see them."""

    wheel: str
    run: str
    home: str
    temporary: str
    #: Directory of unpacked artifacts; empty: there are none.
    artifact: str = ""


class Site(Protocol):
    """One place for one run. What it starts is gone when a method returns or raises."""

    #: Program uv with its leading arguments, as the site sees it.
    uv: tuple[str, ...]
    #: uv's cache of downloads, as the site sees it.
    uv_cache: str

    def check(self, request: RunRequest) -> None:
        """Return if the site can do what the benchmark needs.

        Raises:
            RunFailed: it can't.
        """
        ...

    def python_for(self, wheel: Path | None) -> str:
        """Return the interpreter for a wheel; None: for no wheel in particular.

        Raises:
            RunFailed: there is none.
        """
        ...

    def identity(self) -> Mapping[str, str]:
        """Return what makes an environment of this site differ from others' (an image's digest)."""
        ...

    def inside(self, environment: Path) -> str:
        """Return the path of an environment as the site's programs see it."""
        ...

    def layout(self, request: RunRequest, scratch: Scratch, artifact: Path | None) -> Layout:
        """Return where the files of the run are for its command."""
        ...

    def install(
        self, argv: Sequence[str], env: Mapping[str, str], timeout: float, *, quiet: bool = False
    ) -> ProcessResult:
        """Run a step of an installation: with network, and the environments writable."""
        ...

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        sink: Callable[[bytes], None],
    ) -> ProcessResult:
        """Run the benchmark's command in its directory, to its end."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what to record about the site."""
        ...
