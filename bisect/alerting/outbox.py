"""The outbox: announcements become messages, one for each target; messages are sent until done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Select, or_, select, update
from sqlalchemy.orm import Session

from perfbisect.alerting.configuration import AlertConfig
from perfbisect.alerting.policy import Policy
from perfbisect.alerting.wording import words_for
from perfbisect.core.alert_states import MESSAGE_TRANSITIONS, MessageState
from perfbisect.errors import BadInputError, ConflictError, NotFoundError
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, AnnouncementRow, MessageRow
from perfbisect.store.database import new_id, now, owner_is_dead

#: Seconds until the next attempt, by attempts made; after the last one it is a dead letter.
DELAYS = (5, 30, 120, 600, 3600, 3 * 3600, 8 * 3600, 24 * 3600)
#: A sender that has held a message for this long is taken for dead.
LEASE = timedelta(seconds=90)
#: Messages taken at once.
_BATCH = 20

PolicyOf = Callable[[Session, AlertRow], Mapping[str, object]]


def spread(services: Services, config: AlertConfig, own_policy: PolicyOf) -> int:
    """Write the messages of what was announced; return how many announcements there were.

    Args:
        own_policy: an alert's ``[series.NAME.policy]``.
    """
    with services.database.read() as session:
        if session.scalar(_unspread().limit(1)) is None:
            return 0
    with services.database.write() as session:
        rows = session.scalars(_unspread().limit(100).with_for_update()).all()
        for row in rows:
            alert = session.get_one(AlertRow, row.alert_id)
            targets = config.told(_policy(config, own_policy(session, alert)), row.event)
            _write(session, services.settings.public_url, row, alert, targets)
            row.spread_at = now()
    return len(rows)


def _policy(config: AlertConfig, own: Mapping[str, object]) -> Policy:
    """Return an alert's policy; one that can't be read must not silence the others."""
    try:
        return config.policy_for(own)
    except BadInputError:
        return config.alerts.policy


def _unspread() -> Select[AnnouncementRow]:
    return (
        select(AnnouncementRow)
        .where(AnnouncementRow.spread_at.is_(None))
        .order_by(AnnouncementRow.id)
    )


def _write(
    session: Session,
    public_url: str,
    announced: AnnouncementRow,
    alert: AlertRow,
    targets: Sequence[str],
) -> None:
    """Write a message for each target that has none of this key yet."""
    known = set(
        session.scalars(
            select(MessageRow.target).where(
                MessageRow.dedupe_key == announced.key, MessageRow.target.in_(targets)
            )
        )
    )
    fresh = [target for target in targets if target not in known]
    if not fresh:
        return
    words = words_for(session, alert, announced.event, public_url)
    for target in fresh:
        session.add(
            MessageRow(
                id=new_id(),
                target=target,
                event=announced.event,
                dedupe_key=announced.key,
                alert_id=alert.id,
                bisection_id=alert.bisection_id,
                subject=words.subject,
                body=words.body,
                data=words.data,
                state=MessageState.PENDING,
                next_attempt_at=now(),
                created_at=now(),
            )
        )
    session.flush()


def any_due(session: Session) -> bool:
    """Return whether ``take_due`` would find something: asked often, without a lock."""
    return session.scalar(_due().limit(1)) is not None


def _due() -> Select[MessageRow]:
    moment = now()
    return (
        select(MessageRow)
        .where(
            or_(
                (MessageRow.state == MessageState.PENDING) & (MessageRow.next_attempt_at <= moment),
                MessageRow.state == MessageState.SENDING,
            )
        )
        .order_by(MessageRow.next_attempt_at, MessageRow.id)
    )


def take_due(session: Session, owner: str, repeatable: Callable[[str], bool]) -> list[MessageRow]:
    """Take messages to send now, each by one process only.

    Args:
        repeatable: target -> whether its receiver knows repetitions by their id. To others, what
            a dead process may have sent already is not sent again: it becomes a dead letter.
    """
    taken = []
    for row in session.scalars(_due().limit(_BATCH)):
        if row.state is MessageState.SENDING:
            if not _abandoned(row):
                continue
            if not repeatable(row.target):
                settle(
                    row, MessageState.DEAD,
                    "the process that sent it ended: it may have arrived, or not",
                )  # fmt: skip
                continue
        if _take(session, row, owner):
            taken.append(row)
    return taken


def _abandoned(row: MessageRow) -> bool:
    if row.lease_owner is None or row.lease_expires_at is None or row.lease_expires_at < now():
        return True
    return owner_is_dead(row.lease_owner)


def _take(session: Session, row: MessageRow, owner: str) -> bool:
    """Take it only if it still is what was read: two processes may race."""
    before = row.lease_owner
    same = MessageRow.lease_owner.is_(None) if before is None else MessageRow.lease_owner == before
    taken = session.execute(
        update(MessageRow)
        .where(MessageRow.id == row.id, MessageRow.state == row.state, same)
        .values(state=MessageState.SENDING, lease_owner=owner, lease_expires_at=now() + LEASE)
        .execution_options(synchronize_session="fetch")
    )
    return getattr(taken, "rowcount", 0) == 1


def settle(row: MessageRow, state: MessageState, error: str = "") -> None:
    """Note how an attempt ended, and release the message.

    Raises:
        ConflictError: there is no such transition.
    """
    if state not in MESSAGE_TRANSITIONS[row.state]:
        raise ConflictError(
            f"message {row.id} is {row.state}: it can't become {state}",
            field="message_id",
            value=row.id,
        )
    row.state = state
    row.error = error[:2000]
    row.lease_owner = row.lease_expires_at = None
    if state is MessageState.DELIVERED:
        row.delivered_at = now()


def failed(row: MessageRow, error: str, *, for_good: bool) -> None:
    """Note a failed attempt: the next one is due later, or it is given up."""
    row.attempts += 1
    if for_good or row.attempts > len(DELAYS):
        settle(row, MessageState.DEAD, error)
        return
    settle(row, MessageState.PENDING, error)
    row.next_attempt_at = now() + timedelta(seconds=DELAYS[row.attempts - 1])


def redeliver(services: Services, message_id: str) -> MessageRow:
    """Have a dead letter sent again, with the same id.

    Raises:
        NotFoundError: no such message.
        ConflictError: it is not dead.
    """
    with services.database.write() as session:
        row = session.get(MessageRow, message_id)
        if row is None:
            raise NotFoundError(f"no message '{message_id}'", field="message_id", value=message_id)
        if row.state is not MessageState.DEAD:
            raise ConflictError(
                f"message {row.id} is {row.state}: only dead letters are sent again",
                field="message_id",
                value=row.id,
            )
        settle(row, MessageState.PENDING)
        row.attempts = 0
        row.next_attempt_at = now()
        return row
