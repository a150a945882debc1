"""From a belief to the verdict that people, programs and the database get: plain JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.core.facts import Belief, EndStat, Facts, Finish
from perfbisect.core.states import BisectionState, Find, Outcome
from perfbisect.core.verdict import Culprit, credible_positions
from perfbisect.core.verdict import verdict as answer_of
from perfbisect.gather import Axis
from perfbisect.jobs import Look
from perfbisect.step_evidence import notes_of, sides_of
from perfbisect.store.tables import BisectionRow, CandidateRow, PointRow

#: Probabilities below this are not worth a pixel of the chart.
_VISIBLE = 1e-4
#: Commits named at most by one culprit or credible set; a clump this large is no answer anyway.
_MOST_COMMITS = 200
#: Commits of a set whose relations are looked up.
_MOST_RELATED = 50

_STILL_SEARCHING = Finish(Outcome.INCONCLUSIVE, "still searching")

Relations = Callable[[str], list[dict[str, Any]]]


def assemble(
    session: Session,
    row: BisectionRow,
    axis: Axis,
    look: Look,
    end: Finish | None,
    relations: Relations = lambda _: [],
) -> dict[str, Any]:
    """Return the verdict of design.md §8, so far or final.

    Args:
        end: why the bisection ends; None while it runs.
        relations: SHA -> what history knows of a commit beyond the range.
    """
    facts: Facts = look.facts
    belief: Belief | None = look.belief
    fix = facts.policy.find is Find.FIX
    answer = answer_of(facts, belief, end or _STILL_SEARCHING)
    named = answer.culprits
    if end is None or end.outcome is not Outcome.CULPRITS:
        named = tuple(sorted((*named, *answer.suspects), key=lambda each: each.positions))
    verdict: dict[str, Any] = {
        "id": row.id,
        "state": BisectionState.FINISHED if end else BisectionState.RUNNING,
        "outcome": end.outcome if end else None,
        "good": _end(row.good_sha, answer.good),
        "bad": _end(row.bad_sha, answer.bad),
        "axis": "published" if row.repository_id is None else "commits",
        "package": row.published["package"] if row.published else None,
        "culprits": [_culprit(session, row, axis, each, relations) for each in named],
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
        "reason": end.reason if end else "",
        "code": end.code if end else "",
        "skipped": list((row.published or {}).get("skipped") or ()),
        "companions": _companions(row),
        "notes": [
            *_pinned_notes(row),
            *notes_of(row, _broken(axis, look)),
            *(str(each["note"]) for each in row.build_notes or ()),
        ],
    }
    verdict["credible_set"] = [] if answer.culprits else _credible_set(axis, belief)
    verdict["sentence"] = report.sentence(verdict)
    return verdict


def _companions(row: BisectionRow) -> dict[str, Any] | None:
    """Return the companions that move, or the one that is bisected; None: neither."""
    return dict(row.companions) if row.companions else None


def _pinned_notes(row: BisectionRow) -> list[str]:
    told = row.companions or {}
    if "bisected" not in told:
        return []
    return [f"the commits are those of companion {told['bisected']}, all with {told['wheel']}"]


def _broken(axis: Axis, look: Look) -> dict[str, str]:
    """Return the name of each position that can't be used, and why."""
    broken = sorted(look.facts.broken & set(look.failures))
    return {axis.shas[position]: look.failures[position].message for position in broken}


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


def _culprit(
    session: Session, row: BisectionRow, axis: Axis, culprit: Culprit, relations: Relations
) -> dict[str, Any]:
    """Return a step as a culprit: the commits that may have caused it, earliest first."""
    first, last = culprit.positions[0], culprit.positions[-1]
    candidates = session.scalars(
        select(CandidateRow)
        .where(
            CandidateRow.bisection_id == row.id,
            CandidateRow.position >= first,
            CandidateRow.position <= last,
        )
        .order_by(CandidateRow.position)
        .limit(_MOST_COMMITS)
    ).all()
    alone = candidates[0] if len(candidates) == 1 else None
    return {
        "commits": [candidate.sha for candidate in candidates],
        "subject": alone.subject if alone else "",
        "author": alone.author if alone else "",
        "subjects": [candidate.subject for candidate in candidates],
        "kind": culprit.kind,
        "before": culprit.before,
        "after": culprit.after,
        "change": culprit.change,
        "ci95": list(culprit.ci95),
        "probability": culprit.probability,
        "verified": culprit.verified,
        "verify_runs": culprit.verify_runs,
        "before_position": first - 1,
        "previous": axis.shas[first - 1],
        "position": last,
        "relations": _relations(candidates, relations),
        "confounders": _confounders(row, first, last),
        **sides_of(session, row, first - 1, last),
    }


def _confounders(row: BisectionRow, first: int, last: int) -> list[str]:
    """Return how the way of building changes where the step is: it may come from that."""
    return [
        str(each["note"])
        for each in row.build_notes or ()
        if each["position"] is not None and first <= each["position"] <= last
    ]


def _relations(candidates: Sequence[CandidateRow], relations: Relations) -> list[dict[str, Any]]:
    """Return the relations inside the range, and those that history knows beyond it."""
    found: dict[str, dict[str, Any]] = {}
    for candidate in candidates[:_MOST_RELATED]:
        for relation in (*candidate.relations, *relations(candidate.sha)):
            found.setdefault(f"{relation['kind']} {relation['commit']}", dict(relation))
    return list(found.values())


def _explained(belief: Belief | None, named: Sequence[Culprit]) -> dict[str, float | None]:
    """Return the whole change between the ends, and what the named steps amount to together."""
    total = None
    if belief is not None and belief.first is not None and belief.last is not None:
        total = belief.last.mean / belief.first.mean - 1
    return {"total": total, "steps": math.prod(1 + each.change for each in named) - 1}


def _credible_set(axis: Axis, belief: Belief | None) -> list[dict[str, Any]]:
    """Return the likeliest commits that together hold 95% of the probability, likeliest first."""
    if belief is None:
        return []
    strip = belief.step_probability
    positions = sorted(credible_positions(belief), key=lambda each: -strip[each - 1])
    return [
        {
            "commit": axis.shas[position],
            "position": position,
            "probability": round(float(strip[position - 1]), 5),
        }
        for position in positions[:_MOST_COMMITS]
    ]
