"""What happens to new and waiting alerts: completed, grouped, held, queued, bisected."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from perfbisect.alerting.configuration import AlertConfig
from perfbisect.alerting.moves import announce, move
from perfbisect.alerting.policy import Policy, Start, Wait, judge, parse_pause
from perfbisect.alerting.requests import (
    bisection_request,
    complete,
    group_key_of,
    own_policy,
    priority_of,
    strength_of,
)
from perfbisect.alerting.starting import Submitter, submitted
from perfbisect.core.alert_states import AlertState, MessageEvent
from perfbisect.core.states import ChangeKind
from perfbisect.errors import BadInputError, PerfbisectError
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.database import now
from perfbisect.store.tables import BisectionRow

log = logging.getLogger(__name__)

#: States in which an alert waits to be decided.
_WAITING = (AlertState.NEW, AlertState.QUEUED)
#: Seconds until a submission that could not reach its repository is tried again.
_RETRY = timedelta(minutes=5)
#: Alerts that are decided in one go.
_BATCH = 500
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The alert whose bisection is to be started."""

    id: str
    key: str


def decide(services: Services, config: AlertConfig, submitter: Submitter, moment: datetime) -> None:
    """Decide what is new, and what waited long enough."""
    with services.database.read() as session:
        if session.scalar(select(AlertRow.id).where(_due(moment)).limit(1)) is None:
            return
    with services.database.write() as session:
        groups = _sort(session, config, moment)
    for key in groups:
        with services.database.write() as session:
            chosen = _choose(session, config, key, moment)
        for each in chosen:
            _start(services, config, submitter, each, moment)


def _due(moment: datetime) -> ColumnElement[bool]:
    return AlertRow.state.in_(_WAITING) & or_(
        AlertRow.held_until.is_(None), AlertRow.held_until <= moment
    )


def _sort(session: Session, config: AlertConfig, moment: datetime) -> list[str]:
    """Complete what is due; return the groups that something is due of."""
    rows = session.scalars(
        select(AlertRow).where(_due(moment)).order_by(AlertRow.id).limit(_BATCH).with_for_update()
    ).all()
    for row in rows:
        if row.group_key is not None:
            continue
        missing = complete(session, row)
        if missing is not None:
            move(session, row, AlertState.HELD, missing.reason, held_by=missing.by)
            continue
        row.group_key = group_key_of(row)
        if row.state is AlertState.NEW and not _answered(session, row):
            announce(session, row, MessageEvent.OPENED, row.group_key)
        move(session, row, AlertState.QUEUED, "about to be looked at")
    waiting = [row for row in rows if row.state in _WAITING and row.group_key is not None]
    return list(dict.fromkeys(str(row.group_key) for row in waiting))


def _answered(session: Session, row: AlertRow) -> bool:
    return _leader(session, str(row.group_key)) is not None


def _leader(session: Session, key: str) -> AlertRow | None:
    """Return the alert whose bisection stands for its group: under way, or with a culprit."""
    return session.scalars(
        select(AlertRow)
        .where(
            AlertRow.group_key == key,
            AlertRow.leader_id.is_(None),
            AlertRow.alone.is_(False),
            AlertRow.bisection_id.is_not(None),
            or_(AlertRow.state == AlertState.BISECTING, AlertRow.finding_id.is_not(None)),
        )
        .order_by(AlertRow.id.desc())
        .limit(1)
    ).first()


def _choose(session: Session, config: AlertConfig, key: str, moment: datetime) -> list[_Chosen]:
    """Settle a group: who follows, who waits and why; return whose bisections start now."""
    rows = session.scalars(
        select(AlertRow)
        .where(AlertRow.group_key == key, AlertRow.state.in_(_WAITING))
        .order_by(AlertRow.id)
        .with_for_update()
    ).all()
    chosen = []
    together = []
    for row in rows:
        policy = _policy(session, config, row)
        if policy is None or _settled_by_policy(session, row, policy):
            continue
        if not row.alone:
            together.append(row)
        elif _wait(session, config, row, policy, moment):
            chosen.append(_mark(row))
    return chosen + _choose_leader(session, config, together, key, moment)


def _policy(session: Session, config: AlertConfig, row: AlertRow) -> Policy | None:
    """Return the policy of an alert's series; hold the alert where it can't be read."""
    try:
        return config.policy_for(own_policy(session, row))
    except BadInputError as error:
        move(session, row, AlertState.HELD, f"series {row.series}: {error.message}",
             held_by="policy")  # fmt: skip
        return None


def _settled_by_policy(session: Session, row: AlertRow, policy: Policy) -> bool:
    """Hold or dismiss what the policy wants no bisection of; return whether it did."""
    if row.by_hand:
        return False
    if policy.start is Start.NEVER:
        move(session, row, AlertState.DISMISSED, "the policy wants nothing to be done about it")
    elif row.kind is ChangeKind.RECOVERY and not policy.recoveries:
        move(session, row, AlertState.DISMISSED, "the policy wants no recoveries to be explained")
    elif policy.start is Start.ASK:
        reason = "the policy asks before it bisects: start or dismiss it"
        move(session, row, AlertState.HELD, reason, held_by="ask")
    else:
        return False
    return True


def _choose_leader(
    session: Session,
    config: AlertConfig,
    rows: Sequence[AlertRow],
    key: str,
    moment: datetime,
) -> list[_Chosen]:
    leader = _leader(session, key)
    if leader is not None:
        for row in rows:
            _follow(session, row, leader)
        return []
    gathering = _gathering(config, rows, moment)
    if gathering is not None:
        for row in rows:
            _queue(session, row, gathering)
        return []
    for row in sorted(rows, key=strength_of):
        policy = _policy(session, config, row)
        if policy is not None and _wait(session, config, row, policy, moment):
            return [_mark(row)]
    return []


def _gathering(config: AlertConfig, rows: Sequence[AlertRow], moment: datetime) -> Wait | None:
    """Return until when alerts of the same range are gathered."""
    if not rows or any(row.by_hand for row in rows):
        return None
    pause = timedelta(seconds=config.alerts.group_wait_seconds)
    until = min(row.created_at for row in rows) + pause
    if until <= moment:
        return None
    return Wait("gathering", "waits for other alerts of the same range", until)


def _wait(
    session: Session, config: AlertConfig, row: AlertRow, policy: Policy, moment: datetime
) -> bool:
    """Return whether its bisection may start now; if not, queue or hold it with the reason."""
    if row.by_hand:
        return True
    wait = judge(
        policy,
        moment,
        own_starts=_starts(session, row, policy, moment),
        all_starts=_all_starts(session, moment),
        budget_of_all=config.alerts.budget_per_day,
    )
    if wait is None:
        return True
    _queue(session, row, wait)
    return False


def _queue(session: Session, row: AlertRow, wait: Wait) -> None:
    state = AlertState.HELD if wait.until is None else AlertState.QUEUED
    move(session, row, state, wait.reason, held_by=wait.by, until=wait.until)


def _starts(
    session: Session, row: AlertRow, policy: Policy, moment: datetime
) -> Sequence[datetime]:
    """Return when bisections of the same series (or benchmark) were started."""
    pause = timedelta(seconds=parse_pause(policy.cooldown))
    same = (
        AlertRow.series == row.series
        if row.series is not None
        else AlertRow.series.is_(None) & (AlertRow.benchmark == row.benchmark)
    )
    since = moment - max(pause, _DAY)
    query = select(AlertRow.bisected_at).where(same, AlertRow.bisected_at > since)
    return [at for at in session.scalars(query) if at is not None]


def _all_starts(session: Session, moment: datetime) -> Sequence[datetime]:
    query = select(AlertRow.bisected_at).where(AlertRow.bisected_at > moment - _DAY)
    return [at for at in session.scalars(query) if at is not None]


def _follow(session: Session, row: AlertRow, leader: AlertRow) -> None:
    row.leader_id = leader.id
    move(session, row, AlertState.BISECTING, "grouped: one bisection of this range for all")


def _mark(row: AlertRow) -> _Chosen:
    return _Chosen(row.id, f"alert-{row.id}-{row.tries}")


def _start(
    services: Services,
    config: AlertConfig,
    submitter: Submitter,
    chosen: _Chosen,
    moment: datetime,
) -> None:
    """Submit a bisection and note so; what can't be submitted is held or tried again."""
    with services.database.read() as session:
        row = session.get_one(AlertRow, chosen.id)
        policy = config.policy_for(own_policy(session, row))
    bisection_id, problem = None, None
    try:
        request = bisection_request(row, policy)
        bisection_id = submitted(
            services,
            BisectionRow,
            chosen.key,
            lambda: submitter.bisection(request, chosen.key, priority_of(policy)),
        )
    except PerfbisectError as error:
        problem = error
    with services.database.write() as session:
        row = session.get_one(AlertRow, chosen.id, with_for_update=True)
        if row.state not in _WAITING:
            return
        if bisection_id is None:
            assert problem is not None
            _refused(session, row, problem, moment)
            return
        row.bisection_id = bisection_id
        row.bisected_at = now()
        row.leader_id = None
        move(session, row, AlertState.BISECTING, "its bisection goes on")
        if not row.alone:
            _gather(session, row)


def _gather(session: Session, leader: AlertRow) -> None:
    """Let the rest of the group follow, whatever their hours and budgets say: it costs little."""
    others = session.scalars(
        select(AlertRow).where(
            AlertRow.group_key == leader.group_key,
            AlertRow.state.in_(_WAITING),
            AlertRow.alone.is_(False),
            AlertRow.id != leader.id,
        )
    ).all()
    for row in others:
        _follow(session, row, leader)


def _refused(session: Session, row: AlertRow, problem: PerfbisectError, moment: datetime) -> None:
    if isinstance(problem, BadInputError):
        reason = f"its bisection was refused: {problem.message}"
        move(session, row, AlertState.HELD, reason, held_by="request")
        return
    log.warning("alert %s: %s", row.id, problem.message)
    reason = f"its bisection could not be submitted: {problem.message}"
    move(session, row, AlertState.QUEUED, reason, held_by="trouble", until=moment + _RETRY)
