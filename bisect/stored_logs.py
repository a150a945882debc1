"""Logs in the artifact store: put there when work ends, fetched where another server wrote them."""

from __future__ import annotations

import logging
import secrets
import shutil
from pathlib import Path

from perfbisect.errors import NotFoundError, TransientError
from perfbisect.services import Services
from perfbisect.store.tables import BuildRow, RunRow

log = logging.getLogger(__name__)


def log_path(services: Services, work_id: str) -> Path:
    """Return where the log of a build or run is while it is written."""
    return services.settings.logs_dir / f"{work_id}.log"


def store_log(services: Services, work_id: str) -> str | None:
    """Put the log of work that ended where other servers find it; return its key.

    None where nobody else could read it, there is none, or it can't be stored: that is no reason
    to lose what was built or measured.
    """
    path = log_path(services, work_id)
    if not services.artifacts.shared or not path.is_file():
        return None
    try:
        return services.artifacts.put(path, keep_copy=False)
    except TransientError as error:
        log.warning("the log of %s stays on this machine: %s", work_id, error.message)
        return None


def find_log(services: Services, row: BuildRow | RunRow) -> Path:
    """Return the log of a build or run; a file that need not be there.

    Raises:
        DamagedError: it was stored, and is not what it was.
        TransientError: it can't be fetched.
    """
    path = log_path(services, row.id)
    if row.log_artifact is None or path.exists():
        return path
    try:
        stored = services.artifacts.fetch(row.log_artifact)
    except NotFoundError:
        return path
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        shutil.copyfile(stored, partial)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TransientError(f"the log of {row.id} can't be written: {error}") from error
    return path
