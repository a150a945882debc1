"""What a conductor holds: a lease on itself, and among the servers of a database, the lead."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from perfbisect.store import leases
from perfbisect.store.database import Database, process_owner

log = logging.getLogger(__name__)


class FencedDatabase(Database):
    """A database in which a conductor writes only as long as nobody has taken over from it."""

    def __init__(self, database: Database, tenure: Tenure) -> None:
        # The same open database, seen through a fence.
        self.__dict__.update(database.__dict__)
        self._tenure = tenure

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Yield a session as ``Database.write`` does.

        Raises:
            FencedError: somebody else took over.
            TransientError: the database can't be reached or stayed locked.
        """
        with super().write() as session:
            self._tenure.check(session)
            yield session


class Tenure:
    """A conductor's right to write, under a name of its own."""

    def __init__(self, database: Database, *, seconds: float, leading: bool) -> None:
        """Make one; nothing is held before ``keep``.

        Args:
            seconds: of silence after which this process counts as gone.
            leading: it conducts only while it has the lead among its database's servers.
        """
        self._database = database
        self.seconds = seconds
        self._leading = leading
        self.owner = process_owner()
        self._token: int | None = None
        self._lead: int | None = None
        self._kept_at = -seconds

    @property
    def renew_after(self) -> float:
        """Seconds between two renewals."""
        return min(5.0, self.seconds / 6)

    @property
    def conducts(self) -> bool:
        """Whether this process may conduct now."""
        return self._token is not None and (not self._leading or self._lead is not None)

    def keep(self) -> None:
        """Take or renew what is held, where that is due.

        Raises:
            FencedError: somebody else took over.
        """
        due = self.renew_after if self.conducts else min(self.renew_after, 1.0)
        if time.monotonic() - self._kept_at < due:
            return
        with self._database.write() as session:
            token, lead = self._token, self._lead
            name = leases.process_lease(self.owner)
            if token is None:
                token = leases.take(session, name, self.owner, self.seconds)
                leases.forget_old(session)
            else:
                leases.renew(session, name, token, self.seconds)
            if self._leading:
                lead = leases.take(session, leases.CONDUCTOR, self.owner, self.seconds)
        if lead != self._lead:
            log.info("%s conducts now", self.owner)
        self._token, self._lead = token, lead
        self._kept_at = time.monotonic()

    def check(self, session: Session) -> None:
        """Make sure that nobody took over, until the end of a transaction.

        Raises:
            FencedError: somebody did.
        """
        if self._token is None:
            raise leases.FencedError(self.owner)
        leases.check(session, leases.process_lease(self.owner), self._token)

    def begin_anew(self) -> None:
        """Take another name: what was held under the old one is somebody else's."""
        self.owner = process_owner()
        self._token = self._lead = None
        self._kept_at = -self.seconds

    def release(self) -> None:
        """Give everything up, so that another process can go on at once."""
        token, lead = self._token, self._lead
        self._token = self._lead = None
        with self._database.write() as session:
            if lead is not None:
                leases.release(session, leases.CONDUCTOR, lead)
            if token is not None:
                leases.release(session, leases.process_lease(self.owner), token)
