"""Reading alerts, what was delivered of them, messages, and how often verdicts were right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from perfbisect.core.alert_states import (
    CLOSED_STATES,
    OPEN_STATES,
    AlertState,
    MessageState,
    NoticeResult,
)
from perfbisect.core.states import Outcome
from perfbisect.errors import NotFoundError
from perfbisect.store.alert_tables import (
    AlertRow,
    FeedbackRow,
    FindingRow,
    MessageRow,
    NoticeRow,
)
from perfbisect.store.queries import cut, known_id
from perfbisect.store.tables import BisectionRow


class View(StrEnum):
    """Which alerts a list shows."""

    OPEN = "open"
    HELD = "held"
    CLOSED = "closed"


_STATES = {
    View.OPEN: OPEN_STATES,
    View.HELD: frozenset({AlertState.HELD}),
    View.CLOSED: CLOSED_STATES,
}


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which alerts are wanted; empty fields do not filter."""

    view: View | None = None
    state: AlertState | None = None
    source: str | None = None
    #: Words found in title, series, benchmark, pool, repository, reason or fingerprint.
    q: str | None = None


def list_alerts(
    session: Session, wanted: AlertFilter, *, before: str | None, limit: int
) -> tuple[list[AlertRow], bool]:
    """Return the newest alerts with an id below ``before``, and whether there are more."""
    query = select(AlertRow).order_by(AlertRow.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(AlertRow.id < before)
    if wanted.view is not None:
        query = query.where(AlertRow.state.in_(_STATES[wanted.view]))
    if wanted.state is not None:
        query = query.where(AlertRow.state == wanted.state)
    if wanted.source:
        query = query.where(AlertRow.source == wanted.source)
    for word in (wanted.q or "").split():
        columns = (
            AlertRow.id,
            AlertRow.title,
            func.coalesce(AlertRow.series, ""),
            func.coalesce(AlertRow.benchmark, ""),
            func.coalesce(AlertRow.pool, ""),
            func.coalesce(AlertRow.repository, ""),
            AlertRow.reason,
            AlertRow.fingerprint,
        )
        query = query.where(or_(*(column.icontains(word, autoescape=True) for column in columns)))
    return cut(session.scalars(query).all(), limit)


def count_views(session: Session) -> dict[View, int]:
    """Return how many alerts each list holds."""
    rows = session.execute(select(AlertRow.state, func.count()).group_by(AlertRow.state)).all()
    counted = {row[0]: row[1] for row in rows}
    return {
        view: sum(counted.get(state, 0) for state in states) for view, states in _STATES.items()
    }


def get_alert(session: Session, alert_id: str) -> AlertRow:
    """Return an alert.

    Raises:
        NotFoundError: no such alert.
    """
    row = session.get(AlertRow, known_id(alert_id, "alert", "alert_id"))
    if row is None:
        raise NotFoundError(f"no alert '{alert_id}'", field="alert_id", value=alert_id)
    return row


def alerts_of_bisection(session: Session, bisection_id: str) -> list[AlertRow]:
    """Return the alerts that a bisection was started for or explains, oldest first."""
    query = select(AlertRow).where(AlertRow.bisection_id == bisection_id).order_by(AlertRow.id)
    return list(session.scalars(query))


def group_of(session: Session, row: AlertRow) -> list[AlertRow]:
    """Return the other alerts of the same range, or explained by the same culprit."""
    same = []
    if row.group_key is not None:
        same.append(AlertRow.group_key == row.group_key)
    if row.finding_id is not None:
        same.append(AlertRow.finding_id == row.finding_id)
    if not same:
        return []
    query = select(AlertRow).where(or_(*same), AlertRow.id != row.id).order_by(AlertRow.id)
    return list(session.scalars(query.limit(100)))


def notices_of(session: Session, alert_id: str, limit: int = 20) -> list[NoticeRow]:
    """Return the newest deliveries of an alert."""
    query = (
        select(NoticeRow)
        .where(NoticeRow.alert_id == alert_id)
        .order_by(NoticeRow.id.desc())
        .limit(limit)
    )
    return list(session.scalars(query))


def list_notices(
    session: Session, result: NoticeResult | None, *, before: int | None, limit: int
) -> tuple[list[NoticeRow], bool]:
    """Return the newest deliveries with an id below ``before``, and whether there are more."""
    query = select(NoticeRow).order_by(NoticeRow.id.desc()).limit(limit + 1)
    if result is not None:
        query = query.where(NoticeRow.result == result)
    if before is not None:
        query = query.where(NoticeRow.id < before)
    return cut(session.scalars(query).all(), limit)


def list_messages(
    session: Session,
    state: MessageState | None,
    *,
    alert_ids: Sequence[str] | None = None,
    before: str | None = None,
    limit: int,
) -> tuple[list[MessageRow], bool]:
    """Return the newest messages with an id below ``before``, and whether there are more."""
    query = select(MessageRow).order_by(MessageRow.id.desc()).limit(limit + 1)
    if state is not None:
        query = query.where(MessageRow.state == state)
    if alert_ids is not None:
        query = query.where(MessageRow.alert_id.in_(alert_ids))
    if before is not None:
        query = query.where(MessageRow.id < before)
    return cut(session.scalars(query).all(), limit)


def get_message(session: Session, message_id: str) -> MessageRow:
    """Return a message.

    Raises:
        NotFoundError: no such message.
    """
    row = session.get(MessageRow, known_id(message_id, "message", "message_id"))
    if row is None:
        raise NotFoundError(f"no message '{message_id}'", field="message_id", value=message_id)
    return row


def count_dead(session: Session) -> int:
    """Return how many messages were given up."""
    query = select(func.count()).select_from(MessageRow)
    return session.scalar(query.where(MessageRow.state == MessageState.DEAD)) or 0


def finding_of(session: Session, row: AlertRow) -> FindingRow | None:
    """Return the culprit that explains an alert."""
    return session.get(FindingRow, row.finding_id) if row.finding_id is not None else None


@dataclass(frozen=True, slots=True)
class Month:
    """What people thought of the verdicts of one month."""

    #: ``2026-11``: when the bisections ended.
    month: str
    right: int
    wrong: int
    #: Verdicts that named a culprit and that nobody judged.
    unjudged: int

    @property
    def accuracy(self) -> float | None:
        """Share of the judged verdicts that were right; None: none was judged."""
        judged = self.right + self.wrong
        return self.right / judged if judged else None


def accuracy_by_month(session: Session) -> list[Month]:
    """Return how often verdicts were right, newest month first."""
    words = newest_words(session)
    counted: dict[str, list[int]] = {}
    ended = session.execute(
        select(BisectionRow.id, BisectionRow.finished_at, BisectionRow.outcome).where(
            BisectionRow.finished_at.is_not(None)
        )
    )
    for bisection_id, finished_at, outcome in ended:
        word = words.get(bisection_id)
        if finished_at is None or (word is None and outcome is not Outcome.CULPRITS):
            continue
        month = counted.setdefault(_month(finished_at), [0, 0, 0])
        month[2 if word is None else 0 if word.is_right else 1] += 1
    return [Month(month, *counted[month]) for month in sorted(counted, reverse=True)]


def _month(moment: datetime) -> str:
    return moment.strftime("%Y-%m")


def newest_words(session: Session) -> dict[str, FeedbackRow]:
    """Return the newest word on each bisection."""
    newest = select(func.max(FeedbackRow.id)).group_by(FeedbackRow.bisection_id)
    rows = session.scalars(select(FeedbackRow).where(FeedbackRow.id.in_(newest)))
    return {row.bisection_id: row for row in rows}


def feedback_on(session: Session, bisection_id: str) -> list[FeedbackRow]:
    """Return every word on a bisection, newest first."""
    query = (
        select(FeedbackRow)
        .where(FeedbackRow.bisection_id == bisection_id)
        .order_by(FeedbackRow.id.desc())
    )
    return list(session.scalars(query))


def judged_lately(session: Session, limit: int = 50) -> list[tuple[FeedbackRow, BisectionRow]]:
    """Return the newest words with their bisections."""
    query = (
        select(FeedbackRow, BisectionRow)
        .join(BisectionRow, BisectionRow.id == FeedbackRow.bisection_id)
        .order_by(FeedbackRow.id.desc())
        .limit(limit)
    )
    return [(feedback, bisection) for feedback, bisection in session.execute(query)]
