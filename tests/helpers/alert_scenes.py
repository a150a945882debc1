"""Alerts in a database as the desk leaves them, for tests of the API and the pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.helpers.seeding import Seed

from perfbisect.alerting.findings import remember
from perfbisect.alerting.moves import move
from perfbisect.alerts import AlertSignal, raise_alert
from perfbisect.core.alert_states import AlertState, MessageEvent, MessageState
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, MessageRow
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow

NIGHT = datetime(2026, 11, 30, 6, tzinfo=UTC)


def signal(name: str = "resnet50", **told: Any) -> AlertSignal:
    values: dict[str, Any] = {
        "source": "generic",
        "fingerprint": name,
        "started_at": NIGHT,
        "benchmark": name,
        "good": "3e0ad8a004",
        "bad": "3205135",
        "before": 9000.0,
        "after": 6200.0,
    }
    return AlertSignal(**(values | told))


def held(services: Services, name: str = "resnet50", **told: Any) -> str:
    """Return the id of an alert that waits for a person."""
    alert_id = raise_alert(services, signal(name, **told))
    with services.database.write() as session:
        row = session.get_one(AlertRow, alert_id)
        move(session, row, AlertState.HELD, "the policy asks before it bisects", held_by="ask")
    return alert_id


def explained(services: Services, seed: Seed) -> str:
    """Return the id of an alert that the finished bisection explains."""
    alert_id = raise_alert(services, signal("explained"))
    with services.database.write() as session:
        row = session.get_one(AlertRow, alert_id)
        bisection = session.get_one(BisectionRow, seed.id)
        row.bisection_id = bisection.id
        assert bisection.verdict is not None
        row.finding_id = remember(session, bisection, bisection.verdict["culprits"][0]).id
        for state in (AlertState.QUEUED, AlertState.BISECTING, AlertState.EXPLAINED):
            move(session, row, state, "explained")
    return alert_id


def dead(services: Services, alert_id: str) -> str:
    """Return the id of a message that was given up."""
    message_id = new_id()
    with services.database.write() as session:
        session.add(
            MessageRow(
                id=message_id, target="team", event=MessageEvent.OPENED,
                dedupe_key=f"opened:{alert_id}", alert_id=alert_id,
                subject="resnet50 got worse", body="**worse**", data={},
                state=MessageState.DEAD, attempts=9, next_attempt_at=now(), created_at=now(),
                error="the receiver answered 500",
            )
        )  # fmt: skip
    return message_id
