"""What the scenes of crashes share: a directory with all that a server needs, and its parts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select

from perfbisect.conductor import Conductor
from perfbisect.engines.local import LocalEngine
from perfbisect.ports import (
    Builder,
    BuildRequest,
    BuildSuccess,
    CancelToken,
    Failure,
    HostInfo,
    Runner,
    RunRequest,
    RunSuccess,
)
from perfbisect.services import Services, open_artifacts
from perfbisect.settings import Settings
from perfbisect.store.database import Database
from perfbisect.store.jobs import CONDUCTED
from perfbisect.testing import ScriptedBuilder

RECIPE = """
[recipe.{name}]
kind = "command"
docker = false
command = "true {name}"
"""
BENCHMARK = """
[benchmark.{name}]
command = "true {name}"
unit = "images/s"
metric = {{reader = "regex", pattern = 'images/sec: ([0-9.]+)'}}
"""


def settings_in(directory: Path) -> Settings:
    """Return the settings of a scene's servers."""
    return Settings(
        data_dir=directory / "data",
        project_dir=directory,
        allowed_repositories=[str(directory / "repository")],
        outbound_allowed=["127.0.0.1"],
    )


def reopened(directory: Path, database: Database) -> Services:
    """Open what is there already; its schema is known to be the newest."""
    settings = settings_in(directory)
    for made in (settings.mirrors_dir, settings.logs_dir, settings.cache_dir, settings.work_dir):
        made.mkdir(parents=True, exist_ok=True)
    return Services(settings, database, open_artifacts(settings))


class SceneBuilder:
    """Builds at once; recipe ``stuck`` never ends, recipe ``broken`` and broken commits fail."""

    def __init__(self, broken: frozenset[str] = frozenset()) -> None:
        self._broken = broken
        self._builder = ScriptedBuilder()

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        if request.recipe.name == "stuck":
            cancel.wait(60)
        if request.recipe.name == "broken" or request.commit in self._broken:
            return Failure("permanent", "error: no such header")  # type: ignore[arg-type]
        return self._builder.build(request, cancel)


class Waiting:
    """A runner in front of another: benchmark ``stuck`` runs until its end is asked for."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        request.work_dir.mkdir(parents=True, exist_ok=True)
        (request.work_dir / "leftover").write_text("of a run", encoding="utf-8")
        if request.benchmark.name == "stuck":
            cancel.wait(60)
        if cancel.cancelled:
            from perfbisect.ports import CancelledWork

            raise CancelledWork
        return self._runner.run(request, cancel)


def conductor_of(
    services: Services, builder: Builder, runner: Runner, directory: Path
) -> Conductor:
    """Return a conductor of this scene alone."""
    engine = LocalEngine(
        builder,
        Waiting(runner),
        HostInfo("host-a", "default", {}),
        lock_path=directory / "machine.lock",
    )
    return Conductor(services, engine)


class Scene(ABC):
    """Something that happens to a server, told by what people do when they see a state.

    A scene is looked at again and again, by one process after another: it keeps nothing that is
    not in the database.
    """

    name: str
    #: Whether its servers look at alerts, and at nightly series.
    alarms = True
    follows = True

    def __init__(self, directory: Path, survived: Callable[[str], bool]) -> None:
        """Make a scene.

        Args:
            directory: where everything of it is.
            survived: whether a place (``night: skipped -> measuring``) was reached and left behind
                by some process, before and after its commit.
        """
        self.directory = directory
        self.survived = survived
        self.guard = threading.Lock()

    @abstractmethod
    def prepare(self) -> None:
        """Write repository and ``perfbisect.toml``."""

    @abstractmethod
    def parts(self, services: Services) -> tuple[Builder, Runner]:
        """Return what builds and runs."""

    @abstractmethod
    def step(self, services: Services) -> None:
        """Do what people and time do now."""

    def told(self, services: Services) -> str:
        """Return where everything is, for the message when it does not go on."""
        return ""

    @abstractmethod
    def is_over(self, services: Services) -> bool:
        """Return whether everything that was to happen has happened."""


def unfinished(services: Services) -> bool:
    """Return whether a bisection or an experiment goes on."""
    with services.database.read() as session:
        return any(
            session.scalar(select(table.id).where(table.state != "finished").limit(1))
            for table in CONDUCTED
        )
