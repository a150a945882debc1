"""Messages out: signed, tried again, given up, sent once; whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from standardwebhooks.webhooks import Webhook
from tests.helpers.alerting import AT_ONCE, SECRET, Inbox, Scene, receiving, scene

from perfbisect.alerting.outbox import DELAYS, redeliver
from perfbisect.alerts import raise_alert
from perfbisect.core.alert_states import MessageEvent, MessageState
from perfbisect.notify import Sender
from perfbisect.store.alert_tables import MessageRow
from perfbisect.store.database import now

HOOK = '[notify.hook]\nkind = "webhook"\nurl = "{url}"\nsecret_env = "HOOK_SECRET"\n'

#: Sends what is due in the data directory and project directory given.
SEND = """
import sys
from pathlib import Path
from perfbisect.alerting.configuration import load_alert_config
from perfbisect.notify import Sender
from perfbisect.services import Services
from perfbisect.settings import Settings
data, project = map(Path, sys.argv[1:])
services = Services.open(Settings(data_dir=data, outbound_allowed=["127.0.0.1"]))
Sender(services, lambda: load_alert_config(project)).send_due()
"""


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with receiving() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


@contextmanager
def told(directory: Path, targets: str, **settings: Any) -> Iterator[Scene]:
    """Yield a scene in which one alert was opened, and its messages are written."""
    options: dict[str, Any] = {"outbound_allowed": ["127.0.0.1"], **settings}
    config = AT_ONCE + targets
    with scene(directory, {"strong": {}}, config=config, working=False, **options) as here:
        raise_alert(here.services, here.signal("strong"))
        here.desk.look()
        yield here


def messages(here: Scene) -> list[MessageRow]:
    with here.services.database.read() as session:
        return list(session.scalars(select(MessageRow).order_by(MessageRow.target)))


def make_due(here: Scene) -> None:
    """Let the time of the next attempt come."""
    with here.services.database.write() as session:
        session.execute(update(MessageRow).values(next_attempt_at=now() - timedelta(seconds=1)))


def test_a_webhook_is_signed_and_says_what_happened(tmp_path: Path, inbox: Inbox) -> None:
    """The signature is good by the public library; the body names the event and the alert."""
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        here.desk.sender.send_due()
        (row,) = messages(here)
    ((headers, body),) = inbox.got
    Webhook(SECRET).verify(headers["raw"], headers)
    assert headers["webhook-id"] == f"msg_{row.id}"
    assert body["type"] == "perfbisect.opened"
    assert body["data"]["benchmark"] == "strong"
    assert (row.state, row.attempts) == (MessageState.DELIVERED, 1)


def test_what_is_not_taken_is_tried_again_later(tmp_path: Path, inbox: Inbox) -> None:
    """After a 500 the next attempt is due later, with the same id; then it is delivered."""
    inbox.answers = [500]
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        here.desk.sender.send_due()
        (row,) = messages(here)
        assert (row.state, row.attempts) == (MessageState.PENDING, 1)
        assert "500" in row.error
        assert row.next_attempt_at > now() + timedelta(seconds=DELAYS[0] - 4)
        assert here.desk.sender.send_due() == 0
        make_due(here)
        here.desk.sender.send_due()
        (row,) = messages(here)
    assert row.state is MessageState.DELIVERED
    assert len(set(inbox.ids())) == 1
    assert len(inbox.got) == 2


@pytest.mark.parametrize("status", [410, 302])
def test_gone_and_moved_are_dead_at_once(tmp_path: Path, inbox: Inbox, status: int) -> None:
    """A receiver that is gone, or wants it sent elsewhere, gets no second attempt."""
    inbox.answers = [status]
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        here.desk.sender.send_due()
        (row,) = messages(here)
    assert row.state is MessageState.DEAD
    assert str(status) in row.error


def test_a_dead_letter_is_seen_and_sent_again(tmp_path: Path, inbox: Inbox) -> None:
    """After the last attempt it is dead; a person has it sent again, under the same id."""
    inbox.answers = [503] * (len(DELAYS) + 1)
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        for _ in range(len(DELAYS) + 1):
            make_due(here)
            here.desk.sender.send_due()
        (row,) = messages(here)
        assert row.state is MessageState.DEAD
        make_due(here)
        assert here.desk.sender.send_due() == 0
        redeliver(here.services, row.id)
        here.desk.sender.send_due()
        (row,) = messages(here)
    assert row.state is MessageState.DELIVERED
    assert set(inbox.ids()) == {f"msg_{row.id}"}


def test_a_silent_target_does_not_hold_up_others(tmp_path: Path, inbox: Inbox) -> None:
    """With one target down, the other still gets its message."""
    with receiving() as other:
        down = other.url
    targets = HOOK.format(url=inbox.url) + HOOK.format(url=down).replace("hook]", "down]")
    with told(tmp_path, targets) as here:
        here.desk.sender.send_due()
        states = {row.target: row.state for row in messages(here)}
    assert states == {"hook": MessageState.DELIVERED, "down": MessageState.PENDING}


def test_addresses_inside_get_nothing(tmp_path: Path, inbox: Inbox) -> None:
    """Without the setting, a webhook to this machine is refused, and the message says why."""
    with told(tmp_path, HOOK.format(url=inbox.url), outbound_allowed=[]) as here:
        here.desk.sender.send_due()
        (row,) = messages(here)
    assert inbox.got == []
    assert "PERFBISECT_OUTBOUND_ALLOWED" in row.error


def test_a_kill_while_sending_loses_and_doubles_nothing(tmp_path: Path, inbox: Inbox) -> None:
    """The sender is killed after the receiver got the message and before it noted so: the next one
    sends it again under the same id, by which the receiver has it once."""
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        data = here.services.settings.data_dir
        process = subprocess.Popen([sys.executable, "-c", SEND, str(data), str(tmp_path)])
        inbox.on_request = lambda: os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        inbox.on_request = None
        (row,) = messages(here)
        assert row.state is MessageState.SENDING
        for _ in range(3):
            here.desk.look()
            here.desk.sender.send_due()
        (row,) = messages(here)
    assert row.state is MessageState.DELIVERED
    assert inbox.ids() == [f"msg_{row.id}"] * 2


def test_two_senders_send_each_message_once(tmp_path: Path, inbox: Inbox) -> None:
    """What one process is sending, another leaves alone."""
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        first = here.desk.sender
        # Another owner, as another process would be.
        second = Sender(here.services, lambda: here.desk.config)
        inbox.on_request = second.send_due
        first.send_due()
        (row,) = messages(here)
    assert row.state is MessageState.DELIVERED
    assert len(inbox.got) == 1


# A module of apprise imports one that Python 3.13 does not have; it has a stand-in for it.
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_chats_are_told_through_apprise(
    tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service of apprise gets subject and text; what it does not take is tried again."""
    monkeypatch.setenv("CHAT", inbox.url.replace("http://", "ntfy://").replace("/hook", "/alerts"))
    inbox.answers = [500, 200]
    with told(tmp_path, '[notify.chat]\nkind = "apprise"\nurl_env = "CHAT"\n') as here:
        here.desk.sender.send_due()
        assert messages(here)[0].state is MessageState.PENDING
        make_due(here)
        here.desk.sender.send_due()
        assert messages(here)[0].state is MessageState.DELIVERED
    assert len(inbox.got) == 2
    assert "strong got worse: -50.0%" in inbox.got[1][1]["title"]


def test_a_chat_gets_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat knows no ids: what a killed process may have sent is not sent again, and is a dead
    letter that says so."""
    monkeypatch.setenv("CHAT", "slack://a/b/c")
    with told(tmp_path, '[notify.chat]\nkind = "apprise"\nurl_env = "CHAT"\n') as here:
        with here.services.database.write() as session:
            session.execute(
                update(MessageRow).values(
                    state=MessageState.SENDING, lease_owner=None, lease_expires_at=None
                )
            )
        here.desk.sender.send_due()
        (row,) = messages(here)
    assert row.state is MessageState.DEAD
    assert "may have arrived" in row.error


def test_events_that_a_target_does_not_want_are_not_written(tmp_path: Path, inbox: Inbox) -> None:
    """A target that wants to hear of culprits only hears nothing of opened alerts."""
    only_found = HOOK.format(url=inbox.url) + f'events = ["{MessageEvent.FOUND}"]\n'
    with told(tmp_path, only_found) as here:
        here.desk.sender.send_due()
        assert messages(here) == []


def test_one_message_for_one_range(tmp_path: Path, inbox: Inbox) -> None:
    """A second alert of the same range, on another benchmark, opens nothing new."""
    with told(tmp_path, HOOK.format(url=inbox.url)) as here:
        signal = here.signal("strong")
        raise_alert(here.services, replace(signal, fingerprint="other", benchmark="calm"))
        here.desk.look()
        here.desk.sender.send_due()
        assert len(messages(here)) == 1
