"""Check of a shared artifact store: something is stored, read back and deleted."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from perfbisect.checks import Check, Status
from perfbisect.errors import BadInputError, PerfbisectError
from perfbisect.settings import Settings
from perfbisect.storage import configured_url
from perfbisect.store.artifacts import FsspecArtifactStore


def check_shared_artifacts(settings: Settings) -> list[Check]:
    """Try the artifact store that the settings name; nothing where artifacts stay here."""
    try:
        url = settings.artifacts or configured_url(settings.project_dir)
    except BadInputError as error:
        return [Check("artifacts", Status.MISSING, error.message, "Mend that file.", True)]
    return [check_artifacts(url)] if url else []


def check_artifacts(url: str) -> Check:
    """Try the artifact store as builds and runs use it.

    Args:
        url: of a folder or bucket.
    """
    advice = "See 'Artifacts' in docs/database.md: the address, its bucket, the credentials."
    try:
        with tempfile.TemporaryDirectory(prefix="perfbisect-") as scratch:
            tried = Path(scratch) / "doctor"
            tried.write_bytes(secrets.token_bytes(64))
            store = FsspecArtifactStore(url, Path(scratch) / "copies")
            key = store.put(tried, keep_copy=False)
            try:
                same = store.fetch(key).read_bytes() == tried.read_bytes()
            finally:
                store.remove(key)
    except PerfbisectError as error:
        return Check("artifacts", Status.MISSING, error.message, advice, required=True)
    except OSError as error:
        return Check("artifacts", Status.MISSING, str(error), advice, required=True)
    if not same:
        return Check("artifacts", Status.MISSING, f"{url}: gives what was not stored", "", True)
    return Check("artifacts", Status.OK, f"{url}: stored, read and deleted", required=True)
