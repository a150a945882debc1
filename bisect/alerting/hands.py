"""What people do with alerts: start them, dismiss them; and what they think of verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.alerting.mapping import checked, is_text
from perfbisect.alerting.moves import move
from perfbisect.core.alert_states import ALERT_TRANSITIONS, AlertState
from perfbisect.errors import BadInputError, ConflictError, NotFoundError
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, FeedbackRow
from perfbisect.store.database import now
from perfbisect.store.tables import BisectionRow

#: What a person may fill in when starting an alert that did not say enough.
FILLABLE = ("repository", "package", "recipe", "benchmark", "pool", "good", "bad")
_MOST_WORDS = 4000


def start_alert(
    services: Services, alert_id: str, by: str, given: Mapping[str, str] | None = None
) -> None:
    """Have an alert bisected now, whatever hours, budgets and cooldowns say.

    Args:
        by: who wants it.
        given: what the alert did not say (see ``FILLABLE``), or said wrongly.

    Raises:
        NotFoundError: no such alert.
        ConflictError: it is under way, or over.
        BadInputError: what was given can't be right.
    """
    values: dict[str, Any] = {
        name: checked(name, text.strip())
        for name, text in (given or {}).items()
        if name in FILLABLE and text.strip()
    }
    with services.database.write() as session:
        row = _get(session, alert_id)
        if row.state not in (
            AlertState.NEW, AlertState.QUEUED, AlertState.HELD, AlertState.UNEXPLAINED
        ):  # fmt: skip
            raise ConflictError(
                f"alert {row.id} is {row.state}: there is nothing to start",
                field="alert_id",
                value=alert_id,
            )
        for name, value in values.items():
            setattr(row, name, value)
        if row.state is AlertState.UNEXPLAINED:
            row.tries += 1
            row.bisection_id = row.leader_id = None
        row.by_hand = True
        row.group_key = None
        row.decided_by = by
        move(session, row, AlertState.QUEUED, f"started by {by}")


def dismiss_alert(services: Services, alert_id: str, by: str, words: str = "") -> None:
    """Close an alert: nothing is done about it.

    Raises:
        NotFoundError: no such alert.
        ConflictError: its bisection goes on, or it is over.
        BadInputError: the words are no text, or too many.
    """
    check_words(words)
    with services.database.write() as session:
        row = _get(session, alert_id)
        if AlertState.DISMISSED not in ALERT_TRANSITIONS[row.state]:
            raise ConflictError(
                f"alert {row.id} is {row.state}: it can't be dismissed",
                field="alert_id",
                value=alert_id,
            )
        row.decided_by = by
        reason = f"dismissed by {by}" + (f": {words.strip()}" if words.strip() else "")
        move(session, row, AlertState.DISMISSED, reason)


def give_feedback(
    services: Services, bisection_id: str, by: str, *, is_right: bool, comment: str = ""
) -> FeedbackRow:
    """Note whether a person thinks that a verdict is right; the newest word counts.

    Raises:
        NotFoundError: no such bisection.
        ConflictError: it has no verdict yet.
        BadInputError: the comment is no text, or too long.
    """
    check_words(comment)
    with services.database.write() as session:
        row = session.get(BisectionRow, bisection_id)
        if row is None:
            raise NotFoundError(
                f"no bisection '{bisection_id}'", field="bisection_id", value=bisection_id
            )
        if row.outcome is None:
            raise ConflictError(
                f"bisection {bisection_id} goes on: there is no verdict to judge yet",
                field="bisection_id",
                value=bisection_id,
            )
        told = FeedbackRow(
            bisection_id=bisection_id, is_right=is_right, comment=comment.strip(), by=by, at=now()
        )
        session.add(told)
        session.flush()
        return told


def check_words(words: str) -> None:
    """Refuse what no database can hold.

    Raises:
        BadInputError: the words are no text, or too many.
    """
    if len(words) > _MOST_WORDS or not is_text(words):
        raise BadInputError(
            f"comment: should be text of {_MOST_WORDS} characters at most", field="comment"
        )


def _get(session: Session, alert_id: str) -> AlertRow:
    row = session.get(AlertRow, alert_id, with_for_update=True)
    if row is None:
        raise NotFoundError(f"no alert '{alert_id}'", field="alert_id", value=alert_id)
    return row
