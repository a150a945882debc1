"""Answers out: sends what is in the outbox, to webhooks and through apprise.

A message is written in the outbox (``alerting.outbox``) and sent from here until its receiver took
it, or until it is given up: then it is a dead letter, which people see and may send again. A
process that is killed between sending and noting so leaves the message to the next one: a webhook
gets it again under the same ``webhook-id``; other targets do not get it again.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from standardwebhooks.webhooks import Webhook

from perfbisect.addresses import Resolve
from perfbisect.alerting.configuration import AlertConfig, Target
from perfbisect.alerting.outbox import any_due, failed, settle, take_due
from perfbisect.alerting.outward import post
from perfbisect.core.alert_states import MessageState
from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.services import Services
from perfbisect.store.alert_tables import MessageRow
from perfbisect.store.database import process_owner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way."""

    id: str
    event: str
    subject: str
    #: Markdown.
    body: str
    data: dict[str, object]
    created_at: datetime


class GivenUp(Exception):
    """A receiver that will never take it: no further attempt."""


class Notifier(Protocol):
    """Sends a message to one target."""

    #: Whether the receiver knows a repetition by the message's id.
    repeatable: bool

    def send(self, message: Outgoing) -> None:
        """Send; return once the receiver took it.

        Raises:
            PerfbisectError: it did not; worth another attempt.
            GivenUp: it never will.
        """
        ...


class WebhookNotifier:
    """Posts signed JSON, as standardwebhooks.com has it."""

    repeatable = True

    def __init__(
        self, url: str, secret: str, *, allowed: Sequence[str] = (), resolve: Resolve | None = None
    ) -> None:
        """Make a notifier.

        Args:
            secret: ``whsec_`` and base64.
            allowed: see ``outward.check_address``.

        Raises:
            BadInputError: the secret is none.
        """
        self._url = url
        self._allowed = allowed
        self._resolve = resolve
        try:
            self._webhook = Webhook(secret)
        except (RuntimeError, ValueError) as error:
            raise BadInputError("secret: should be whsec_ and base64", field="secret") from error

    def send(self, message: Outgoing) -> None:
        """Post it; an answer of 2xx takes it, 410 and redirects never will."""
        content = json.dumps(
            {
                "type": f"perfbisect.{message.event}",
                "timestamp": message.created_at.isoformat(),
                "data": {
                    **message.data,
                    "subject_line": message.subject,
                    "markdown": message.body,
                },
            },
            ensure_ascii=False,
        )
        moment = datetime.now(UTC)
        identity = f"msg_{message.id}"
        headers = {
            "content-type": "application/json",
            "user-agent": "perfbisect",
            "webhook-id": identity,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": self._webhook.sign(identity, moment, content),
        }
        answer = post(
            self._url, content.encode(), headers, allowed=self._allowed, resolve=self._resolve
        )
        if 200 <= answer.status < 300:
            return
        said = f"the receiver answered {answer.status}: {answer.text[:200]}"
        if answer.status == 410:
            raise GivenUp(said)
        if 300 <= answer.status < 400:
            raise GivenUp(f"the receiver answered {answer.status}: redirects are not followed")
        raise TransientError(said)


class AppriseNotifier:
    """Sends through one of apprise's services: Slack, mail, Matrix, ..."""

    repeatable = False

    def __init__(self, url: str) -> None:
        """Make a notifier.

        Raises:
            BadInputError: apprise is not installed, or knows no such address.
        """
        try:
            import apprise
        except ImportError as error:
            raise BadInputError(
                "apprise is not installed: pip install 'perfbisect[apprise]'", field="kind"
            ) from error
        self._format = apprise.NotifyFormat.MARKDOWN
        self._apprise = apprise.Apprise()
        if not self._apprise.add(url):
            raise BadInputError("url: apprise knows no such address", field="url")

    def send(self, message: Outgoing) -> None:
        """Send it."""
        taken = self._apprise.notify(
            title=message.subject, body=message.body, body_format=self._format
        )
        if not taken:
            raise TransientError("the service did not take it; the log of apprise says why")


def make_notifier(target: Target, directory: Path, allowed: Sequence[str]) -> Notifier:
    """Return what sends to a target.

    Raises:
        BadInputError: a variable or file is missing, or the address can't be right.
    """
    address = target.address(directory)
    if target.kind == "apprise":
        return AppriseNotifier(address)
    return WebhookNotifier(address, target.secret(directory), allowed=allowed)


class Sender:
    """Sends what is due. Several processes may do so at once."""

    def __init__(
        self,
        services: Services,
        config: Callable[[], AlertConfig],
        make: Callable[[Target, Path, Sequence[str]], Notifier] = make_notifier,
    ) -> None:
        self._services = services
        self._config = config
        self._make = make
        self._owner = process_owner()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, pause: float = 1.0) -> None:
        """Send in a thread of its own, looking every ``pause`` seconds."""

        def loop() -> None:
            while not self._stop.wait(pause):
                try:
                    self.send_due()
                except PerfbisectError as error:
                    log.warning("messages: %s", error.message)
                except Exception:
                    log.exception("messages: unforeseen error")

        self._thread = threading.Thread(target=loop, name="sender", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is being sent is waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def send_due(self) -> int:
        """Send what is due now; return how many were tried."""
        with self._services.database.read() as session:
            if not any_due(session):
                return 0
        config = self._config()
        with self._services.database.write() as session:
            rows = take_due(session, self._owner, lambda name: _repeatable(config, name))
        silent: dict[str, str] = {}
        for row in rows:
            if row.target not in silent:
                problem, for_good = self._try(config, row)
            else:
                # One silence is enough for this round: others wait for their turn.
                problem, for_good = silent[row.target], False
            if problem and not for_good:
                silent[row.target] = problem
            self._note(row.id, problem, for_good)
        return len(rows)

    def _try(self, config: AlertConfig, row: MessageRow) -> tuple[str, bool]:
        """Send one; return what went wrong (empty: nothing), and whether it is given up."""
        target = config.notify.get(row.target)
        if target is None:
            return f"there is no [notify.{row.target}] any more", True
        message = Outgoing(row.id, row.event.value, row.subject, row.body, row.data, row.created_at)
        try:
            allowed = self._services.settings.outbound_allowed
            self._make(target, config.directory, allowed).send(message)
        except GivenUp as error:
            return str(error), True
        except PerfbisectError as error:
            return error.message, False
        except Exception as error:
            log.exception("message %s: unforeseen error", row.id)
            return f"{type(error).__name__}: {error}", False
        return "", False

    def _note(self, message_id: str, problem: str, for_good: bool) -> None:
        with self._services.database.write() as session:
            row = session.get_one(MessageRow, message_id)
            if row.lease_owner != self._owner:
                return
            if problem:
                failed(row, problem, for_good=for_good)
            else:
                row.attempts += 1
                settle(row, MessageState.DELIVERED)


def _repeatable(config: AlertConfig, name: str) -> bool:
    target = config.notify.get(name)
    return target is None or target.kind == "webhook"
