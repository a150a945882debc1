"""From a belief to the verdict that people, programs and the database get: plain JSON."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.core.facts import Belief, EndStat, Finish, Step
from perfbisect.core.states import BisectionState, Find, Outcome
from perfbisect.gather import Axis, Gathered
from perfbisect.store.tables import BisectionRow, CandidateRow, PointRow

#: Probabilities below this are not worth a pixel of the chart.
_VISIBLE = 1e-4
#: Share of the probability that a credible set holds.
_CREDIBLE = 0.95


def assemble(
    session: Session,
    row: BisectionRow,
    axis: Axis,
    gathered: Gathered,
    belief: Belief | None,
    end: Finish | None,
) -> dict[str, Any]:
    """Return the verdict of design.md §8, so far or final.

    Args:
        end: why the bisection ends; None while it runs.
    """
    facts = gathered.facts
    fix = facts.policy.find is Find.FIX
    first, last = (belief.first, belief.last) if belief else (None, None)
    steps = list(belief.steps) if belief else []
    verified = [step for step in steps if step.verified]
    named = verified if end is not None and end.outcome is Outcome.CULPRITS else steps
    good, bad = (last, first) if fix else (first, last)
    verdict: dict[str, Any] = {
        "id": row.id,
        "state": BisectionState.FINISHED if end else BisectionState.RUNNING,
        "outcome": end.outcome if end else None,
        "good": _end(row.good_sha, good),
        "bad": _end(row.bad_sha, bad),
        "culprits": [_culprit(session, row, axis, step) for step in named],
        "explained": _explained(belief, named),
        "builds": facts.builds_done,
        "runs": facts.runs_done,
        "points": _points(session, row.id),
        "seconds": round(facts.elapsed, 1),
        "unit": row.benchmark["unit"],
        "better": row.benchmark.get("better", "higher"),
        "find": facts.policy.find,
        "commits": axis.n,
        "positions": {"good": axis.n if fix else 0, "bad": 0 if fix else axis.n},
        "min_effect": facts.policy.min_effect,
        "threshold": belief.threshold if belief else None,
        "noise": belief.noise if belief else None,
        "confidence": belief.confidence if belief else None,
        "missed": belief.missed if belief else None,
        "drift": belief.drift if belief else None,
        "unbuildable": len(facts.broken),
        "reused_points": len(facts.observations) - _own(facts.observations),
        "credible_set": [],
        "reason": end.reason if end else "",
        "code": end.code if end else "",
    }
    if belief is not None and not verified:
        verdict["credible_set"] = _credible_set(axis, belief)
    verdict["sentence"] = report.sentence(verdict)
    return verdict


def belief_json(belief: Belief) -> dict[str, Any]:
    """Return what charts need of a belief."""
    return {
        "step_probability": [
            [position + 1, round(float(probability), 5)]
            for position, probability in enumerate(belief.step_probability)
            if probability > _VISIBLE
        ],
        "levels": {str(key): list(value) for key, value in belief.levels.items()},
        "threshold": belief.threshold,
        "host_offsets": belief.host_offsets,
        "drift": belief.drift,
        "noise": belief.noise,
        "confidence": belief.confidence,
        "missed": belief.missed,
    }


def _end(sha: str, end: EndStat | None) -> dict[str, Any]:
    if end is None:
        return {"revision": sha, "mean": None, "ci95": None, "runs": 0}
    return {"revision": sha, "mean": end.mean, "ci95": list(end.ci95), "runs": end.runs}


def _own(observations: Any) -> int:
    return sum(observation.purpose != "history" for observation in observations)


def _points(session: Session, bisection_id: str) -> int:
    count = session.scalar(
        select(func.count()).select_from(PointRow).where(PointRow.bisection_id == bisection_id)
    )
    return count or 0


def _culprit(session: Session, row: BisectionRow, axis: Axis, step: Step) -> dict[str, Any]:
    """Return a step as a culprit: the commits that may have caused it, earliest first."""
    candidates = session.scalars(
        select(CandidateRow)
        .where(
            CandidateRow.bisection_id == row.id,
            CandidateRow.position > step.before,
            CandidateRow.position <= step.after,
        )
        .order_by(CandidateRow.position)
        .limit(1000)
    ).all()
    return {
        "commits": [candidate.sha for candidate in candidates],
        "subject": candidates[-1].subject if step.resolved else "",
        "author": candidates[-1].author if step.resolved else "",
        "subjects": [candidate.subject for candidate in candidates[:50]],
        "kind": step.kind,
        "before": step.level_before,
        "after": step.level_after,
        "change": step.change,
        "ci95": list(step.ci95),
        "probability": step.probability,
        "verified": step.verified,
        "verify_runs": step.verify_runs,
        "resolved": step.resolved,
        "before_position": step.before,
        "position": step.after,
        "relations": [
            relation for candidate in candidates[:50] for relation in candidate.relations
        ],
    }


def _explained(belief: Belief | None, steps: list[Step]) -> dict[str, float | None]:
    """Return the whole change between the ends, and what the named steps amount to together."""
    total = None
    if belief is not None and belief.first is not None and belief.last is not None:
        total = belief.last.mean / belief.first.mean - 1
    product = 1.0
    for step in steps:
        product *= 1 + step.change
    return {"total": total, "steps": product - 1}


def _credible_set(axis: Axis, belief: Belief) -> list[dict[str, Any]]:
    """Return the likeliest commits that together hold most of the probability, likeliest first."""
    probabilities = belief.step_probability
    total = float(probabilities.sum())
    if total <= 0:
        return []
    chosen: list[dict[str, Any]] = []
    held = 0.0
    for index in probabilities.argsort()[::-1][:100]:
        if held >= _CREDIBLE * total:
            break
        held += float(probabilities[index])
        chosen.append(
            {
                "commit": axis.shas[int(index) + 1],
                "position": int(index) + 1,
                "probability": round(float(probabilities[index]), 5),
            }
        )
    return chosen
