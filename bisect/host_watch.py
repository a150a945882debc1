"""Looks now and then whether the hosts that measure still measure what they did."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from perfbisect.errors import PerfbisectError
from perfbisect.store.database import Database
from perfbisect.store.host_health import judge_host

log = logging.getLogger(__name__)

#: Seconds between two looks at a host.
EVERY = 300.0


class HostWatch:
    """Judges a host after some of its runs."""

    def __init__(
        self,
        database: Database,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            every: seconds between two looks at a host.
            clock: seconds on a clock that only goes forward.
        """
        self._database = database
        self._every = every
        self._clock = clock
        self._looked_at: dict[str, float] = {}

    def look(self, host: str) -> None:
        """Judge a host unless that was done of late.

        It never fails: what was measured is stored already, and must not be stored twice.
        """
        moment = self._clock()
        if moment - self._looked_at.get(host, -self._every) < self._every:
            return
        self._looked_at[host] = moment
        try:
            with self._database.write() as session:
                judge_host(session, host)
        except (PerfbisectError, SQLAlchemyError) as error:
            log.warning("host %s could not be judged: %s", host, error)
