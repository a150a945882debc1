"""What this installation keeps, as rows, files and images; and what open work needs of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect.building.images import LABEL as IMAGE_LABEL
from perfbisect.containers import Docker, translated
from perfbisect.core.retention import Item, Kind
from perfbisect.core.states import BisectionState
from perfbisect.git.source import known_source
from perfbisect.services import Services
from perfbisect.store.artifact_tables import RunArtifactRow
from perfbisect.store.jobs import CONDUCTED
from perfbisect.store.tables import (
    ArmRow,
    BenchmarkRow,
    BisectionRow,
    BuildRow,
    CandidateRow,
    ExperimentRow,
    RepositoryRow,
    RunRow,
    WheelRow,
)
from perfbisect.store.work import ACTIVE

#: An image this young may be of a build that has not told its image yet, seconds.
_YOUNG_IMAGE = 86_400.0
_OPEN = "an open bisection or experiment needs it"


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What unfinished bisections and experiments stand on."""

    #: (tree, digest of the recipe).
    wheels: frozenset[tuple[str, str]]
    recipes: frozenset[str]
    #: Stems of mirrors, by which kept trees are called.
    mirrors: frozenset[str]
    #: Builds and runs of theirs, and whatever is under way.
    work: frozenset[str]
    #: A build is under way: what builds share must stay.
    building: bool

    @property
    def any(self) -> bool:
        """Whether anything is unfinished."""
        return bool(self.recipes)


def open_work(session: Session) -> OpenWork:
    """Read what is needed."""
    active = set(session.scalars(select(BuildRow.id).where(BuildRow.state.in_(ACTIVE))))
    work = active | set(session.scalars(select(RunRow.id).where(RunRow.state.in_(ACTIVE))))
    urls: set[str] = set()
    for table in CONDUCTED:
        unfinished = table.state != BisectionState.FINISHED
        urls |= set(
            session.scalars(
                select(RepositoryRow.url)
                .join(table, table.repository_id == RepositoryRow.id)
                .where(unfinished)
            )
        )
        for kind in (BuildRow, RunRow):
            owner = kind.bisection_id if table is BisectionRow else kind.experiment_id
            own = select(kind.id).join(table, table.id == owner).where(unfinished)
            work |= set(session.scalars(own))
    pairs = _open_wheels(session)
    return OpenWork(
        wheels=frozenset(pairs),
        recipes=frozenset(digest for _, digest in pairs),
        mirrors=frozenset(Path(known_source(url).name).stem for url in urls),
        work=frozenset(work),
        building=bool(active),
    )


def _open_wheels(session: Session) -> set[tuple[str, str]]:
    """Return (tree, digest of the recipe) of all that unfinished work may run."""
    candidates = session.execute(
        select(CandidateRow.tree, BisectionRow.recipe_digest)
        .join(BisectionRow, BisectionRow.id == CandidateRow.bisection_id)
        .where(BisectionRow.state != BisectionState.FINISHED)
    ).all()
    arms = session.execute(
        select(ArmRow.tree, ExperimentRow.recipe_digest)
        .join(ExperimentRow, ExperimentRow.id == ArmRow.experiment_id)
        .where(ExperimentRow.state != BisectionState.FINISHED, ArmRow.tree.is_not(None))
    ).all()
    return {(str(tree), digest) for tree, digest in (*candidates, *arms)}


def wheels(session: Session, needed: OpenWork) -> list[Item]:
    """Return the built wheels whose content is there."""
    last_run = (
        select(func.max(RunRow.created_at)).where(RunRow.wheel_id == WheelRow.id).scalar_subquery()
    )
    rows = session.execute(
        select(WheelRow, last_run).where(
            WheelRow.artifact != "", WheelRow.recipe_digest.not_like("gone:%")
        )
    ).all()
    # Equal bytes share one file, whoever built them.
    kept = {
        wheel.artifact for wheel, _ in rows if (wheel.tree, wheel.recipe_digest) in needed.wheels
    }
    return [
        Item(
            Kind.WHEEL,
            f"{wheel.filename} of {wheel.commit_sha[:10]}",
            wheel.size,
            _latest(wheel.created_at, run).timestamp(),
            wheel.id,
            _OPEN if wheel.artifact in kept else "",
        )
        for wheel, run in rows
    ]


def _latest(created: datetime, run: datetime | None) -> datetime:
    return created if run is None else max(created, run)


def trees(services: Services, needed: OpenWork) -> list[Item]:
    """Return the kept source trees."""
    found = []
    for kind in ("docker", "local"):
        for path in _folders(services.settings.cache_dir / kind / "trees"):
            stem = path.name.rpartition("-")[0]
            wanted = any(stem.startswith(f"{mirror}-") for mirror in needed.mirrors)
            found.append(_of_path(Kind.TREE, path, _OPEN if wanted else "", used=_time_of(path)))
    return found


def build_cache(services: Services, needed: OpenWork) -> list[Item]:
    """Return the files of the caches that builds share."""
    why = "a build is under way" if needed.building else ""
    found = []
    for kind in ("docker", "local"):
        shared = services.settings.cache_dir / kind / "shared"
        for disk in (shared / "bazel").glob("disk-*"):
            found += [_of_file(Kind.BUILD_CACHE, path, why) for path in _files(disk)]
        repository = shared / "bazel" / "repository"
        found += [_of_file(Kind.BUILD_CACHE, path, why) for path in _files(repository)]
        if (shared / "uv").is_dir():
            # uv knows what belongs together there: all of it or nothing.
            found.append(_of_path(Kind.BUILD_CACHE, shared / "uv", why))
    return found


def logs(services: Services, needed: OpenWork) -> list[Item]:
    """Return the logs of builds and runs."""
    return [
        _of_file(Kind.LOG, path, _OPEN if path.stem in needed.work else "")
        for path in services.settings.logs_dir.glob("*.log")
    ]


def artifacts(session: Session, needed: OpenWork) -> list[Item]:
    """Return the contents of files that runs left. Equal ones are one, as old as the newest run."""
    rows = session.execute(
        select(
            RunArtifactRow.artifact,
            RunArtifactRow.size,
            RunArtifactRow.name,
            RunRow.id,
            RunRow.created_at,
        )
        .join(RunRow, RunRow.id == RunArtifactRow.run_id)
        .where(RunArtifactRow.artifact != "")
        .order_by(RunRow.created_at, RunRow.id)
    )
    also = _other_contents(session)
    found: dict[str, Item] = {}
    for key, size, name, run_id, created in rows:
        before = found[key].needed if key in found else ""
        why = _OPEN if run_id in needed.work else ""
        if not why and key in also:
            why = "something else has the same content"
        told = f"{name} of run {run_id}"
        found[key] = Item(Kind.ARTIFACT, told, size, created.timestamp(), key, why or before)
    return list(found.values())


def _other_contents(session: Session) -> set[str]:
    """Return the keys of contents that are not only files of runs."""
    keys = set(session.scalars(select(WheelRow.artifact)))
    for files in session.scalars(select(BenchmarkRow.files)):
        keys |= {str(key) for key in files.values()}
    for kind in (BuildRow, RunRow):
        logged = select(kind.log_artifact).where(kind.log_artifact.is_not(None))
        keys |= {str(key) for key in session.scalars(logged)}
    return keys


def scratch(services: Services, needed: OpenWork) -> list[Item]:
    """Return the scratch directories of builds and runs."""
    return [
        _of_path(Kind.SCRATCH, path, "it is under way" if path.name in needed.work else "")
        for path in _folders(services.settings.work_dir)
    ]


def images(session: Session, docker: Docker, needed: OpenWork, now: float) -> list[Item]:
    """Return the images of toolchains.

    Raises:
        TransientError: the engine does not answer.
    """
    used: dict[str, float] = {}
    wanted: set[str] = set()
    for build in session.scalars(select(BuildRow).where(BuildRow.finished_at.is_not(None))):
        own = str(build.environment.get("image") or "")
        if own and build.finished_at is not None:
            used[own] = max(used.get(own, 0.0), build.finished_at.timestamp())
            if build.recipe_digest in needed.recipes:
                wanted.add(own)
    with translated():
        listed = docker.client.images.list(filters={"label": IMAGE_LABEL})
    found = []
    for image in listed:
        created = datetime.fromisoformat(image.attrs["Created"][:19] + "+00:00").timestamp()
        why = _OPEN if image.id in wanted else ""
        if not why and needed.any and now - created < _YOUNG_IMAGE:
            why = "it is new, and something is unfinished"
        name = image.tags[0] if image.tags else str(image.short_id)
        last = max(created, used.get(str(image.id), 0.0))
        found.append(Item(Kind.IMAGE, name, int(image.attrs["Size"]), last, str(image.id), why))
    return found


def _folders(top: Path) -> Iterator[Path]:
    if top.is_dir():
        yield from sorted(path for path in top.iterdir() if path.is_dir() and not path.is_symlink())


def _files(top: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(top):
        for name in names:
            yield Path(directory, name)


def _of_file(kind: Kind, path: Path, needed: str) -> Item:
    try:
        facts = path.lstat()
    except OSError:  # gone meanwhile
        return Item(kind, path.name, 0, 0.0, str(path), needed or "it is gone")
    return Item(
        kind, path.name, facts.st_size, max(facts.st_mtime, facts.st_atime), str(path), needed
    )


def _of_path(kind: Kind, path: Path, needed: str, used: float | None = None) -> Item:
    """Return a directory as one item, as old as the newest thing in it."""
    size, newest = 0, _time_of(path)
    for file in _files(path):
        with contextlib.suppress(OSError):
            facts = file.lstat()
            size += facts.st_blocks * 512
            newest = max(newest, facts.st_mtime)
    return Item(kind, path.name, size, newest if used is None else used, str(path), needed)


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
