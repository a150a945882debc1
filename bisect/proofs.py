"""Proof of culprits: revert each on the later end, pick each onto the earlier end, and measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.arms import PreparedArm, change_for, insert_arm, prepare_arm
from perfbisect.building_notes import CarriedAlong
from perfbisect.config import recipe_from_dict
from perfbisect.core.facts import Policy, Step
from perfbisect.core.recipe import digest_of
from perfbisect.core.revision import Action
from perfbisect.core.states import BisectionState, ExperimentKind
from perfbisect.gather import Axis
from perfbisect.history import Mirror
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import experiment
from perfbisect.store.tables import BisectionRow, ExperimentRow

#: Commits of a culprit set that are reverted or picked together, at most.
MOST_TOGETHER = 20
#: Bases tried when a change does not apply on the end itself.
MOST_BASES = 12
#: Share of the culprit's effect that an arm has to show to prove it.
PROVEN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PreparedProof:
    """The arms that prove the culprits of a bisection."""

    arms: tuple[PreparedArm, ...]
    policy: Policy
    #: By arm: digest of the benchmark of its place on the axis; None: the bisection's.
    benchmarks: tuple[str | None, ...]


class _Arms:
    """Collects arms; each reference is there once."""

    def __init__(self, mirror: Mirror, axis: Axis, carried: CarriedAlong) -> None:
        self._mirror = mirror
        self._axis = axis
        self._carried = carried
        self.arms: list[PreparedArm] = []
        self._references: dict[int, int] = {}

    def reference(self, position: int) -> int:
        """Return the index of the arm that is a plain position of the axis."""
        if position not in self._references:
            sha = self._axis.shas[position]
            self._references[position] = len(self.arms)
            name = {0: "earlier end", self._axis.n: "later end"}.get(position, sha[:10])
            self.arms.append(
                PreparedArm(
                    name=name,
                    against=None,
                    revision=self._carried.at(position, sha),
                    base_sha=sha,
                    tree=self._axis.trees[position],
                    role={"kind": "reference", "axis_position": position},
                )
            )
        return self._references[position]

    def add(self, action: Action, shas: Sequence[str], step: Step, bases: Sequence[int]) -> None:
        """Add the arm on the first base on which it applies; else say why it does not."""
        first: PreparedArm | None = None
        for base in bases:
            changes = [change_for(self._mirror, action, sha) for sha in shas]
            revision = self._carried.at(base, self._axis.shas[base]).then(*changes)
            what = shas[0][:10] if len(shas) == 1 else f"{len(shas)} commits"
            arm = prepare_arm(
                self._mirror,
                f"{action} {what} on {self._axis.shas[base][:10]}",
                revision,
                against=None,
                role={
                    "kind": action.value,
                    "culprit_position": step.after,
                    "axis_position": base,
                    "nearest": base != bases[0],
                    "expected": 1 / (1 + step.change) - 1
                    if action is Action.REVERT
                    else step.change,
                },
                patches=self._carried.patches,
            )
            if arm.tree is not None:
                self.arms.append(_against(arm, self.reference(base)))
                return
            first = first or arm
            if arm.problem is not None and arm.problem["kind"] == "empty":
                break
        if first is not None:
            self.arms.append(_against(first, self.reference(bases[0])))


def _against(arm: PreparedArm, reference: int) -> PreparedArm:
    return PreparedArm(**{**_shallow(arm), "against": reference})


def _shallow(arm: PreparedArm) -> dict[str, Any]:
    return {name: getattr(arm, name) for name in PreparedArm.__slots__}


def prepare_proof(
    mirror: Mirror,
    axis: Axis,
    policy: Policy,
    steps: Iterable[Step],
    carried: CarriedAlong | None = None,
) -> PreparedProof | None:
    """Return the arms that prove these steps; None if there is nothing to prove.

    Where a change does not apply on its end, the nearest commit on which it does is used; where it
    is already there or already reverted, there is nothing to measure and the arm says so. What is
    carried along the axis is carried here, too.
    """
    collected = _Arms(mirror, axis, carried or CarriedAlong())
    for step in steps:
        positions = range(step.before + 1, step.after + 1)
        if len(positions) > MOST_TOGETHER:
            continue
        shas = [axis.shas[position] for position in positions]
        collected.add(Action.REVERT, shas[::-1], step, _bases(axis.n, step.after))
        collected.add(Action.PICK, shas, step, _bases(0, step.before))
    if not collected.arms:
        return None
    benchmarks = (axis.benchmark(arm.role["axis_position"]) for arm in collected.arms)
    return PreparedProof(tuple(collected.arms), policy, tuple(benchmarks))


def _bases(end: int, near: int) -> list[int]:
    """Return positions from an end towards the culprit, ever closer: where a change may apply.

    The culprit's own place is not among them: reverting it there gives its parent, and picking it
    there gives itself. That is what the verification has measured already, and proves nothing more.
    """
    distance = abs(end - near)
    sign = 1 if near > end else -1
    offsets = {distance - (distance >> halving) for halving in range(MOST_BASES)} | {0}
    return [end + sign * offset for offset in sorted(offsets - {distance})][:MOST_BASES]


def proof_policy(policy: Policy) -> dict[str, Any]:
    """Return the policy of an experiment that looks for a known effect."""
    return {
        "better": policy.better,
        "min_effect": policy.min_effect,
        "max_runs": policy.max_runs,
        "max_seconds": policy.max_seconds,
        # The question is whether a known effect appears, not how large a new one is.
        "min_runs": 3,
    }


def insert_proof(
    session: Session, row: BisectionRow, proof: PreparedProof, verdict: dict[str, Any]
) -> None:
    """Store the proof as an experiment of the bisection; its verdict names it."""
    experiment_id = new_id()
    session.add(
        ExperimentRow(
            id=experiment_id,
            kind=ExperimentKind.PROVE,
            bisection_id=row.id,
            state=BisectionState.QUEUED,
            request={},
            request_digest=digest_of({"prove": row.id}),
            repository_id=row.repository_id,
            # Everything in a proof is built alike: no nightly stands in for a commit there.
            recipe_digest=recipe_from_dict(row.recipe).digest,
            benchmark_digest=row.benchmark_digest,
            recipe=row.recipe,
            benchmark=row.benchmark,
            policy=proof_policy(proof.policy),
            plan={},
            requested_by=row.requested_by,
            origin="bisection",
            priority=row.priority,
            created_at=now(),
            active_seconds=0.0,
        )
    )
    session.flush()
    for position, (arm, own) in enumerate(zip(proof.arms, proof.benchmarks, strict=True)):
        insert_arm(session, experiment_id, position, arm, own or row.benchmark_digest)
    bisections.add_event(session, experiment(experiment_id), "submitted", {})
    verdict["proof"] = {"experiment": experiment_id, "state": BisectionState.QUEUED}


def judge(arms: Sequence[Mapping[str, Any]], position: int) -> dict[str, Any]:
    """Return what the arms of a finished proof say of the culprit at ``position``.

    Args:
        arms: as in an experiment's verdict.
    """
    told = {
        arm["role"]["kind"]: _judge_arm(arm)
        for arm in arms
        if arm["role"].get("culprit_position") == position
    }
    words = {kind: answer["word"] for kind, answer in told.items()}
    proven = [kind for kind, word in words.items() if word == "proven"]
    if proven:
        verdict = "proven by " + " and ".join(proven)
    elif "contradicted" in words.values():
        verdict = "contradicted"
    elif not words:
        verdict = "nothing to prove beyond the verification"
    elif set(words.values()) <= {"can't be applied", "nothing to measure"}:
        verdict = "can't be applied"
    else:
        verdict = "undecided"
    return {"verdict": verdict, **told}


def _judge_arm(arm: Mapping[str, Any]) -> dict[str, Any]:
    answer = {
        "arm": arm["position"],
        "name": arm["name"],
        "change": arm.get("change"),
        "ci95": arm.get("ci95"),
        "expected": arm["role"]["expected"],
        "nearest": arm["role"]["nearest"],
        "problem": arm.get("problem"),
    }
    return {**answer, "word": _word(arm), "meaning": _MEANINGS[_word(arm)]}


_MEANINGS = {
    "proven": "the value changed as the culprit says it must",
    "contradicted": "the value did not change as the culprit says: others mask, need or repeat it",
    "partial": "the value changed, but by less than half of the culprit's effect",
    "undecided": "the runs did not decide it",
    "nothing to measure": "the change is already there, or already taken back, on that end",
    "can't be applied": "the change conflicts on every commit tried",
    "not measured": "the revision does not build or run",
}


def _word(arm: Mapping[str, Any]) -> str:
    problem = arm.get("problem")
    if problem:
        return "nothing to measure" if problem["kind"] == "empty" else "can't be applied"
    if arm.get("change") is None:
        return "not measured"
    if arm["difference"] == "unknown":
        return "undecided"
    claim = math.log1p(arm["role"]["expected"])
    share = math.log1p(arm["change"]) / claim
    if arm["difference"] == "alike" or share < 0:
        return "contradicted"
    low, high = (math.log1p(max(bound, -0.999)) / claim for bound in arm["ci95"])
    if min(low, high) <= 0:
        # The interval holds "no change at all": whatever the mean says, nothing is proven.
        return "undecided"
    return "proven" if share >= PROVEN_SHARE else "partial"
