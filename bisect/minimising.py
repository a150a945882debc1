"""The smallest set of commits whose revert restores the value: which subset to try next.

The search is ``core.minimise``: a pure function of the answers so far. Each subset tried is an arm
of the experiment, so that a restart replays the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select

from perfbisect.arms import carried_role, change_for, insert_arm, prepare_arm
from perfbisect.building_notes import named_patches
from perfbisect.core.comparison import Comparison, Difference
from perfbisect.core.experiment import ExperimentFacts, comparisons_of, is_decided
from perfbisect.core.facts import Action, Finish
from perfbisect.core.minimise import Answer, Ask, Found, Subset, next_question
from perfbisect.core.revision import Action as ChangeAction
from perfbisect.core.revision import parse_revision
from perfbisect.core.states import Outcome
from perfbisect.history import Mirror
from perfbisect.jobs import Look
from perfbisect.services import Services
from perfbisect.store.tables import ArmRow, ExperimentRow, RepositoryRow
from perfbisect.work_orders import mirror_path

#: Share of the whole list's effect that a subset has to reach to restore the value.
RESTORED_SHARE = 0.9


class Minimisation:
    """Asks for subsets until a smallest one is known. Arm 0 is the base without any revert."""

    def __init__(self, services: Services, row: ExperimentRow) -> None:
        self._services = services
        self._id = row.id
        self._digest = row.benchmark_digest
        self._min_effect = float(row.policy["min_effect"])
        #: Commits in the order in which they are reverted: newest first.
        self.suspects: list[str] = list(row.plan["suspects"])
        self._patches = named_patches(row.request.get("carry") or ())
        with services.database.read() as session:
            url = session.get_one(RepositoryRow, row.repository_id).url
            reference = session.get_one(ArmRow, (row.id, 0))
        #: Arm 0: the base, and what is carried along.
        self._reference = parse_revision(reference.revision)
        self._carried = carried_role(self._reference.changes)
        self._mirror = Mirror(mirror_path(services, url))

    def step(self, arms: Sequence[ArmRow], look: Look) -> Ask | Found:
        """Return the next subset to try, or what was found."""
        return next_question(len(self.suspects), self.answers(arms, look), monotone=False)

    def answers(self, arms: Sequence[ArmRow], look: Look) -> dict[Subset, Answer]:
        """Return what the arms so far say of their subsets."""
        whole = tuple(range(len(self.suspects)))
        comparisons: dict[Subset, Comparison | None] = {}
        for arm, comparison in zip(arms, look.belief, strict=True):
            if "subset" in arm.role and is_decided(look.facts, arm.position, comparison):
                comparisons[tuple(arm.role["subset"])] = comparison
        reach = comparisons.get(whole)
        return {
            subset: self._answer(comparison, reach) for subset, comparison in comparisons.items()
        }

    def asked(self, arms: Sequence[ArmRow], facts: ExperimentFacts) -> ExperimentFacts:
        """Return the facts with the question that subsets are asked: do they restore the value?

        A subset that is far from it is known after a few runs, however little it may do.
        """
        comparisons = comparisons_of(facts)
        whole = next((arm for arm in arms if "subset" in arm.role), None)
        reach = comparisons[whole.position] if whole is not None else None
        if whole is None or reach is None or not is_decided(facts, whole.position, reach):
            return facts
        told = tuple(
            replace(arm, reaches=math.expm1(self._restored(reach)))
            if position > whole.position
            else arm
            for position, arm in enumerate(facts.arms)
        )
        return replace(facts, arms=told)

    def _restored(self, whole: Comparison) -> float:
        """Return what a subset has to reach, as the logarithm of a ratio."""
        wanted = math.log1p(whole.change)
        close = abs(wanted) - math.log1p(self._min_effect)
        return math.copysign(min(RESTORED_SHARE * abs(wanted), close), wanted)

    def _answer(self, comparison: Comparison | None, whole: Comparison | None) -> Answer:
        """Return whether a subset restores as much as the whole list, within the minimum effect."""
        if comparison is None or whole is None:
            return Answer.UNRESOLVED
        if whole.difference is not Difference.BETTER:
            return Answer.FAILS
        level = math.expm1(self._restored(whole))
        upward = whole.change > 0
        low, high = comparison.ci95
        if low > level or high < level:
            return Answer.HOLDS if (low > level) is upward else Answer.FAILS
        if comparison.difference is Difference.UNKNOWN:
            return Answer.UNRESOLVED
        if comparison.difference is not Difference.BETTER:
            return Answer.FAILS
        return Answer.HOLDS if (comparison.change >= level) is upward else Answer.FAILS

    def next(self, arms: Sequence[ArmRow], look: Look) -> Sequence[Action]:
        """Add the arm of the next subset, or end."""
        step = self.step(arms, look)
        if isinstance(step, Found):
            return (self._end(step),)
        chosen = [self.suspects[index] for index in step.subset]
        changes = [change_for(self._mirror, ChangeAction.REVERT, sha) for sha in chosen]
        arm = prepare_arm(
            self._mirror,
            "revert " + ", ".join(sha[:10] for sha in chosen),
            self._reference.then(*changes),
            against=0,
            role={"kind": "revert", "subset": list(step.subset), **self._carried},
            patches=self._patches,
        )
        with self._services.database.write() as session:
            count = session.scalar(
                select(func.count()).select_from(ArmRow).where(ArmRow.experiment_id == self._id)
            )
            insert_arm(session, self._id, count or 0, arm, self._digest)
        look.outdated = True
        return ()

    def _end(self, found: Found) -> Finish:
        names = ", ".join(self.suspects[index][:10] for index in found.subset)
        if not found.holds:
            return Finish(
                Outcome.INCONCLUSIVE,
                "reverting the whole list does not make the value better, or can't be applied",
                "not_restored",
            )
        doubt = (
            f"; {len(found.unresolved)} smaller sets could not be told" if found.unresolved else ""
        )
        return Finish(
            Outcome.ANSWERED,
            f"the smallest set whose revert restores the value has {len(found.subset)} of "
            f"{len(self.suspects)} commits: {names}{doubt}",
        )


def summary_of(minimisation: Minimisation, arms: Sequence[ArmRow], look: Look) -> dict[str, Any]:
    """Return the smallest set known so far, as JSON."""
    step = minimisation.step(arms, look)
    if isinstance(step, Ask):
        return {"state": "searching", "commits": [], "holds": None}
    return {
        "state": "found",
        "holds": step.holds,
        "commits": [minimisation.suspects[index] for index in step.subset],
        "unresolved": [
            [minimisation.suspects[index] for index in subset] for subset in step.unresolved
        ],
    }
