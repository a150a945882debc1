"""What becomes of alerts whose bisections go on: culprits, checks on other benchmarks, proofs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from perfbisect.alerting.configuration import AlertConfig
from perfbisect.alerting.findings import remember
from perfbisect.alerting.moves import announce, move
from perfbisect.alerting.policy import Policy
from perfbisect.alerting.requests import check_request_of, own_policy, priority_of
from perfbisect.alerting.starting import Submitter, submitted
from perfbisect.alerting.wording import name_of
from perfbisect.core.alert_states import AlertState, MessageEvent
from perfbisect.core.states import BisectionState, ChangeKind, ExperimentKind, Outcome
from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, FindingRow
from perfbisect.store.database import now
from perfbisect.store.tables import BisectionRow, ExperimentRow

#: Difference of a culprit from its parent that explains an alert of this kind.
_EXPLAINS = {ChangeKind.REGRESSION: "worse", ChangeKind.RECOVERY: "better"}

#: How long after a proof ended it is still looked at.
_PROOF_IS_NEWS = timedelta(days=1)


def follow(services: Services, config: AlertConfig, submitter: Submitter) -> None:
    """Take up what bisections and checks have found since."""
    _conclude_leaders(services)
    _begin_checks(services, config, submitter)
    _conclude_checks(services)
    _note_proofs(services)


# ---------------------------------------------------------------------- bisections that ended


def _conclude_leaders(services: Services) -> None:
    ended = (
        select(AlertRow.id)
        .join(BisectionRow, BisectionRow.id == AlertRow.bisection_id)
        .where(
            AlertRow.state == AlertState.BISECTING,
            AlertRow.leader_id.is_(None),
            BisectionRow.state == BisectionState.FINISHED,
        )
    )
    with services.database.read() as session:
        ids = session.scalars(ended).all()
    for alert_id in ids:
        with services.database.write() as session:
            row = session.get_one(AlertRow, alert_id, with_for_update=True)
            if row.state is AlertState.BISECTING:
                _conclude(session, row)


def _conclude(session: Session, row: AlertRow) -> None:
    """Write down what an alert's own bisection found."""
    bisection = session.get_one(BisectionRow, row.bisection_id)
    verdict = bisection.verdict or {}
    sentence = str(verdict.get("sentence") or f"the bisection ended: {bisection.outcome}")
    if bisection.outcome is Outcome.NOT_REPRODUCED:
        announce(session, row, MessageEvent.NOT_REPRODUCED, bisection.id)
        move(session, row, AlertState.NOT_REPRODUCED, sentence)
        return
    culprit = culprit_of(row, verdict)
    if bisection.outcome is not Outcome.CULPRITS or culprit is None:
        move(session, row, AlertState.UNEXPLAINED, sentence)
        return
    explain(session, row, remember(session, bisection, culprit))
    announce(session, row, MessageEvent.FOUND, str(row.finding_id))


def culprit_of(row: AlertRow, verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the strongest verified culprit of the kind that the alert tells of."""
    fitting = [
        each
        for each in verdict.get("culprits") or ()
        if each.get("verified") and each.get("commits") and each["kind"] == row.kind
    ]
    return max(fitting, key=lambda each: abs(math.log1p(each["change"])), default=None)


def explain(session: Session, row: AlertRow, finding: FindingRow) -> None:
    """Link an alert to the culprit that explains it. A recovery is over with that."""
    row.finding_id = finding.id
    what = str(finding.commits[-1])[:10] if len(finding.commits) == 1 else "a set of commits"
    first = finding.bisection_id == row.bisection_id
    reason = f"explained by {what} {finding.subject}".rstrip()
    move(session, row, AlertState.EXPLAINED, reason if first else f"{reason}, which was known")
    if row.kind is ChangeKind.RECOVERY and row.state is AlertState.EXPLAINED:
        move(session, row, AlertState.RESOLVED, f"a recovery, {reason}")


# ---------------------------------------------------------------------- one culprit, many


def _begin_checks(services: Services, config: AlertConfig, submitter: Submitter) -> None:
    leader = aliased(AlertRow)
    answered = (
        select(AlertRow.id)
        .join(leader, leader.id == AlertRow.leader_id)
        .where(AlertRow.state == AlertState.BISECTING, leader.state != AlertState.BISECTING)
        .order_by(AlertRow.id)
    )
    with services.database.read() as session:
        waiting = session.scalars(answered).all()
    for alert_id in waiting:
        with services.database.write() as session:
            row = session.get_one(AlertRow, alert_id, with_for_update=True)
            culprit = _answer_of_leader(session, row)
            policy = _policy(session, config, row)
        if culprit is not None:
            _begin_check(services, submitter, alert_id, culprit, policy)


def _policy(session: Session, config: AlertConfig, row: AlertRow) -> Policy:
    try:
        return config.policy_for(own_policy(session, row))
    except BadInputError:
        return config.alerts.policy


def _answer_of_leader(session: Session, row: AlertRow) -> Mapping[str, Any] | None:
    """Return the group's culprit to check; let the alert go where there is none for it."""
    leader = session.get_one(AlertRow, row.leader_id)
    if row.state is not AlertState.BISECTING or leader.state is AlertState.BISECTING:
        return None
    finding = session.get(FindingRow, leader.finding_id) if leader.finding_id else None
    if finding is None:
        _let_go(session, row, f"the bisection for {name_of(leader)} gave no culprit")
        return None
    bisection = session.get_one(BisectionRow, leader.bisection_id)
    if leader.benchmark == row.benchmark and leader.pool == row.pool:
        row.bisection_id = bisection.id
        explain(session, row, finding)
        announce(session, row, MessageEvent.FOUND, finding.id)
        return None
    return culprit_of(leader, bisection.verdict or {})


def _let_go(session: Session, row: AlertRow, reason: str, *, alone: bool = False) -> None:
    row.leader_id = row.experiment_id = None
    row.alone = alone
    move(session, row, AlertState.QUEUED, f"{reason}; it gets a bisection of its own")


def _begin_check(
    services: Services,
    submitter: Submitter,
    alert_id: str,
    culprit: Mapping[str, Any],
    policy: Policy,
) -> None:
    """Have the group's culprit measured on this alert's benchmark."""
    with services.database.read() as session:
        row = session.get_one(AlertRow, alert_id)
    key = f"check-{row.id}-{str(culprit['commits'][-1])[:40]}"
    priority = priority_of(policy)
    bisection_id = experiment_id = None
    problem = ""
    try:
        request = check_request_of(row, policy, culprit)
        if isinstance(request, BisectionRequest):
            versions = request
            bisection_id = submitted(
                services, BisectionRow, key, lambda: submitter.bisection(versions, key, priority)
            )
        else:
            arms = request
            experiment_id = submitted(
                services, ExperimentRow, key, lambda: submitter.experiment(arms, key, priority)
            )
    except TransientError:
        # The next look tries it again.
        return
    except PerfbisectError as error:
        problem = error.message
    with services.database.write() as session:
        row = session.get_one(AlertRow, alert_id, with_for_update=True)
        if row.state is not AlertState.BISECTING:
            return
        if problem:
            _let_go(session, row, f"the group's culprit can't be measured: {problem}", alone=True)
            return
        row.bisection_id, row.experiment_id = bisection_id, experiment_id
        reason = "the culprit of its group is measured on its benchmark"
        move(session, row, AlertState.CHECKING, reason)


def _conclude_checks(services: Services) -> None:
    with services.database.read() as session:
        ids = session.scalars(
            select(AlertRow.id).where(AlertRow.state == AlertState.CHECKING)
        ).all()
    for alert_id in ids:
        with services.database.read() as session:
            if not _is_over(session, session.get_one(AlertRow, alert_id)):
                continue
        with services.database.write() as session:
            row = session.get_one(AlertRow, alert_id, with_for_update=True)
            if row.state is AlertState.CHECKING:
                _conclude_check(session, row)


def _is_over(session: Session, row: AlertRow) -> bool:
    work: BisectionRow | ExperimentRow
    if row.experiment_id is not None:
        work = session.get_one(ExperimentRow, row.experiment_id)
    else:
        work = session.get_one(BisectionRow, row.bisection_id)
    return work.state is BisectionState.FINISHED


def _conclude_check(session: Session, row: AlertRow) -> None:
    leader = session.get_one(AlertRow, row.leader_id)
    finding = session.get_one(FindingRow, leader.finding_id)
    found, told = _found_by_check(session, row)
    if not found:
        row.bisection_id = None
        _let_go(session, row, f"the culprit of its group is not its own ({told})", alone=True)
        return
    row.bisection_id = leader.bisection_id
    explain(session, row, finding)
    announce(session, row, MessageEvent.FOUND, finding.id)


def _found_by_check(session: Session, row: AlertRow) -> tuple[bool, str]:
    """Return whether the culprit changes this benchmark too, and what was seen in words."""
    if row.experiment_id is None:
        bisection = session.get_one(BisectionRow, row.bisection_id)
        same = culprit_of(row, bisection.verdict or {}) is not None
        return same, str((bisection.verdict or {}).get("sentence", bisection.outcome))
    experiment = session.get_one(ExperimentRow, row.experiment_id)
    verdict = experiment.verdict or {}
    arms = [arm for arm in verdict.get("arms") or () if arm.get("against") is not None]
    difference = arms[0].get("difference") if arms else None
    told = str(verdict.get("sentence") or experiment.outcome)
    return difference == _EXPLAINS[row.kind], told


# ---------------------------------------------------------------------- proofs


def _note_proofs(services: Services) -> None:
    """Tell of culprits whose proofs have ended well since."""
    open_ones = (
        select(FindingRow, BisectionRow)
        .join(BisectionRow, BisectionRow.id == FindingRow.bisection_id)
        .join(ExperimentRow, ExperimentRow.bisection_id == BisectionRow.id)
        .where(
            FindingRow.proven_at.is_(None),
            ExperimentRow.kind == ExperimentKind.PROVE,
            ExperimentRow.state == BisectionState.FINISHED,
            ExperimentRow.finished_at > now() - _PROOF_IS_NEWS,
        )
    )
    with services.database.read() as session:
        proven = [
            finding.id for finding, bisection in session.execute(open_ones)
            if _is_proven(finding, bisection.verdict or {})
        ]  # fmt: skip
    for finding_id in proven:
        with services.database.write() as session:
            finding = session.get_one(FindingRow, finding_id, with_for_update=True)
            if finding.proven_at is not None:
                continue
            finding.proven_at = now()
            for row in session.scalars(select(AlertRow).where(AlertRow.finding_id == finding.id)):
                announce(session, row, MessageEvent.PROVEN, finding.id)


def _is_proven(finding: FindingRow, verdict: Mapping[str, Any]) -> bool:
    return any(
        list(each.get("commits") or ()) == list(finding.commits)
        and str((each.get("proof") or {}).get("verdict", "")).startswith("proven")
        for each in verdict.get("culprits") or ()
    )
