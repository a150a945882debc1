"""Rows become what the API and the pages show. One place says what a verdict looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.core.states import BisectionState
from perfbisect.routers import models
from perfbisect.store.catalogue import HostStatus, NamedPoint, NamedWheel, list_hosts
from perfbisect.store.host_health import health_of_hosts
from perfbisect.store.host_tables import HostHealthRow
from perfbisect.store.noise import Noise, host_noise
from perfbisect.store.page_queries import AnyRow
from perfbisect.store.queries import Axis, Listing
from perfbisect.store.tables import BisectionRow, BuildRow, PointRow


def verdict_of(listing: Listing) -> dict[str, Any]:
    """Return the verdict's JSON object: what the conductor wrote over what the row knows."""
    row = listing.row
    written = row.verdict or {}
    verdict: dict[str, Any] = {
        "culprits": [],
        "explained": None,
        "builds": 0,
        "runs": 0,
        "points": 0,
        "seconds": round(row.active_seconds or 0.0, 1),
        "reason": "",
        "unit": str(row.benchmark.get("unit", "")),
        **written,
        "id": row.id,
        "state": row.state.value,
        "outcome": row.outcome.value if row.outcome else None,
        "good": {"revision": row.good_sha, "mean": None, "ci95": None, "runs": 0}
        | (written.get("good") or {}),
        "bad": {"revision": row.bad_sha, "mean": None, "ci95": None, "runs": 0}
        | (written.get("bad") or {}),
        "repository": listing.source,
        "recipe": str(row.recipe.get("name", "")),
        "benchmark": str(row.benchmark.get("name", "")),
        "requested_by": row.requested_by,
        "origin": row.origin,
        "created_at": row.created_at.isoformat(),
        "started_at": row.started_at.isoformat() if row.started_at else None,
        "finished_at": row.finished_at.isoformat() if row.finished_at else None,
        "cancel_requested_at": (
            row.cancel_requested_at.isoformat() if row.cancel_requested_at else None
        ),
        "error": row.error,
    }
    verdict["sentence"] = sentence_of(row, verdict)
    return verdict


def sentence_of(row: BisectionRow, verdict: dict[str, Any]) -> str:
    """Return the verdict in words, also before there is one."""
    if row.state is not BisectionState.FINISHED and row.cancel_requested_at is not None:
        return "Cancelling: what is under way is being stopped."
    return str((row.verdict or {}).get("sentence") or "") or report.sentence(verdict)


def change_of(verdict: dict[str, Any]) -> float | None:
    """Return the relative change between the ends; None until both are measured."""
    total = (verdict.get("explained") or {}).get("total")
    if isinstance(total, int | float):
        return float(total)
    good, bad = verdict["good"].get("mean"), verdict["bad"].get("mean")
    return bad / good - 1 if good and bad else None


def culprit_names(verdict: dict[str, Any]) -> list[str]:
    """Return the short name of each culprit; a set of commits by its last one."""
    return [
        report.short(culprit["commits"][-1]) + ("…" if len(culprit["commits"]) > 1 else "")
        for culprit in verdict["culprits"]
        if culprit.get("commits")
    ]


def summary_of(listing: Listing) -> models.Summary:
    """Return a bisection as lists show it."""
    row = listing.row
    verdict = verdict_of(listing)
    return models.Summary(
        id=row.id,
        state=row.state,
        outcome=row.outcome,
        sentence=verdict["sentence"],
        repository=verdict["repository"],
        good=row.good_sha,
        bad=row.bad_sha,
        candidates=listing.last_position,
        benchmark=verdict["benchmark"],
        recipe=verdict["recipe"],
        change=change_of(verdict),
        culprits=culprit_names(verdict),
        requested_by=row.requested_by,
        origin=row.origin,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def axis_point_of(row: PointRow | AnyRow, axis: Axis) -> models.AxisPoint:
    """Return a point with its position; of a row, or of the columns that ``exports`` reads."""
    return models.AxisPoint(
        id=row.id,
        position=axis.position_of_tree.get(row.tree, 0),
        commit=row.commit_sha,
        value=row.value,
        unit=row.unit,
        host=row.host,
        purpose=row.purpose,
        rejected=row.rejected,
        measured_at=row.measured_at,
        seconds=row.seconds,
        run_id=row.run_id,
        bisection_id=row.bisection_id,
        experiment_id=row.experiment_id,
        wheel_id=row.wheel_id,
        carried=[str(change) for change in row.environment.get("carried") or ()],
    )


def point_of(named: NamedPoint) -> models.Point:
    """Return a point with everything that was stored with it."""
    row = named.row
    return models.Point(
        id=row.id,
        benchmark=named.benchmark,
        benchmark_digest=row.benchmark_digest,
        recipe_digest=row.recipe_digest,
        commit=row.commit_sha,
        tree=row.tree,
        value=row.value,
        unit=row.unit,
        host=row.host,
        purpose=row.purpose,
        rejected=row.rejected,
        measured_at=row.measured_at,
        seconds=row.seconds,
        within=row.within,
        run_id=row.run_id,
        bisection_id=row.bisection_id,
        experiment_id=row.experiment_id,
        wheel_id=row.wheel_id,
        environment=row.environment,
    )


def build_of(row: BuildRow, axis: Axis | None = None) -> models.BuildView:
    """Return a build, with its position where an axis is given."""
    view = models.BuildView.model_validate(row)
    if axis is not None:
        view.position = axis.position_of_tree.get(row.tree)
    return view


def wheel_of(named: NamedWheel) -> models.WheelView:
    """Return a wheel with its recipe's name."""
    row = named.row
    return models.WheelView(
        id=row.id,
        commit_sha=row.commit_sha,
        tree=row.tree,
        recipe=named.recipe,
        recipe_digest=row.recipe_digest,
        filename=row.filename,
        sha256=row.sha256,
        size=row.size,
        build_id=row.build_id,
        created_at=row.created_at,
    )


def hosts_of(session: Session) -> list[models.HostView]:
    """Return all hosts with what they do now and how noisy they are."""
    noise, health = host_noise(session), health_of_hosts(session)
    return [
        host_of(
            status,
            [each for each in noise if each.host == status.row.name],
            health.get(status.row.name),
        )
        for status in list_hosts(session)
    ]


def host_of(
    status: HostStatus, noise: Sequence[Noise] = (), health: HostHealthRow | None = None
) -> models.HostView:
    """Return a host with what it does now, how noisy it is and how it is judged."""
    run = status.running
    return models.HostView(
        name=status.row.name,
        pool=status.row.pool,
        facts=status.row.facts,
        last_seen_at=status.row.last_seen_at,
        points=status.points,
        rejected=status.rejected,
        running=(
            models.RunningRun(
                run_id=run.id,
                bisection_id=run.bisection_id,
                experiment_id=run.experiment_id,
                started_at=run.started_at,
            )
            if run
            else None
        ),
        noise=[models.HostNoise.model_validate(each) for each in noise],
        health=_health_of(health) if health is not None else None,
    )


def _health_of(row: HostHealthRow) -> models.HostHealth:
    told = row.health or {}
    return models.HostHealth(
        score=told.get("score"),
        drift=told.get("drift"),
        error=told.get("error"),
        noise=told.get("noise"),
        rejected=told.get("rejected"),
        repeats=told.get("repeats"),
        judged_at=row.judged_at,
        out_since=row.out_since,
        out_by=row.out_by,
        reason=row.reason,
    )
