"""What the command line, the API and the conductor share: settings, database, artifacts."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import NoResultFound

from perfbisect.core.states import BisectionState
from perfbisect.errors import ConflictError, NotFoundError
from perfbisect.settings import Settings
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

    @classmethod
    def open(cls, settings: Settings) -> Services:
        """Create the data directory, open the database and migrate it.

        Raises:
            TransientError: the database can't be opened.
        """
        directories = (
            settings.data_dir,
            settings.mirrors_dir,
            settings.logs_dir,
            settings.cache_dir,
            settings.work_dir,
        )
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
        artifacts = FsspecArtifactStore(
            str(settings.artifacts_dir), settings.cache_dir / "artifacts"
        )
        return cls(settings, open_database(settings.url), artifacts)

    def close(self) -> None:
        """Close the database."""
        self.database.close()


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
