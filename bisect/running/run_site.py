"""Where a run takes place: as processes of this machine, or in containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perfbisect.processes import ProcessResult
from perfbisect.running.environments import Installer
from perfbisect.running.gpu_host import NO_GPUS, HeldGpus
from perfbisect.running.observe import Observer


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

    environment: str
    wheel: str
    home: str
    temporary: str
    #: Directory of unpacked artifacts; empty: there are none.
    artifact: str = ""


class Site(Installer, Protocol):
    """One place for one run. What it starts is gone when a method returns or raises."""

    def check(self) -> None:
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

    def is_usable(self, environment: Path) -> bool:
        """Return whether a kept environment still works here, as far as a glance can tell."""
        ...

    def layout(self, scratch: Scratch, environment: Path, artifact: Path | None) -> Layout:
        """Return where the files of the run are for its command, and get ready to start it."""
        ...

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        sink: Callable[[bytes], None],
        gpus: HeldGpus = NO_GPUS,
    ) -> ProcessResult:
        """Run the benchmark's command in its directory, to its end.

        Args:
            gpus: those that it may use, and the processors near to them.
        """
        ...

    def observer(self) -> Observer:
        """Return what watches the host while the command runs."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what to record about the site."""
        ...
