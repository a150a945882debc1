"""What was delivered becomes rows: new alerts, repetitions, recoveries, rejections. All counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from perfbisect.alerting.mapping import MOST, is_text
from perfbisect.alerting.moves import move
from perfbisect.alerting.payloads import Delivery, Firing, Over, Rejected
from perfbisect.alerts import AlertSignal
from perfbisect.core.alert_states import ALERT_TRANSITIONS, AlertState, NoticeResult
from perfbisect.errors import BadInputError
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, NoticeRow
from perfbisect.store.database import new_id, now

#: Tries where another process stored the same alert in the same moment.
_TRIES = 4
#: How long deliveries are kept.
_KEPT = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one delivery."""

    result: NoticeResult
    alert_id: str | None = None
    detail: str = ""


def receive(services: Services, signal: AlertSignal) -> str:
    """Store one alert unless it is there; return its id.

    Raises:
        BadInputError: the signal can't be right.
        TransientError: the database can't be written.
    """
    (receipt,) = receive_all(services, [Firing(signal)])
    assert receipt.alert_id is not None
    return receipt.alert_id


def receive_all(services: Services, deliveries: Sequence[Delivery]) -> list[Receipt]:
    """Store everything that was delivered, in one transaction; return what became of each.

    Raises:
        BadInputError: a signal can't be right; nothing is stored.
        TransientError: the database can't be written.
    """
    for each in deliveries:
        if isinstance(each, Firing):
            check_signal(each.signal)
    for left in reversed(range(_TRIES)):
        try:
            with services.database.write() as session:
                return [_receive(session, each) for each in deliveries]
        except IntegrityError:
            # Another process stored one of them first: it is found now.
            if not left:
                raise
    raise AssertionError


def note_recovery(
    services: Services,
    source: str,
    fingerprint: str,
    started_at: datetime,
    words: str = "",
    *,
    whole: bool = True,
) -> str | None:
    """Note that an alert's value came back; see ``alerts.resolve_alert``."""
    with services.database.write() as session:
        row = _find(session, source, fingerprint, started_at)
        if row is None:
            return None
        _end(session, row, words, whole=whole)
        _note(session, source, NoticeResult.RESOLVED, row.id, detail=words)
        return row.id


def check_signal(signal: AlertSignal) -> None:
    """Refuse what no database can hold, and what can't be told from other alerts.

    Raises:
        BadInputError: naming the field.
    """
    if not signal.fingerprint or len(signal.fingerprint) > 200:
        raise BadInputError(
            "fingerprint: should be text of 1 to 200 characters", field="fingerprint"
        )
    if signal.started_at.tzinfo is None:
        raise BadInputError("started_at: needs a time zone", field="started_at")
    if not signal.source or len(signal.source) > 32:
        raise BadInputError("source: should be text of 1 to 32 characters", field="source")
    for name in ("title", "url", "fingerprint", "repository", "good", "bad", *MOST):
        value = getattr(signal, name) or ""
        if not is_text(value) or len(value) > MOST.get(name, 4000):
            raise BadInputError(f"{name}: is too long, or no text", field=name)


def _receive(session: Session, delivery: Delivery) -> Receipt:
    if isinstance(delivery, Rejected):
        return _reject(session, delivery)
    if isinstance(delivery, Over):
        return _over(session, delivery)
    signal = delivery.signal
    row = _find(session, signal.source, signal.fingerprint, signal.started_at)
    if row is None:
        row = _insert(session, signal)
        result = NoticeResult.ACCEPTED
    else:
        row.notices += 1
        row.last_notice_at = now()
        result = NoticeResult.REPEATED
    _note(session, signal.source, result, row.id)
    return Receipt(result, row.id)


def _reject(session: Session, delivery: Rejected) -> Receipt:
    detail = (
        delivery.detail.encode("utf-8", "replace").decode().replace("\x00", "\N{SYMBOL FOR NULL}")
    )
    _note(
        session,
        delivery.source,
        NoticeResult.REJECTED,
        None,
        detail=detail,
        excerpt=delivery.excerpt,
    )
    return Receipt(NoticeResult.REJECTED, detail=detail)


def _over(session: Session, delivery: Over) -> Receipt:
    row = _find(session, delivery.source, delivery.fingerprint, delivery.started_at)
    if row is None:
        detail = f"{delivery.fingerprint} of {delivery.started_at.isoformat()} was never heard of"
        _note(session, delivery.source, NoticeResult.UNKNOWN, None, detail=detail)
        return Receipt(NoticeResult.UNKNOWN, detail=detail)
    row.notices += 1
    row.last_notice_at = now()
    _end(session, row, delivery.words, whole=True)
    _note(session, delivery.source, NoticeResult.RESOLVED, row.id)
    return Receipt(NoticeResult.RESOLVED, row.id)


def _find(session: Session, source: str, fingerprint: str, started_at: datetime) -> AlertRow | None:
    return session.scalar(
        select(AlertRow)
        .where(
            AlertRow.source == source,
            AlertRow.fingerprint == fingerprint,
            AlertRow.started_at == started_at,
        )
        .with_for_update()
    )


def _insert(session: Session, signal: AlertSignal) -> AlertRow:
    moment = now()
    row = AlertRow(
        id=new_id(),
        source=signal.source,
        fingerprint=signal.fingerprint,
        started_at=signal.started_at,
        state=AlertState.NEW,
        reason="just received",
        title=signal.title,
        series=signal.series,
        repository=signal.repository,
        package=signal.package,
        recipe=signal.recipe,
        benchmark=signal.benchmark,
        pool=signal.pool,
        kind=signal.kind,
        good=signal.good,
        bad=signal.bad,
        before=signal.before,
        after=signal.after,
        change=_change(signal),
        probability=signal.probability,
        labels=dict(signal.labels),
        url=signal.url,
        created_at=moment,
        last_notice_at=moment,
    )
    session.add(row)
    session.flush()
    return row


def _change(signal: AlertSignal) -> float | None:
    if signal.change is None and signal.before is not None and signal.after is not None:
        return signal.after / signal.before - 1
    return signal.change


def _end(session: Session, row: AlertRow, words: str, *, whole: bool) -> None:
    """Note that the value came back; close the alert where nothing goes on for it."""
    if words:
        row.resolution = words
    if not whole:
        return
    row.resolved_at = row.resolved_at or now()
    if AlertState.RESOLVED in ALERT_TRANSITIONS[row.state]:
        move(session, row, AlertState.RESOLVED, words or "its sender says that it is over")


def _note(
    session: Session,
    source: str,
    result: NoticeResult,
    alert_id: str | None,
    *,
    detail: str = "",
    excerpt: str = "",
) -> None:
    session.add(
        NoticeRow(
            source=source,
            at=now(),
            result=result,
            alert_id=alert_id,
            detail=detail[:2000],
            excerpt=excerpt,
        )
    )


def reject_payload(services: Services, source: str, detail: str, body: bytes) -> None:
    """Account for a payload that could not be read at all."""
    excerpt = ascii(body[:200])
    receive_all(services, [Rejected(source, detail, excerpt)])


def forget_notices(services: Services, moment: datetime) -> None:
    """Delete deliveries that are older than anybody asks for; the alerts themselves stay."""
    with services.database.write() as session:
        session.execute(delete(NoticeRow).where(NoticeRow.at < moment - _KEPT))


def counts(receipts: Iterable[Receipt]) -> dict[NoticeResult, int]:
    """Return how many deliveries ended how."""
    told = dict.fromkeys(NoticeResult, 0)
    for each in receipts:
        told[each.result] += 1
    return told
