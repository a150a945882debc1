"""From an alert to what has to be submitted for it: pure, but for the series it names."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.alerting.policy import Policy, Standing
from perfbisect.core.states import ChangeKind, Find
from perfbisect.errors import BadInputError
from perfbisect.nightly.measuring import revision_of
from perfbisect.request_models import ArmRequest, BisectionRequest, ExperimentRequest
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.series_tables import SeriesChangeRow, SeriesPointRow, SeriesRow

#: How a bisection nobody waits for stands to those of people (0).
BEHIND = -10


@dataclass(frozen=True, slots=True)
class Missing:
    """Why an alert can't be bisected as it is."""

    by: str
    reason: str


def priority_of(policy: Policy) -> int:
    """Return the priority of an alert's bisection: people's have 0."""
    return 0 if policy.priority is Standing.ALONGSIDE else BEHIND


def series_of(session: Session, row: AlertRow) -> SeriesRow | None:
    """Return the series that an alert names, if it is known."""
    if row.series is None:
        return None
    return session.scalar(select(SeriesRow).where(SeriesRow.name == row.series))


def own_policy(session: Session, row: AlertRow) -> Mapping[str, Any]:
    """Return the table ``[series.NAME.policy]`` of an alert's series; empty: none."""
    series = series_of(session, row)
    return {} if series is None else series.policy


def complete(session: Session, row: AlertRow) -> Missing | None:
    """Fill in what the alert's series knows; return what is missing all the same."""
    series = series_of(session, row)
    if row.series is not None and series is None:
        return Missing("series", f"there is no series '{row.series}' here")
    if series is not None:
        _fill(session, row, series)
    missing = [
        words
        for words, there in (
            ("a benchmark", row.benchmark),
            ("a repository with its recipe, or a package",
             row.package or (row.repository and row.recipe)),
            ("a good end", row.good),
            ("a bad end", row.bad),
        )
        if not there
    ]  # fmt: skip
    if missing:
        return Missing("incomplete", f"it does not say enough to bisect: {', '.join(missing)}")
    return None


def _fill(session: Session, row: AlertRow, series: SeriesRow) -> None:
    if not (row.repository or row.package):
        of_commits = bool(series.repository and series.recipe)
        row.repository = series.repository if of_commits else None
        row.package = None if of_commits else series.package
    row.recipe = row.recipe or series.recipe
    row.benchmark = row.benchmark or series.benchmark or None
    row.pool = row.pool or series.pool or None
    if row.good and row.bad:
        return
    change = session.scalars(
        select(SeriesChangeRow)
        .where(
            SeriesChangeRow.series_id == series.id,
            SeriesChangeRow.kind == row.kind,
            SeriesChangeRow.first_bad_night <= row.started_at.date(),
        )
        .order_by(SeriesChangeRow.first_bad_night.desc(), SeriesChangeRow.id.desc())
        .limit(1)
    ).first()
    if change is None:
        return
    ends = [
        revision_of(series, point)
        for point in (
            session.get_one(SeriesPointRow, change.good_point_id),
            session.get_one(SeriesPointRow, change.bad_point_id),
        )
    ]
    earlier, later = ends
    good, bad = (later, earlier) if row.kind is ChangeKind.RECOVERY else (earlier, later)
    row.good, row.bad = row.good or good, row.bad or bad
    if row.change is None:
        row.before, row.after, row.change = change.before, change.after, change.change


def group_key_of(row: AlertRow) -> str:
    """Return what alerts have in common that one bisection can explain."""
    source = row.repository if row.repository and row.recipe else row.package
    identity = [source, row.pool or "", row.kind.value, row.good, row.bad]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def strength_of(row: AlertRow) -> tuple[float, float, float]:
    """Return what alerts are sorted by: the larger, the likelier, the earlier change first."""
    size = abs(math.log1p(row.change)) if row.change is not None and row.change > -1 else 0.0
    return (-size, -(row.probability or 0.0), row.created_at.timestamp())


def bisection_request(row: AlertRow, policy: Policy) -> BisectionRequest:
    """Return the bisection that explains an alert.

    Raises:
        BadInputError: what the alert names can't be a request.
    """
    of_commits = bool(row.repository and row.recipe)
    values = {
        "repository": row.repository if of_commits else None,
        "recipe": row.recipe if of_commits else None,
        "package": row.package,
        "benchmark": row.benchmark,
        "good": row.good,
        "bad": row.bad,
        "find": Find.FIX if row.kind is ChangeKind.RECOVERY else Find.ALL,
        "min_effect": policy.min_effect,
        "confidence": policy.confidence,
        "prove": policy.prove,
        "max_runs": policy.max_runs,
        "max_builds": policy.max_builds,
        "max_time": policy.max_time,
    }
    try:
        return BisectionRequest.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInputError(f"{field}: {first['msg']}", field=field) from error


def check_request_of(
    row: AlertRow, policy: Policy, culprit: Mapping[str, Any]
) -> ExperimentRequest | BisectionRequest:
    """Return what measures a culprit on the benchmark of an alert: against what was before it.

    Among published versions that is a bisection between the two; among commits an experiment.

    Raises:
        BadInputError: what the alert names can't be a request.
    """
    parent, last = str(culprit["previous"]), str(culprit["commits"][-1])
    if not (row.repository and row.recipe):
        good, bad = (last, parent) if row.kind is ChangeKind.RECOVERY else (parent, last)
        whole = bisection_request(row, policy)
        return whole.model_copy(update={"good": good, "bad": bad, "prove": False})
    assert row.benchmark is not None
    try:
        return ExperimentRequest(
            repository=row.repository,
            recipe=row.recipe,
            benchmark=row.benchmark,
            against=ArmRequest(base=parent, name="before"),
            arms=(ArmRequest(base=last, name="culprit"),),
            min_effect=policy.min_effect,
            max_runs=policy.max_runs,
            max_time=policy.max_time,
        )
    except ValidationError as error:
        raise BadInputError(str(error.errors(include_url=False)[0]["msg"])) from error
