"""The clock of nightly series inside the service: due nights, searches, confirmations."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler

from perfbisect.errors import PerfbisectError
from perfbisect.series import advance, sync_project
from perfbisect.services import Services

log = logging.getLogger(__name__)

#: Seconds between two looks at what is due.
PERIOD = 10.0
_JOB = "nightly"


class NightlyClock:
    """Looks at what is due, again and again; one look at a time.

    What is due is read from the database: a service that was down catches up by itself.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._scheduler = BackgroundScheduler(timezone=UTC)

    def start(self) -> None:
        """Read ``perfbisect.toml`` and start looking, at once for the first time."""
        try:
            sync_project(self._services)
        except PerfbisectError as error:
            log.error("nightly series are as they were: %s", error)
        # A look that takes longer than the period is no news.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler.add_job(
            self._look,
            "interval",
            seconds=PERIOD,
            id=_JOB,
            next_run_time=datetime.now(UTC),
            # A late look is a look: what was missed is still due.
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
        )
        self._scheduler.start()

    def wake(self) -> None:
        """Look now: points have come."""
        self._scheduler.modify_job(_JOB, next_run_time=datetime.now(UTC))

    def stop(self) -> None:
        """End; a look under way is waited for."""
        self._scheduler.shutdown(wait=True)

    def _look(self) -> None:
        try:
            advance(self._services)
        except PerfbisectError as error:
            log.warning("nightly series: %s; trying again", error)
        except Exception:
            log.exception("nightly series: unforeseen error; trying again")
