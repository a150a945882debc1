"""What the command line, the API and the conductor share: settings, database, artifacts."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import NoResultFound

from perfbisect.core.states import BisectionState
from perfbisect.errors import (
    BadInputError,
    ConflictError,
    NotFoundError,
    PerfbisectError,
    TransientError,
)
from perfbisect.mirror_keeper import MirrorKeeper
from perfbisect.settings import Settings
from perfbisect.storage import configured_url
from perfbisect.store import bisections
from perfbisect.store.artifacts import FsspecArtifactStore
from perfbisect.store.database import Database, now, open_database
from perfbisect.store.jobs import JobRef, bisection, experiment, load_row
from perfbisect.store.tables import RepositoryRow


@dataclass(frozen=True, slots=True)
class Services:
    """Open resources of one process."""

    settings: Settings
    database: Database
    artifacts: FsspecArtifactStore
    mirrors: MirrorKeeper = field(default_factory=MirrorKeeper)

    @classmethod
    def open(cls, settings: Settings, *, make_artifacts: bool = True) -> Services:
        """Create the data directory, open the database and migrate it.

        Args:
            make_artifacts: make the artifact store's folder where there is none; False: only look.

        Raises:
            BadInputError: the data directory or the artifact store can't be used, or the database
                is none.
            TransientError: the database can't be opened, or the disk is full.
        """
        directories = (
            settings.data_dir,
            settings.mirrors_dir,
            settings.logs_dir,
            settings.cache_dir,
            settings.work_dir,
        )
        for directory in directories:
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unusable(settings.data_dir, error) from error
        artifacts = open_artifacts(settings, make=make_artifacts)
        return cls(settings, open_database(settings.url), artifacts)

    def close(self) -> None:
        """End what goes on in the background, and close the database."""
        self.mirrors.stop()
        self.database.close()


def open_artifacts(settings: Settings, *, make: bool = True) -> FsspecArtifactStore:
    """Open the artifact store that the settings, or else ``perfbisect.toml``, name.

    A bucket is not asked whether it is there: what is stored without it can still be read.

    Args:
        make: make a folder that is not there; False: only look.

    Raises:
        BadInputError: the address can't be right, or what speaks to it is not installed.
        TransientError: a folder that can't be used for now.
    """
    url = settings.artifacts or configured_url(settings.project_dir)
    return FsspecArtifactStore(
        url or str(settings.artifacts_dir),
        settings.cache_dir / "artifacts",
        cache_bytes=settings.artifact_cache_size,
        make=make,
    )


def _unusable(data_dir: Path, error: OSError) -> PerfbisectError:
    why = f"data_dir: '{data_dir}' can't be used: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransientError(why, field="data_dir")
    return BadInputError(
        f"{why}; give a directory that can be written", field="data_dir", value=str(data_dir)
    )


def request_cancel(services: Services, bisection_id: str) -> None:
    """Ask for the end of a bisection; whoever conducts it does the rest.

    Raises:
        NotFoundError: no such bisection.
        ConflictError: it is finished.
    """
    _request_end(services, bisection(bisection_id), "bisection")


def request_experiment_cancel(services: Services, experiment_id: str) -> None:
    """Ask for the end of an experiment; whoever conducts it does the rest.

    Raises:
        NotFoundError: no such experiment.
        ConflictError: it is finished.
    """
    _request_end(services, experiment(experiment_id), "experiment")


def _request_end(services: Services, ref: JobRef, thing: str) -> None:
    field = f"{thing}_id"
    with services.database.write() as session:
        try:
            row = load_row(session, ref)
        except NoResultFound as error:
            raise NotFoundError(f"no {thing} '{ref.id}'", field=field, value=ref.id) from error
        if row.state is BisectionState.FINISHED:
            raise ConflictError(
                f"{thing} {ref.id} is finished ({row.outcome}): there is nothing to cancel",
                field=field,
                value=ref.id,
            )
        if row.cancel_requested_at is None:
            row.cancel_requested_at = now()
            bisections.add_event(session, ref, "cancel_requested", {})


def known_repository(services: Services, name_or_url: str) -> RepositoryRow | None:
    """Return the repository of this name or URL, if it was ever submitted."""
    with services.database.read() as session:
        return session.scalar(
            select(RepositoryRow).where(
                (RepositoryRow.name == name_or_url) | (RepositoryRow.url == name_or_url)
            )
        )
