"""Removing what is no longer needed, and keeping builds from a disk that is nearly full."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from filelock import FileLock, Timeout
from sqlalchemy.orm import Session

from perfbisect import keepsakes
from perfbisect.building.checkout import remove
from perfbisect.building.warm import remove_kept
from perfbisect.containers import Docker
from perfbisect.core.retention import Item, Kind, Limit, Removal, choose
from perfbisect.errors import PerfbisectError, TransientError
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.run_artifacts import forget_content
from perfbisect.units import format_size
from perfbisect.work_orders import WorkOrders

log = logging.getLogger(__name__)

#: Scratch of work that is gone is of no use to anybody; a day is for looking into it.
_SCRATCH_DAYS = 1.0
#: Seconds for which an answer about free space is good.
_FRESH = 5.0
#: Seconds that the end waits for a collection under way.
_PATIENCE = 10.0
#: Seconds between two collections because the disk is nearly full.
_COLLECT_AGAIN = 600.0


def limits_of(settings: Settings) -> Mapping[Kind, Limit]:
    """Return what may be kept of each kind."""
    return {
        Kind.WHEEL: Limit(settings.keep_wheels_size, settings.keep_wheels_days),
        Kind.TREE: Limit(settings.keep_trees_size, settings.keep_trees_days),
        Kind.BUILD_CACHE: Limit(settings.keep_build_cache_size, settings.keep_build_cache_days),
        Kind.IMAGE: Limit(settings.keep_images_size, settings.keep_images_days),
        Kind.LOG: Limit(settings.keep_logs_size, settings.keep_logs_days),
        Kind.ARTIFACT: Limit(settings.keep_artifacts_size, settings.keep_artifacts_days),
        Kind.SCRATCH: Limit(None, _SCRATCH_DAYS),
    }


@dataclass(frozen=True, slots=True)
class Collected:
    """What went, or would go."""

    removals: tuple[Removal, ...]
    #: What could not be looked at or removed, and why.
    problems: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all that went."""
        return sum(each.item.size for each in self.removals)


class Collector:
    """Removes what is no longer needed. Nothing that open work needs, and no fact, ever goes."""

    def __init__(
        self,
        services: Services,
        limits: Mapping[Kind, Limit] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._services = services
        self._limits = limits if limits is not None else limits_of(services.settings)
        self._clock = clock
        self._problems: list[str] = []

    def collect(self, *, dry_run: bool = False) -> Collected:
        """Remove what is beyond the limits.

        Args:
            dry_run: only say what would go.

        Raises:
            TransientError: the database can't be read.
        """
        self._problems = []
        gone: list[Removal] = []
        for kind, items in self._kept().items():
            chosen = choose(items, self._limits.get(kind, Limit()), self._clock())
            gone += chosen if dry_run else [each for each in chosen if self._remove(each.item)]
        return Collected(tuple(gone), tuple(dict.fromkeys(self._problems)))

    def _kept(self) -> dict[Kind, list[Item]]:
        services = self._services
        with services.database.read() as session:
            needed = keepsakes.open_work(session)
            return {
                Kind.SCRATCH: keepsakes.scratch(services, needed),
                Kind.WHEEL: keepsakes.wheels(session, needed),
                Kind.TREE: keepsakes.trees(services, needed),
                Kind.BUILD_CACHE: keepsakes.build_cache(services, needed),
                Kind.LOG: keepsakes.logs(services, needed),
                Kind.ARTIFACT: keepsakes.artifacts(session, needed),
                Kind.IMAGE: self._images(session, needed),
            }

    def _images(self, session: Session, needed: keepsakes.OpenWork) -> list[Item]:
        try:
            with Docker(self._services.settings.docker_host) as docker:
                return keepsakes.images(session, docker, needed, self._clock())
        except TransientError:
            # Where no engine answers there are no images of ours.
            return []

    def _remove(self, item: Item) -> bool:
        """Remove one thing; return whether it went."""
        try:
            return _REMOVERS[item.kind](self, item)
        except (OSError, PerfbisectError, DockerException) as error:
            self._problems.append(f"{item.kind} {item.name}: {error}")
            return False

    def _remove_wheel(self, item: Item) -> bool:
        WorkOrders(self._services).forget_wheel(item.handle)
        return True

    def _remove_tree(self, item: Item) -> bool:
        path = Path(item.handle)
        lock = FileLock(path.with_name(f"{path.name}.lock"))
        try:
            with lock.acquire(blocking=False):
                remove_kept(path, self._services.settings.docker_host)
                remove(path)
        except Timeout:
            self._problems.append(f"{item.kind} {item.name}: a build is using it")
            return False
        return True

    def _remove_artifact(self, item: Item) -> bool:
        with self._services.database.write() as session:
            self._services.artifacts.remove(item.handle)
            forget_content(session, item.handle)
        return True

    def _remove_path(self, item: Item) -> bool:
        remove(Path(item.handle))
        return True

    def _remove_image(self, item: Item) -> bool:
        with Docker(self._services.settings.docker_host) as docker:
            docker.client.images.remove(item.handle)
        return True


_REMOVERS: Mapping[Kind, Callable[[Collector, Item], bool]] = {
    Kind.WHEEL: Collector._remove_wheel,
    Kind.TREE: Collector._remove_tree,
    Kind.BUILD_CACHE: Collector._remove_path,
    Kind.IMAGE: Collector._remove_image,
    Kind.LOG: Collector._remove_path,
    Kind.ARTIFACT: Collector._remove_artifact,
    Kind.SCRATCH: Collector._remove_path,
}


class DiskSpace:
    """Says whether there is room to build; makes some, once, when there is not."""

    def __init__(
        self,
        directories: Sequence[Path],
        minimum: int,
        make_room: Callable[[], object] = lambda: None,
        *,
        free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch some directories.

        Args:
            directories: where builds write.
            minimum: bytes that must be free in each.
            make_room: called when they are not, at most every ten minutes.
            free: directory -> bytes free.
            clock: seconds on a clock that only goes forward.
        """
        self._directories = directories
        self._minimum = minimum
        self._make_room = make_room
        self._free = free
        self._clock = clock
        self._asked_at = -_FRESH
        self._collected_at = -_COLLECT_AGAIN
        self._problem = ""

    def problem(self) -> str:
        """Return why no build may start now, for people; empty: there is room."""
        moment = self._clock()
        if moment - self._asked_at < _FRESH:
            return self._problem
        self._problem = self._look()
        if self._problem and moment - self._collected_at >= _COLLECT_AGAIN:
            self._collected_at = moment
            self._make_room()
            self._problem = self._look()
        self._asked_at = self._clock()
        return self._problem

    def _look(self) -> str:
        for directory in self._directories:
            with contextlib.suppress(OSError):
                free = self._free(directory)
                if free < self._minimum:
                    return (
                        f"the disk is nearly full: {format_size(free)} are free in {directory}, "
                        f"and builds need {format_size(self._minimum)} "
                        "(PERFBISECT_MIN_FREE_SPACE); free some, and they go on"
                    )
        return ""


def disk_space(services: Services) -> DiskSpace:
    """Return the watch over the disk that builds of this machine write to."""
    settings = services.settings

    def make_room() -> None:
        try:
            collected = Collector(services).collect()
        except PerfbisectError as error:
            log.warning("what is no longer needed can't be collected: %s", error)
            return
        log.warning("the disk is nearly full: %s collected", format_size(collected.size))

    return DiskSpace([settings.data_dir], settings.min_free_space, make_room)


@contextlib.contextmanager
def collecting(services: Services) -> Iterator[None]:
    """Collect now and then in a thread of its own, as the settings say."""
    hours = services.settings.gc_hours
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(hours * 3600.0):
            try:
                collected = Collector(services).collect()
            except Exception:
                log.exception("collecting what is no longer needed failed; trying again later")
                continue
            if collected.removals:
                size = format_size(collected.size)
                log.info("collected %d things, %s", len(collected.removals), size)

    thread = threading.Thread(target=work, name="collector", daemon=True)
    if hours:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if hours:
            # Whatever it is removing, it may be interrupted at: the rest goes the next time.
            thread.join(_PATIENCE)
