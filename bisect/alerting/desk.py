"""The desk: looks at alerts in the background and does what follows. It keeps no state of its own.

Everything it does is written in the database before or together with what follows from it, so that
it may be killed at any time, and several processes may have a desk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from perfbisect.alerting.configuration import AlertConfig, load_alert_config
from perfbisect.alerting.deciding import decide
from perfbisect.alerting.following import follow
from perfbisect.alerting.inbox import forget_notices
from perfbisect.alerting.outbox import spread
from perfbisect.alerting.requests import own_policy
from perfbisect.alerting.self_checks import start_due
from perfbisect.alerting.starting import Submitter
from perfbisect.errors import BadInputError, PerfbisectError
from perfbisect.notify import Sender
from perfbisect.services import Services
from perfbisect.store.database import now

log = logging.getLogger(__name__)

#: Seconds between two looks.
TICK = 1.0
#: Time between two sweeps of old notices.
SWEEP = timedelta(hours=1)


class Desk:
    """Decides, follows, and tells. One thread; another one sends messages."""

    def __init__(
        self,
        services: Services,
        submitter: Submitter,
        *,
        clock: Callable[[], datetime] = now,
    ) -> None:
        """Make a desk.

        Args:
            clock: the present moment.

        Raises:
            BadInputError: what ``perfbisect.toml`` says of alerts can't be right.
        """
        self._services = services
        self._submitter = submitter
        self._clock = clock
        self._config = load_alert_config(services.settings.project_dir)
        self._problem = ""
        self._swept_at = clock()
        self.sender = Sender(services, lambda: self._config)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def config(self) -> AlertConfig:
        """What ``perfbisect.toml`` says now; where it became wrong, what it said before."""
        try:
            self._config = load_alert_config(self._services.settings.project_dir)
            self._problem = ""
        except BadInputError as error:
            if error.message != self._problem:
                log.error("%s; the old rules go on", error.message)
            self._problem = error.message
        return self._config

    def start(self) -> None:
        """Work in threads of its own."""
        self._thread = threading.Thread(target=self._loop, name="desk", daemon=True)
        self._thread.start()
        self.sender.start()

    def stop(self) -> None:
        """End the threads; what is being submitted or sent is waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.sender.stop()

    def _loop(self) -> None:
        while not self._stop.wait(TICK):
            try:
                self.look()
            except PerfbisectError as error:
                log.warning("alerts: %s", error.message)
            except Exception:
                log.exception("alerts: unforeseen error")

    def look(self) -> None:
        """Do what is due now."""
        config, moment = self.config, self._clock()
        decide(self._services, config, self._submitter, moment)
        follow(self._services, config, self._submitter)
        if config.alerts.self_checks:
            start_due(self._services, moment)
        spread(self._services, config, own_policy)
        if moment - self._swept_at > SWEEP:
            forget_notices(self._services, moment)
            self._swept_at = moment
