"""One life after the other: each is a forked process that is killed at a place not yet tried.

    python -m tests.helpers.crashing.lives TEMPLATE_DIRECTORY

Reads lines of JSON (``{"scene": NAME, "directory": PATH}``) and answers each with one line: the
places that were seen and at which a process was killed, and what went wrong, if anything did.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.helpers.crashing.alarming import Alarming
from tests.helpers.crashing.searching import Searching
from tests.helpers.crashing.series_scene import Following
from tests.helpers.crashing.transitions import Transition
from tests.helpers.crashing.watch import AFTER, BEFORE, DieAt, Watch
from tests.helpers.crashing.world import Scene, conductor_of, reopened, settings_in

from perfbisect import series
from perfbisect.alerting.desk import Desk
from perfbisect.routers.alert_submission import AlertSubmitter
from perfbisect.services import Services
from perfbisect.store.database import Database

SCENES: tuple[type[Scene], ...] = (Searching, Alarming, Following)
#: Seconds a life may take on a busy machine.
PATIENCE = 60.0
#: Lives of a scene: more means that something is repeated for ever.
MOST_LIVES = 250
_LONG_AGO = datetime(2019, 7, 1, tzinfo=UTC)


class Lives:
    """Runs scenes, each in as many lives as it takes. This process itself has one thread."""

    def __init__(self, template: Path) -> None:
        self._template = template
        self._killed: set[str] = set()
        self._seen: set[str] = set()
        self._forked(lambda tell: Services.open(settings_in(template)).close())

    def play(self, name: str, directory: Path) -> dict[str, Any]:
        """Play a scene to its end."""
        (kind,) = (each for each in SCENES if each.name == name)
        shutil.copytree(self._template, directory, dirs_exist_ok=True)
        scene = kind(directory, self._survived)
        scene.prepare()
        database = Database(settings_in(directory).url)
        # Played once without harm, in this process: its children need not warm up, each by itself.
        _live(kind(directory, lambda _: True), database, None)
        database.close()
        shutil.rmtree(directory / "data")
        shutil.copytree(self._template / "data", directory / "data")
        for life in range(MOST_LIVES):
            status = self._forked(lambda tell: _live(scene, database, self._dying(tell)))
            if os.WIFEXITED(status):
                problem = "" if os.WEXITSTATUS(status) == 0 else f"life {life} failed"
                return self._told(problem, life + 1)
        return self._told("it does not come to an end", MOST_LIVES)

    def _told(self, problem: str, lives: int) -> dict[str, Any]:
        return {
            "problem": problem,
            "lives": lives,
            "seen": sorted(self._seen),
            "killed": sorted(self._killed),
        }

    def _survived(self, transition: str) -> bool:
        return {f"{BEFORE} {transition}", f"{AFTER} {transition}"} <= self._killed

    def _forked(self, work: Callable[[Callable[[str], None]], None]) -> int:
        """Do something in a process of its own; return how it ended."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(work, writing)
        os.close(writing)
        with os.fdopen(reading) as told:
            for line in told:
                what, _, place = line.strip().partition(" ")
                self._seen.add(place)
                if what == "killed":
                    self._killed.add(place)
        _, status = os.waitpid(pid, 0)
        return status

    def _dying(self, tell: Callable[[str], None]) -> DieAt:
        """Return what ends a process at each place where none has ended yet."""

        def die_at(transitions: Sequence[Transition], when: str) -> bool:
            names = [f"{when} {each}" for each in transitions]
            dies = not self._killed.issuperset(names)
            for name in names:
                tell(f"{'killed' if dies else 'seen'} {name}")
            return dies

        return die_at


def _live(scene: Scene, database: Database, die_at: DieAt | None) -> None:
    """Be a server until the scene is over, or until a place is reached that was not tried."""
    database.engine.dispose(close=False)
    services = reopened(scene.directory, database)
    if die_at is not None:
        Watch(services.database, die_at)
    conductor = conductor_of(services, *scene.parts(services), scene.directory)
    desk = Desk(services, AlertSubmitter(services))
    conductor.start()
    end = time.monotonic() + PATIENCE
    while not scene.is_over(services):
        assert time.monotonic() < end, f"it does not go on: {scene.told(services)}"
        scene.step(services)
        if scene.alarms:
            desk.look()
            desk.sender.send_due()
        if scene.follows:
            series.advance(services, _LONG_AGO)
        time.sleep(0.05)
    conductor.stop()
    services.close()


def _work(work: Callable[[Callable[[str], None]], None], writing: int) -> None:
    """Be the child: work, and end without anything that the parent has registered."""
    status = 3
    try:
        work(lambda line: _write(writing, line))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _write(writing: int, line: str) -> None:
    # Short lines are written whole, also by several threads.
    os.write(writing, f"{line}\n".encode())


def main() -> None:
    """Answer one line after the other."""
    lives = Lives(Path(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(lives.play(asked["scene"], Path(asked["directory"]))), flush=True)


if __name__ == "__main__":
    main()
