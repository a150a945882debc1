"""Scene: alerts of every kind, what people do with them, and messages about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from tests.helpers.alerting import SteppedRunner
from tests.helpers.conducting import SmallRepository, make_repository
from tests.helpers.crashing.searching import opened_repository
from tests.helpers.crashing.world import BENCHMARK, RECIPE, Scene, SceneBuilder, unfinished

from perfbisect.alerting.hands import dismiss_alert, start_alert
from perfbisect.alerting.outbox import redeliver
from perfbisect.alerts import AlertSignal, raise_alert, resolve_alert
from perfbisect.core.alert_states import AlertState, MessageState
from perfbisect.core.states import ChangeKind, FailureKind
from perfbisect.ports import Builder, CancelToken, Failure, Runner, RunRequest, RunSuccess
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, AnnouncementRow, MessageRow
from perfbisect.store.database import now

STARTED = datetime(2026, 11, 30, 6, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

CONFIG = """
[alerts]
group_wait = "0s"
self_checks = false
[alerts.policy]
prove = false
recoveries = false
cooldown = "1h"
[notify.hook]
kind = "webhook"
url_env = "CRASH_HOOK"
secret_env = "CRASH_SECRET"
"""

#: Benchmark -> position -> factor; where nothing is said, its runs fail for a mistake of ours.
STEPS: Mapping[str, Mapping[int, float]] = {
    "strong": {5: 0.5},
    "weak": {5: 0.8},
    "other": {2: 0.7},
    "calm": {},
    "calm2": {},
    "late": {5: 0.5},
    "spare": {},
}
MISTAKEN = ("mistaken", "mistaken2")

Hand = Callable[[Services, AlertRow], object]


def _dismiss(services: Services, row: AlertRow) -> None:
    dismiss_alert(services, row.id, "a person")


def _resolve(services: Services, row: AlertRow) -> None:
    resolve_alert(services, row.source, row.fingerprint, row.started_at, "back since 12-02")


def _start_once(services: Services, row: AlertRow) -> None:
    if row.tries:
        _dismiss(services, row)
    else:
        start_alert(services, row.id, "a person")


def _resolve_cooling(services: Services, row: AlertRow) -> None:
    if row.held_by == "cooldown":
        _resolve(services, row)


def _complete(services: Services, row: AlertRow) -> None:
    good = opened_repository_of(services).shas[4]
    start_alert(services, row.id, "a person", {"good": good})


def opened_repository_of(services: Services) -> SmallRepository:
    """Return the scene's repository."""
    directory = services.settings.project_dir
    assert directory is not None
    return opened_repository(directory / "repository")


@dataclass(frozen=True)
class Told:
    """An alert, what people do with it in which state, and where it ends."""

    benchmark: str
    end: AlertState
    hands: Mapping[AlertState, Hand] = field(default_factory=dict)
    #: Position of the good end; None: it is not told.
    good: int | None = 0
    change: float = -0.5
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Told once the bisection of this other alert has been started.
    after: str = ""


_S = AlertState
ALERTS: Mapping[str, Told] = {
    # Told and over, or dismissed, before anybody looked.
    "early": Told("strong", _S.RESOLVED, {_S.NEW: _resolve}),
    "gone": Told("strong", _S.DISMISSED, {_S.NEW: _dismiss}),
    # One range, three benchmarks, two causes.
    "strong": Told("strong", _S.RESOLVED, {_S.EXPLAINED: _resolve}),
    "weak": Told("weak", _S.DISMISSED, {_S.EXPLAINED: _dismiss}, change=-0.2),
    "other": Told("other", _S.EXPLAINED, change=-0.3),
    # The strongest of its range is nothing; the other one of the range gets its own bisection.
    "calm": Told("calm", _S.DISMISSED, {_S.NOT_REPRODUCED: _dismiss}, good=1),
    "follower": Told("late", _S.EXPLAINED, good=1, change=-0.1),
    "calm2": Told("calm2", _S.RESOLVED, {_S.NOT_REPRODUCED: _resolve}, good=2),
    # Their runs fail for a mistake of ours.
    "mistaken": Told("mistaken", _S.DISMISSED, {_S.UNEXPLAINED: _start_once}, good=3),
    "mistaken2": Told("mistaken2", _S.RESOLVED, {_S.UNEXPLAINED: _resolve}, good=4),
    # They say too little.
    "completed": Told("strong", _S.EXPLAINED, {_S.HELD: _complete}, good=None),
    "held": Told("strong", _S.DISMISSED, {_S.HELD: _dismiss}, good=None),
    "held2": Told("strong", _S.RESOLVED, {_S.HELD: _resolve}, good=None),
    # Refused, unwanted, and told too soon after another.
    "strange": Told(
        "spare", _S.DISMISSED, {_S.HELD: _dismiss},
        values={"repository": "https://example.org/strange.git"},
    ),
    "recovery": Told("calm", _S.DISMISSED, good=5, values={"kind": ChangeKind.RECOVERY}),
    "cooling": Told("strong", _S.RESOLVED, {_S.QUEUED: _resolve_cooling}, good=3, after="strong"),
}  # fmt: skip


class _Runner(SteppedRunner):
    """Some benchmarks can't be run at all."""

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:  # type: ignore[override]
        if request.benchmark.name in MISTAKEN:
            return Failure(FailureKind.OURS, "pattern never matched")
        return super().run(request, cancel)


class Alarming(Scene):
    """Every alert of ``ALERTS`` comes to its end, and every message to its receiver."""

    name = "alarming"
    follows = False

    def prepare(self) -> None:
        """Write the repository, the names and the receiver."""
        make_repository(self.directory / "repository", 8)
        text = CONFIG + RECIPE.format(name="scripted")
        text += "".join(BENCHMARK.format(name=name) for name in (*STEPS, *MISTAKEN))
        (self.directory / "perfbisect.toml").write_text(text)
        os.environ["CRASH_SECRET"] = SECRET

    def parts(self, services: Services) -> tuple[Builder, Runner]:
        """Return builds that succeed and runs with steps."""
        repository = opened_repository(self.directory / "repository")
        return SceneBuilder(), _Runner(repository, STEPS)

    def step(self, services: Services) -> None:
        """Tell what is not told yet; do with each alert what its state asks for."""
        rows = self._rows(services)
        for name, told in ALERTS.items():
            row = rows.get(name)
            if row is None:
                ready = not told.after or (
                    told.after in rows and rows[told.after].bisected_at is not None
                )
                if ready:
                    self._tell(services, name, told)
                continue
            hand = told.hands.get(row.state)
            if hand is not None:
                hand(services, row)
        rows = self._rows(services)
        for name in ("early", "gone"):
            if rows[name].state is AlertState.NEW:
                ALERTS[name].hands[AlertState.NEW](services, rows[name])
        self._move_messages(services)

    def told(self, services: Services) -> str:
        """Return every state."""
        rows = self._rows(services)
        with services.database.read() as session:
            messages = [
                (row.state.value, row.event.value, row.attempts)
                for row in session.scalars(select(MessageRow))
            ]
        return f"{ {name: (row.state.value, row.reason) for name, row in rows.items()} } {messages}"

    def _rows(self, services: Services) -> dict[str, AlertRow]:
        with services.database.read() as session:
            return {row.fingerprint: row for row in session.scalars(select(AlertRow))}

    def _tell(self, services: Services, name: str, told: Told) -> None:
        shas = opened_repository_of(services).shas
        values: dict[str, Any] = {
            "source": "generic",
            "fingerprint": name,
            "started_at": STARTED,
            "benchmark": told.benchmark,
            "repository": str(self.directory / "repository"),
            "recipe": "scripted",
            "good": None if told.good is None else shas[told.good],
            "bad": shas[-1],
            "before": 9000.0,
            "after": 9000.0 * (1 + told.change),
        }
        raise_alert(services, AlertSignal(**(values | dict(told.values))))

    def _move_messages(self, services: Services) -> None:
        """Let time pass for what failed; have dead letters sent again."""
        with services.database.read() as session:
            dead = session.scalars(
                select(MessageRow.id).where(MessageRow.state == MessageState.DEAD)
            ).all()
            late = session.scalar(
                select(MessageRow.id).where(MessageRow.next_attempt_at > now()).limit(1)
            )
        for message_id in dead:
            redeliver(services, message_id)
        if late is not None:
            with services.database.write() as session:
                session.execute(
                    update(MessageRow)
                    .where(MessageRow.state == MessageState.PENDING)
                    .values(next_attempt_at=now())
                )

    def is_over(self, services: Services) -> bool:
        """Return whether each alert is where it ends, and everything was told."""
        rows = self._rows(services)
        if any(name not in rows or rows[name].state is not told.end
               for name, told in ALERTS.items()):  # fmt: skip
            return False
        with services.database.read() as session:
            unspread = session.scalar(
                select(AnnouncementRow.id).where(AnnouncementRow.spread_at.is_(None)).limit(1)
            )
            unsent = session.scalar(
                select(MessageRow.id).where(MessageRow.state != MessageState.DELIVERED).limit(1)
            )
        return unspread is None and unsent is None and not unfinished(services)
