"""Watching builds under way: how far each is, as events; and whether there is room for more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfbisect.core.build_progress import BuildProgress, read_progress, seconds_left
from perfbisect.core.states import WorkState
from perfbisect.logs import read_tail
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.database import now
from perfbisect.store.jobs import JobRef
from perfbisect.store.tables import BuildRow
from perfbisect.worklog import usual_build_seconds

log = logging.getLogger(__name__)

#: Seconds between two looks at the logs.
_LOOK_AGAIN = 2.0
#: Bytes at the end of a log in which its progress must be.
_TAIL = 32_768


def progress_of(services: Services, build: BuildRow) -> dict[str, Any] | None:
    """Return how far a build is, as JSON; None: it is not under way, or does not tell.

    Returns:
        ``done`` and ``total`` steps, ``share`` from 0 to 1, ``seconds_left`` or None.
    """
    if build.state is not WorkState.RUNNING or build.started_at is None:
        return None
    progress = _read(services, build.id)
    if progress is None:
        return None
    with services.database.read() as session:
        usual = usual_build_seconds(session, build.recipe_digest)
    elapsed = (now() - build.started_at).total_seconds()
    left = seconds_left(progress, elapsed, usual)
    return {
        "done": progress.done,
        "total": progress.total,
        "share": round(progress.share, 4),
        "seconds_left": None if left is None else round(left),
    }


def _read(services: Services, build_id: str) -> BuildProgress | None:
    path = services.settings.logs_dir / f"{build_id}.log"
    return read_progress(read_tail(path, _TAIL, over=True).text)


@dataclass(slots=True)
class _Told:
    percent: int = -1


class BuildWatch:
    """Tells jobs about their builds, and why none may start."""

    def __init__(self, services: Services, problem: Callable[[], str] = lambda: "") -> None:
        """Make one.

        Args:
            services: where builds, logs and events are.
            problem: says why no build may start now; empty: one may.
        """
        self._services = services
        self._problem = problem
        self._looked_at = -_LOOK_AGAIN
        self._told: dict[str, _Told] = {}
        #: Jobs that were told that builds wait.
        self._waiting: set[JobRef] = set()

    @property
    def waiting(self) -> bool:
        """Whether somebody was told that builds wait."""
        return bool(self._waiting)

    def look(self, builds: Mapping[str, JobRef]) -> None:
        """Tell how far builds under way are, where that is news."""
        moment = time.monotonic()
        if moment - self._looked_at < _LOOK_AGAIN:
            return
        self._looked_at = moment
        for gone in set(self._told) - set(builds):
            del self._told[gone]
        for build_id, job in builds.items():
            self._tell(build_id, job)

    def _tell(self, build_id: str, job: JobRef) -> None:
        progress = _read(self._services, build_id)
        told = self._told.setdefault(build_id, _Told())
        if progress is None or int(progress.share * 100) == told.percent:
            return
        told.percent = int(progress.share * 100)
        with self._services.database.read() as session:
            row = session.get(BuildRow, build_id)
            data = None if row is None else progress_of(self._services, row)
        if data is None:
            return
        with self._services.database.write() as session:
            bisections.add_event(session, job, "build_progress", {"build_id": build_id, **data})

    def may_build(self, jobs: Iterable[JobRef]) -> bool:
        """Return whether a build may start; tell those who wait why, and when it is over."""
        reason = self._problem()
        listed = set(jobs)
        if reason:
            news = listed - self._waiting
            if news and not self._waiting:
                log.error("builds wait: %s", reason)
            self._add(news, "builds_paused", {"reason": reason})
            self._waiting |= news
        elif self._waiting:
            log.error("builds go on: there is room again")
            self._add(listed & self._waiting, "builds_resumed", {})
            self._waiting.clear()
        return not reason

    def _add(self, jobs: Iterable[JobRef], kind: str, data: dict[str, Any]) -> None:
        listed = list(jobs)
        if not listed:
            return
        with self._services.database.write() as session:
            for job in listed:
                bisections.add_event(session, job, kind, data)
