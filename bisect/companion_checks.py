"""After a bisection whose companions moved: do they explain the change alone?

The good end is measured once more with the companions of the bad end, in balanced order against
itself. If that reproduces the change, the commits that the search named are not its cause, or not
the only one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.arms import PreparedArm, insert_arm
from perfbisect.core.facts import Policy
from perfbisect.core.recipe import digest_of
from perfbisect.core.revision import Revision
from perfbisect.core.states import BisectionState, ExperimentKind
from perfbisect.gather import Axis
from perfbisect.proofs import PROVEN_SHARE, proof_policy
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import experiment
from perfbisect.store.tables import BisectionRow, ExperimentRow


def insert_check(
    session: Session, row: BisectionRow, axis: Axis, policy: Policy, verdict: dict[str, Any]
) -> None:
    """Store the check as an experiment of the bisection; its verdict names it.

    Nothing is stored where no companion moves, or where both ends have the same ones.

    Args:
        verdict: final; ``companions`` of it is filled in.
    """
    moving = (row.companions or {}).get("moving")
    positions = verdict["positions"]
    good, bad = positions["good"], positions["bad"]
    own, other = axis.benchmark(good), axis.benchmark(bad)
    if not moving or own is None or other is None or own == other:
        return
    experiment_id = new_id()
    session.add(
        ExperimentRow(
            id=experiment_id,
            kind=ExperimentKind.COMPANION,
            bisection_id=row.id,
            state=BisectionState.QUEUED,
            request={},
            request_digest=digest_of({"companions": row.id}),
            repository_id=row.repository_id,
            recipe_digest=row.recipe_digest,
            benchmark_digest=row.benchmark_digest,
            recipe=row.recipe,
            benchmark=row.benchmark,
            policy=proof_policy(policy),
            plan={},
            requested_by=row.requested_by,
            origin="bisection",
            created_at=now(),
            active_seconds=0.0,
        )
    )
    session.flush()
    reference = _arm(axis, good, "good end", None)
    arm = _arm(axis, good, "good end with the companions of the bad end", 0)
    insert_arm(session, experiment_id, 0, reference, own)
    insert_arm(session, experiment_id, 1, arm, other)
    bisections.add_event(session, experiment(experiment_id), "submitted", {})
    verdict["companions"] = {
        "moving": moving,
        "experiment": experiment_id,
        "state": BisectionState.QUEUED,
    }


def _arm(axis: Axis, position: int, name: str, against: int | None) -> PreparedArm:
    sha = axis.shas[position]
    return PreparedArm(
        name=name,
        against=against,
        revision=Revision(sha),
        base_sha=sha,
        tree=axis.trees[position],
        role={"kind": "reference" if against is None else "companions", "axis_position": position},
    )


def judge_check(arms: list[Mapping[str, Any]], explained: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the finished check says: ``word``, and the change it rests on.

    Args:
        arms: as in the experiment's verdict.
        explained: of the bisection's verdict: its ``total`` change.
    """
    arm = next(each for each in arms if each["role"].get("kind") == "companions")
    answer = {key: arm.get(key) for key in ("change", "ci95", "mean", "reference_mean", "runs")}
    return {**answer, "word": _word(arm, explained.get("total"))}


def _word(arm: Mapping[str, Any], total: float | None) -> str:
    """Return ``reproduced``, ``partly``, ``no`` or ``unknown``."""
    change = arm.get("change")
    if change is None or total is None or arm.get("difference") == "unknown":
        return "unknown"
    if arm["difference"] == "alike":
        return "no"
    share = math.log1p(change) / math.log1p(total) if total else 0.0
    if share >= PROVEN_SHARE:
        return "reproduced"
    return "partly" if share > 0 else "no"
