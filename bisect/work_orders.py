"""From rows to requests that an engine can carry out, and the clearing up afterwards."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import delete, select, update

from perfbisect.config import benchmark_from_dict, recipe_from_dict
from perfbisect.core.recipe import Benchmark
from perfbisect.errors import InternalError, TransientError
from perfbisect.git.resolving import is_full_sha
from perfbisect.git.source import known_source
from perfbisect.packages import GRACE, Published, as_of, dating_options
from perfbisect.ports import BuildRequest, CompanionSource, Orphan, RunRequest
from perfbisect.processes import kill_leftovers
from perfbisect.services import Services
from perfbisect.store.carried import carried_at, carried_in_experiment
from perfbisect.store.database import new_id
from perfbisect.store.tables import (
    BenchmarkRow,
    BisectionRow,
    CandidateRow,
    ExperimentRow,
    PointRow,
    RepositoryRow,
    RunRow,
    WheelRow,
)
from perfbisect.untrusted import remove_quietly

log = logging.getLogger(__name__)


def mirror_path(services: Services, url: str) -> Path:
    """Return where the mirror of a repository is, whether or not it is there yet."""
    return services.settings.mirrors_dir / known_source(url).name


@dataclass(frozen=True, slots=True)
class FetchedWheel:
    """A wheel that a run can begin with."""

    #: Its file; of a published wheel only the name: it is fetched just before the run.
    path: Path
    sha256: str
    tree: str
    published: Published | None = None


class WorkOrders:
    """Makes build and run requests; knows every directory that work leaves behind."""

    def __init__(
        self, services: Services, clean_containers: Callable[[str], None] | None = None
    ) -> None:
        """Make one.

        Args:
            clean_containers: removes containers that lost work left behind.
        """
        self._services = services
        self._settings = services.settings
        self._clean_containers = clean_containers

    def is_mirrored(self, row: BisectionRow | ExperimentRow) -> bool:
        """Return whether the repository is mirrored here; begin to mirror it if not.

        A server that takes over from one with another data directory has to make its mirrors first.
        """
        with self._services.database.read() as session:
            url = session.get_one(RepositoryRow, row.repository_id).url
        if mirror_path(self._services, url).is_dir():
            return True
        try:
            self._services.mirrors.require(url, self._settings.mirrors_dir, wait=0.0)
        except TransientError as error:
            log.info("%s", error)
            return False
        return True

    def build_request(
        self, row: BisectionRow | ExperimentRow, build_id: str, tree: str, commit: str
    ) -> BuildRequest:
        """Return the order for one build."""
        with self._services.database.read() as session:
            url = session.get_one(RepositoryRow, row.repository_id).url
        return BuildRequest(
            id=build_id,
            mirror=mirror_path(self._services, url),
            commit=commit,
            tree=tree,
            recipe=recipe_from_dict(row.recipe),
            work_dir=self._scratch(build_id),
            log_path=self._settings.logs_dir / f"{build_id}.log",
            cache_dir=self._settings.cache_dir,
            carried=self._carried(row, tree),
        )

    def _carried(self, row: BisectionRow | ExperimentRow, tree: str) -> tuple[str, ...]:
        """Return what is carried along in a tree of the axis or of an arm."""
        read = carried_at if isinstance(row, BisectionRow) else carried_in_experiment
        with self._services.database.read() as session:
            return tuple(read(session, row.id, tree))

    def run_request(
        self,
        row: BisectionRow | ExperimentRow,
        run_id: str,
        wheel: FetchedWheel,
        benchmark_digest: str,
        host: str,
    ) -> RunRequest:
        """Return the order for one run of a wheel."""
        with self._services.database.read() as session:
            definition = dict(session.get_one(BenchmarkRow, benchmark_digest).definition)
        if "timeout" in row.benchmark:
            # Not part of the digest: this request's own limit counts, not the first one's.
            definition["timeout"] = row.benchmark["timeout"]
        benchmark = benchmark_from_dict(definition)
        moment = self._dependencies_of(row, wheel)
        return RunRequest(
            id=run_id,
            wheel=wheel.path,
            wheel_sha256=wheel.sha256,
            benchmark=benchmark,
            benchmark_dir=self._benchmark_dir(benchmark_digest),
            host=host,
            work_dir=self._scratch(run_id),
            log_path=self._settings.logs_dir / f"{run_id}.log",
            cache_dir=self._settings.cache_dir,
            install_options=dating_options(moment, benchmark.requirements),
            published=wheel.published.to_dict() if wheel.published else None,
            companions=self._companions(benchmark),
        )

    def _companions(self, benchmark: Benchmark) -> tuple[CompanionSource, ...]:
        """Return what is checked out beside the benchmark's files.

        Raises:
            InternalError: one was not resolved to a commit before the benchmark was stored.
        """
        for companion in benchmark.companions:
            if not is_full_sha(companion.revision):
                raise InternalError(f"companion '{companion.name}' of '{benchmark.name}' is open")
        return tuple(
            CompanionSource(
                name=companion.name,
                repository=companion.repository,
                mirror=mirror_path(self._services, companion.repository),
                commit=companion.revision,
            )
            for companion in benchmark.companions
        )

    def _dependencies_of(
        self, row: BisectionRow | ExperimentRow, wheel: FetchedWheel
    ) -> datetime | None:
        """Return as of when a wheel's dependencies are installed; None: as they are now.

        A wheel built here gets those of its commit's day where its neighbours are published, as
        these have those of theirs: else every step between the two kinds would be one of them.
        """
        if wheel.published is not None:
            return as_of(wheel.published)
        if not isinstance(row, BisectionRow) or row.published is None:
            return None
        with self._services.database.read() as session:
            committed = session.scalar(
                select(CandidateRow.committed_at)
                .where(CandidateRow.bisection_id == row.id, CandidateRow.tree == wheel.tree)
                .order_by(CandidateRow.position)
                .limit(1)
            )
        return committed + GRACE if committed else None

    def fetch_wheel(self, wheel_id: str) -> FetchedWheel:
        """Return a wheel with its verified file under its own name, if it was built here.

        Raises:
            NotFoundError: its content is gone.
            TransientError: its content is damaged or can't be read.
        """
        with self._services.database.read() as session:
            wheel = session.get_one(WheelRow, wheel_id)
        if wheel.published is not None:
            published = Published.from_dict(wheel.published)
            return FetchedWheel(Path(published.filename), wheel.sha256, wheel.tree, published)
        content = self._services.artifacts.fetch(wheel.artifact)
        # pip reads the name of a wheel's file: the content-addressed one would not do.
        named = self._settings.cache_dir / "wheels" / wheel.sha256 / Path(wheel.filename).name
        _link(content, named)
        return FetchedWheel(named, wheel.sha256, wheel.tree)

    def forget_wheel(self, wheel_id: str) -> None:
        """Forget a wheel whose content is gone or damaged, so that it is built again.

        Points keep their wheel: then only its content is unlinked and the row gets a new content
        by the next build.
        """
        with self._services.database.write() as session:
            wheel = session.get_one(WheelRow, wheel_id)
            self._services.artifacts.remove(wheel.artifact)
            shutil.rmtree(self._settings.cache_dir / "wheels" / wheel.sha256, ignore_errors=True)
            used = session.scalar(select(PointRow.id).where(PointRow.wheel_id == wheel_id).limit(1))
            ran = session.scalar(select(RunRow.id).where(RunRow.wheel_id == wheel_id).limit(1))
            if used is None and ran is None:
                session.execute(delete(WheelRow).where(WheelRow.id == wheel_id))
            else:
                # A gone wheel keeps its row for its points but stands on no axis any more.
                session.execute(
                    update(WheelRow)
                    .where(WheelRow.id == wheel_id)
                    .values(recipe_digest=f"gone:{new_id()}")
                )

    def orphan(self, work_id: str, host: str) -> Orphan:
        """Return where the result of somebody else's work is to be put."""
        log_path = self._settings.logs_dir / f"{work_id}.log"
        return Orphan(work_id, host, self._scratch(work_id), log_path)

    def clean(self, work_id: str) -> None:
        """Remove the scratch directory of work that ended."""
        remove_quietly(self._settings.work_dir / work_id)

    def clean_lost(self, work_id: str) -> None:
        """Kill and remove everything that work of a dead process left on this machine."""
        kill_leftovers(work_id)
        if self._clean_containers is not None:
            self._clean_containers(work_id)
        self.clean(work_id)

    def _scratch(self, work_id: str) -> Path:
        directory = self._settings.work_dir / work_id
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _benchmark_dir(self, digest: str) -> Path:
        """Return a directory with the benchmark's files as they were when it was submitted."""
        target = self._settings.cache_dir / "benchmarks" / digest
        if target.is_dir():
            return target
        with self._services.database.read() as session:
            files = session.get_one(BenchmarkRow, digest).files
        partial = target.with_name(f"{digest}.{new_id()}")
        partial.mkdir(parents=True)
        for name, key in files.items():
            copy = partial / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._services.artifacts.fetch(key), copy)
        try:
            partial.rename(target)
        except OSError:
            # Another thread or process was first.
            shutil.rmtree(partial, ignore_errors=True)
            if not target.is_dir():
                raise
        return target


def _link(content: Path, named: Path) -> None:
    """Give a file a second name, by hard link where the file system allows it."""
    if named.exists() and named.stat().st_size == content.stat().st_size:
        return
    try:
        named.parent.mkdir(parents=True, exist_ok=True)
        named.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            try:
                os.link(content, named)
            except OSError:
                partial = named.with_name(f"{named.name}.{new_id()}")
                shutil.copy(content, partial)
                partial.replace(named)
    except OSError as error:
        raise TransientError(f"wheel {named.name} can't be laid out: {error}") from error
