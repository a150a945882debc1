"""What a killed process left after its work had ended: found by the scratch directories."""

from __future__ import annotations

from sqlalchemy import select

from perfbisect.services import Services
from perfbisect.store.tables import BuildRow, RunRow
from perfbisect.store.work import ACTIVE


def left_behind(services: Services) -> list[str]:
    """Return the ids of builds and runs that are over and whose scratch directory is still there.

    A process that is killed between storing an end and clearing up leaves the directory, and with
    it whatever else was to be removed: the directory is always the last to go. Work that the
    database does not know at all (it was put back from a backup) is over too.
    """
    # In this order: a directory is made after its row.
    names = sorted(path.name for path in services.settings.work_dir.iterdir() if path.is_dir())
    if not names:
        return []
    with services.database.read() as session:
        active = {
            work_id
            for table in (BuildRow, RunRow)
            for work_id in session.scalars(select(table.id).where(table.state.in_(ACTIVE)))
        }
    return [name for name in names if name not in active]
