"""An experiment under a conductor: its arms, its facts, its answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.companion_checks import judge_check
from perfbisect.core.comparison import Comparison, Measured
from perfbisect.core.experiment import Arm, ExperimentFacts, comparisons_of
from perfbisect.core.experiment import plan as make_plan
from perfbisect.core.facts import Action, Finish
from perfbisect.core.states import Better, BisectionState, ExperimentKind, WorkState
from perfbisect.errors import InternalError
from perfbisect.gather import Capacity
from perfbisect.jobs import Look
from perfbisect.minimising import Minimisation, summary_of
from perfbisect.pick_sets import KIND as PICK_SET
from perfbisect.pick_sets import PickSets
from perfbisect.proofs import judge
from perfbisect.services import Services
from perfbisect.store.jobs import experiment
from perfbisect.store.tables import (
    ArmRow,
    BisectionRow,
    BuildRow,
    ExperimentRow,
    PointRow,
    RunRow,
    WheelRow,
)
from perfbisect.store.work import ACTIVE
from perfbisect.worklog import broken_positions, find_trouble, under_construction

_Fact = TypeVar("_Fact", BuildRow, WheelRow)


class ExperimentJob:
    """Implements ``jobs.Job`` for experiments."""

    def __init__(self, services: Services, experiment_id: str) -> None:
        self._services = services
        self.ref = experiment(experiment_id)
        with services.database.read() as session:
            row = session.get_one(ExperimentRow, experiment_id)
            self._policy = dict(row.policy)
            self._kind = row.kind
            self._arms = _arms(session, experiment_id)
        self._minimisation = (
            Minimisation(services, row) if row.kind is ExperimentKind.MINIMISE_REVERTS else None
        )
        picks = any(arm.role.get("kind") == PICK_SET for arm in self._arms)
        self._pick_sets = PickSets(services, row) if picks else None

    def look(self, session: Session, capacity: Capacity, elapsed: float) -> Look:
        """Read everything that bears on the experiment."""
        row = session.get_one(ExperimentRow, self.ref.id)
        self._arms = _arms(session, self.ref.id)
        builds = _on_arms(session, self._arms, BuildRow, row.recipe_digest)
        wheels = {
            position: wheel.id
            for position, wheel in _on_arms(session, self._arms, WheelRow, row.recipe_digest)
        }
        runs = session.scalars(select(RunRow).where(RunRow.experiment_id == row.id)).all()
        points = self._points(session, runs)
        broken, failures = broken_positions(_itself, builds, runs, points, self.ref)
        facts = self._facts(row, capacity, elapsed, runs, points)
        only_built = (
            self._pick_sets.only_built(self._arms, wheels.keys(), broken)
            if self._pick_sets is not None
            else set()
        )
        arms = tuple(
            Arm(
                name=arm.name,
                against=arm.against,
                wheel=arm.position in wheels,
                building=arm.position in under_construction(builds, self.ref),
                broken=arm.tree is None or arm.position in broken,
                values=tuple(
                    Measured(point.value, point.host, point.measured_at.timestamp())
                    for position, point in points
                    if position == arm.position and not point.rejected
                ),
                running=sum(run.position == arm.position and run.state in ACTIVE for run in runs),
                expected=arm.role.get("expected"),
                only_built=arm.position in only_built,
                wanted=int(arm.role.get("wanted") or 0),
            )
            for arm in self._arms
        )
        trouble = find_trouble(builds, runs, points, self.ref)
        told = facts(arms)
        if self._minimisation is not None:
            told = self._minimisation.asked(self._arms, told)
        return Look(told, wheels, trouble, failures)

    def _facts(
        self,
        row: ExperimentRow,
        capacity: Capacity,
        elapsed: float,
        runs: Sequence[RunRow],
        points: Sequence[tuple[int, PointRow]],
    ) -> Any:
        """Return what makes the facts once the arms are known."""
        measured_on = points[0][1].host if points else None
        free = capacity.free_hosts
        host = measured_on if measured_on in free else None
        if measured_on is None or measured_on not in capacity.hosts:
            # One host measures all of it; only when that one is gone, another starts afresh.
            host = free[0] if free else None

        def make(arms: tuple[Arm, ...]) -> ExperimentFacts:
            return ExperimentFacts(
                arms=arms,
                better=Better(self._policy["better"]),
                min_effect=self._policy["min_effect"],
                max_runs=self._policy.get("max_runs"),
                max_seconds=self._policy.get("max_seconds"),
                min_runs=self._policy.get("min_runs", 4),
                free_build_slots=capacity.free_build_slots,
                free_host=host,
                exclusive=capacity.exclusive,
                runs_done=sum(run.state in (WorkState.SUCCEEDED, WorkState.FAILED) for run in runs),
                elapsed=elapsed,
                growing=self._minimisation is not None,
            )

        return make

    def _points(self, session: Session, runs: Iterable[RunRow]) -> list[tuple[int, PointRow]]:
        position_of = {run.id: run.position for run in runs}
        points = session.scalars(
            select(PointRow).where(PointRow.experiment_id == self.ref.id).order_by(PointRow.id)
        )
        return [(position_of[point.run_id], point) for point in points]

    def decide(self, look: Look) -> Sequence[Action]:
        """Ask the planner; while a set is looked for, add the next one to try."""
        busy = any(arm.building or arm.running for arm in look.facts.arms)
        if self._pick_sets is not None and not busy:
            look.outdated = self._pick_sets.advance(self._arms, look)
            if look.outdated:
                return ()
        plan = make_plan(look.facts)
        look.belief = plan.comparisons
        if plan.actions or self._minimisation is None:
            return plan.actions
        if busy:
            return ()
        return self._minimisation.next(self._arms, look)

    def representative(self, position: int) -> int:
        """Return the position itself: wheels of equal trees are found for each arm."""
        return position

    def source_of(self, position: int) -> tuple[str, str]:
        """Return tree and base commit of an arm."""
        arm = self._arms[position]
        if arm.tree is None:
            raise InternalError(f"arm {position} can't be applied and can't be built")
        return arm.tree, arm.base_sha

    def benchmark_of(self, position: int) -> str:
        """Return the arm's benchmark: its environment is part of it."""
        return self._arms[position].benchmark_digest

    def progress(self, session: Session, look: Look) -> dict[str, Any]:
        """Store the answer so far."""
        row = session.get_one(ExperimentRow, self.ref.id)
        row.verdict = self._verdict(session, row, look, None)
        return {"arms": row.verdict["arms"], "runs": row.verdict["runs"]}

    def prepare_end(self, look: Look, action: Finish) -> None:
        """Compare the arms if nobody has."""
        if look.belief is None:
            look.belief = comparisons_of(look.facts)

    def end(self, session: Session, look: Look, action: Finish, prepared: Any) -> dict[str, Any]:
        """Return the answer; a proof is written into its bisection's verdict."""
        row = session.get_one(ExperimentRow, self.ref.id)
        verdict = self._verdict(session, row, look, action)
        if row.kind is ExperimentKind.PROVE and row.bisection_id is not None:
            _write_proof(session, row.bisection_id, verdict)
        if row.kind is ExperimentKind.COMPANION and row.bisection_id is not None:
            _write_check(session, row.bisection_id, verdict)
        return verdict

    def _verdict(
        self, session: Session, row: ExperimentRow, look: Look, end: Finish | None
    ) -> dict[str, Any]:
        comparisons: Sequence[Comparison | None] = look.belief or comparisons_of(look.facts)
        verdict: dict[str, Any] = {
            "id": row.id,
            "kind": row.kind,
            "bisection": row.bisection_id,
            "state": BisectionState.FINISHED if end else BisectionState.RUNNING,
            "outcome": end.outcome if end else None,
            "arms": [
                _arm_json(arm, comparison, look)
                for arm, comparison in zip(self._arms, comparisons, strict=True)
            ],
            "unit": row.benchmark["unit"],
            "better": row.benchmark.get("better", "higher"),
            "min_effect": self._policy["min_effect"],
            "builds": _count(session, BuildRow, row.id),
            "runs": look.facts.runs_done,
            "points": _count(session, PointRow, row.id),
            "seconds": round(look.facts.elapsed, 1),
            "reason": end.reason if end else "",
            "code": end.code if end else "",
        }
        if row.plan.get("carried"):
            verdict["carried"] = list(row.plan["carried"])
        if self._minimisation is not None:
            verdict["minimal"] = summary_of(self._minimisation, self._arms, look)
        if self._pick_sets is not None:
            verdict["pick_sets"] = self._pick_sets.summary(self._arms, look)
        verdict["sentence"] = report.experiment_sentence(verdict)
        return verdict


def _arms(session: Session, experiment_id: str) -> list[ArmRow]:
    return list(
        session.scalars(
            select(ArmRow).where(ArmRow.experiment_id == experiment_id).order_by(ArmRow.position)
        )
    )


def _itself(position: int) -> int:
    return position


def _on_arms(
    session: Session, arms: Sequence[ArmRow], table: type[_Fact], recipe_digest: str
) -> list[tuple[int, _Fact]]:
    """Return the builds or wheels of the arms' trees; arms with equal trees share them."""
    trees = {arm.tree for arm in arms if arm.tree is not None}
    rows = session.scalars(
        select(table)
        .where(table.tree.in_(trees), table.recipe_digest == recipe_digest)
        .order_by(table.id)
    ).all()
    return [(arm.position, row) for row in rows for arm in arms if arm.tree == row.tree]


def _count(session: Session, table: type[BuildRow] | type[PointRow], experiment_id: str) -> int:
    query = select(func.count()).select_from(table).where(table.experiment_id == experiment_id)
    if table is BuildRow:
        query = query.where(BuildRow.state.in_((WorkState.SUCCEEDED, WorkState.FAILED)))
    return session.scalar(query) or 0


def _arm_json(arm: ArmRow, comparison: Comparison | None, look: Look) -> dict[str, Any]:
    failure = look.failures.get(arm.position)
    told: dict[str, Any] = {
        "position": arm.position,
        "name": arm.name,
        "against": arm.against,
        "revision": arm.revision,
        "tree": arm.tree,
        "env": arm.env,
        "role": arm.role,
        "problem": arm.problem,
        "failure": failure.message if failure is not None else None,
        "only_built": look.facts.arms[arm.position].only_built,
        "runs": len(look.facts.arms[arm.position].values),
        "difference": None,
        "change": None,
        "ci95": None,
        "mean": None,
        "mean_ci95": None,
        "reference_mean": None,
    }
    if comparison is None:
        return told
    return told | {
        "difference": comparison.difference,
        "change": comparison.change,
        "ci95": list(comparison.ci95),
        "mean": comparison.arm.mean,
        "mean_ci95": list(comparison.arm.ci95),
        "reference_mean": comparison.reference.mean,
    }


def _write_proof(session: Session, bisection_id: str, answer: dict[str, Any]) -> None:
    """Write what the proof says into the culprits of the bisection's verdict."""
    row = session.get_one(BisectionRow, bisection_id)
    if row.verdict is None:
        return
    culprits = [
        {**culprit, "proof": judge(answer["arms"], culprit["position"])}
        for culprit in row.verdict["culprits"]
    ]
    proof = {
        "experiment": answer["id"],
        "state": BisectionState.FINISHED,
        "outcome": answer["outcome"],
        **{key: answer[key] for key in ("builds", "runs", "seconds")},
    }
    verdict = {**row.verdict, "culprits": culprits, "proof": proof}
    row.verdict = {**verdict, "sentence": report.sentence(verdict)}


def _write_check(session: Session, bisection_id: str, answer: dict[str, Any]) -> None:
    """Write into a bisection's verdict what its companions do alone."""
    row = session.get_one(BisectionRow, bisection_id)
    if row.verdict is None:
        return
    told = judge_check(answer["arms"], row.verdict["explained"])
    check = {
        **row.verdict["companions"],
        "state": BisectionState.FINISHED,
        "outcome": answer["outcome"],
        "alone": told,
    }
    verdict = {**row.verdict, "companions": check}
    row.verdict = {**verdict, "sentence": report.sentence(verdict)}
