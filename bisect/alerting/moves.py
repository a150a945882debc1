"""The one place where an alert changes its state."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.alert_states import ALERT_TRANSITIONS, CLOSED_STATES, AlertState, MessageEvent
from perfbisect.core.states import ChangeKind
from perfbisect.errors import ConflictError
from perfbisect.store.alert_tables import AlertRow, AnnouncementRow
from perfbisect.store.database import new_id, now


def move(
    session: Session,
    row: AlertRow,
    state: AlertState,
    reason: str,
    *,
    held_by: str = "",
    until: datetime | None = None,
) -> None:
    """Set the state of an alert, with the reason in words.

    An alert that is over already goes on to ``resolved`` as soon as it may.

    Raises:
        ConflictError: there is no such transition.
    """
    if state is not row.state and state not in ALERT_TRANSITIONS[row.state]:
        raise ConflictError(
            f"alert {row.id} is {row.state}: it can't become {state}",
            field="alert_id",
            value=row.id,
        )
    row.state, row.reason, row.held_by, row.held_until = state, reason, held_by, until
    if state is AlertState.RESOLVED:
        _tell_fixed(session, row)
    if state in CLOSED_STATES:
        row.closed_at = row.closed_at or now()
    over = row.resolved_at is not None and AlertState.RESOLVED in ALERT_TRANSITIONS[state]
    if over and state is not AlertState.RESOLVED:
        ending = f"{reason}; {row.resolution or 'over since'}"
        move(session, row, AlertState.RESOLVED, ending)


def _tell_fixed(session: Session, row: AlertRow) -> None:
    """Tell those who heard of it that it is over; for a culprit, once all its alerts are."""
    opened = session.scalar(
        select(AnnouncementRow.key).where(
            AnnouncementRow.alert_id == row.id, AnnouncementRow.event == MessageEvent.OPENED
        )
    )
    if row.finding_id is None:
        if opened is not None:
            announce(session, row, MessageEvent.FIXED, opened.partition(":")[2])
        return
    others = session.scalar(
        select(AlertRow.id)
        .where(
            AlertRow.finding_id == row.finding_id,
            AlertRow.id != row.id,
            AlertRow.resolved_at.is_(None),
            AlertRow.state.not_in(CLOSED_STATES),
        )
        .limit(1)
    )
    if others is None and row.kind is ChangeKind.REGRESSION:
        announce(session, row, MessageEvent.FIXED, row.finding_id)


def announce(session: Session, row: AlertRow, event: MessageEvent, about: str) -> None:
    """Have something told, in this transaction; what was announced for this alert is not again.

    Args:
        about: what is told once only, whichever alert it comes from.
    """
    key = f"{event.value}:{about}"
    known = select(AnnouncementRow.id).where(
        AnnouncementRow.alert_id == row.id, AnnouncementRow.key == key
    )
    if session.scalar(known) is None:
        session.add(AnnouncementRow(id=new_id(), event=event, key=key, alert_id=row.id, at=now()))
        session.flush()
