"""Pick sets that apply but do not build: each larger or smaller set tried is an arm.

The arm of the request is the first attempt, the smallest set that applies. Attempts are built, not
measured, until one is chosen; what comes next is ``core.growth``: a pure function of the builds so
far, so that a restart goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from perfbisect.arms import as_json, change_for, insert_arm, prepare_arm
from perfbisect.core.growth import Attempt, GaveUp, Grow, Settled, Step, Try, next_step
from perfbisect.core.revision import Action, Change, Revision, parse_revision
from perfbisect.git.prerequisites import PickSet
from perfbisect.history import Mirror, Wider
from perfbisect.jobs import Look
from perfbisect.report import plural
from perfbisect.services import Services
from perfbisect.store.tables import ArmRow, ExperimentRow, RepositoryRow
from perfbisect.work_orders import mirror_path

#: The kind of an arm that is a pick with what it needs.
KIND = "pick_set"


def pick_set_role(found: PickSet | None) -> dict[str, Any]:
    """Return the role of a request's arm that picks one fix with its prerequisites.

    Args:
        found: None: it applies by itself.
    """
    needs = found.prerequisites if found is not None else ()
    return {"kind": KIND} | ({"prerequisites": [as_json(each) for each in needs]} if needs else {})


@dataclass(frozen=True, slots=True)
class _Group:
    """The attempts for one arm of the request; the arm itself is the first."""

    arms: tuple[ArmRow, ...]
    step: Step

    @property
    def chosen(self) -> int | None:
        """Position of the arm that is the answer, and is measured if it builds."""
        if isinstance(self.step, Settled):
            return self.arms[self.step.index].position
        return self.arms[0].position if isinstance(self.step, GaveUp) else None


class PickSets:
    """The pick sets of one experiment."""

    def __init__(self, services: Services, row: ExperimentRow) -> None:
        self._services = services
        self._id = row.id
        with services.database.read() as session:
            url = session.get_one(RepositoryRow, row.repository_id).url
        self._mirror = Mirror(mirror_path(services, url))

    def only_built(
        self, arms: Sequence[ArmRow], wheels: AbstractSet[int], broken: AbstractSet[int]
    ) -> set[int]:
        """Return the positions of attempts that are not measured, or not yet."""
        return {
            arm.position
            for group in _groups(arms, wheels, broken)
            for arm in group.arms
            if arm.position != group.chosen
        }

    def advance(self, arms: Sequence[ArmRow], look: Look) -> bool:
        """Add the next attempt, or note that there is none; return whether anything was done."""
        for group in self._looked(arms, look):
            if isinstance(group.step, Grow):
                self._grow(group, group.arms[group.step.index], look)
                return True
            if isinstance(group.step, Try):
                self._add(group, group.step.members, {"why": "fewer of what came for the build"})
                return True
        return False

    def summary(self, arms: Sequence[ArmRow], look: Look) -> list[dict[str, Any]]:
        """Return what is known of each pick set that had to grow or does not build, as JSON."""
        return [
            _summary(group)
            for group in self._looked(arms, look)
            if len(group.arms) > 1 or isinstance(group.step, GaveUp)
        ]

    def _looked(self, arms: Sequence[ArmRow], look: Look) -> Iterator[_Group]:
        broken = {p for p, arm in enumerate(look.facts.arms) if arm.broken}
        return _groups(arms, set(look.wheels), broken)

    def _grow(self, group: _Group, failed: ArmRow, look: Look) -> None:
        """Look for what the failed build misses, and add the set that has it."""
        fix = _fix_of(group.arms[0])
        failure = look.failures.get(failed.position)
        lines = (failure.message, *failure.lines) if failure is not None else ()
        found = self._mirror.widen(failed.base_sha, fix, _members(failed), lines)
        if isinstance(found, Wider):
            needs = [as_json(each) for each in found.found.prerequisites]
            members = tuple(each.commit.sha for each in found.found.prerequisites)
            self._add(group, members, {"why": found.why, "prerequisites": needs})
            return
        with self._services.database.write() as session:
            row = session.get_one(ArmRow, (self._id, group.arms[0].position))
            row.role = {**row.role, "nothing_more": found.why}

    def _add(self, group: _Group, members: Sequence[str], told: Mapping[str, Any]) -> None:
        first = group.arms[0]
        changes = [change_for(self._mirror, Action.PICK, sha) for sha in members]
        needs = {
            each["commit"]["sha"]: each
            for arm in group.arms
            for each in arm.role.get("prerequisites", ())
        }
        role = {
            "kind": KIND,
            "of": first.position,
            "members": list(members),
            "prerequisites": [needs[sha] for sha in members if sha in needs],
            **told,
        }
        arm = prepare_arm(
            self._mirror,
            f"{first.name}, with {plural(len(members), 'earlier commit')} "
            f"(attempt {len(group.arms) + 1})",
            Revision(first.base_sha).then(*changes, _fix_of(first)),
            against=first.against,
            env=first.env,
            role=role,
        )
        with self._services.database.write() as session:
            count = session.scalar(
                select(func.count()).select_from(ArmRow).where(ArmRow.experiment_id == self._id)
            )
            insert_arm(session, self._id, count or 0, arm, first.benchmark_digest)


def _groups(
    arms: Sequence[ArmRow], wheels: AbstractSet[int], broken: AbstractSet[int]
) -> Iterator[_Group]:
    """Yield each pick set of the request with all its attempts."""
    for first in arms:
        # A set that does not even apply was looked for when the request came.
        if first.role.get("kind") != KIND or "of" in first.role or first.tree is None:
            continue
        mine = (first, *(arm for arm in arms if arm.role.get("of") == first.position))
        attempts = [
            Attempt(
                members=_members(arm),
                builds=_builds(arm, wheels, broken),
                applies=arm.tree is not None,
            )
            for arm in mine
        ]
        yield _Group(mine, next_step(attempts, str(first.role.get("nothing_more", ""))))


def _builds(arm: ArmRow, wheels: AbstractSet[int], broken: AbstractSet[int]) -> bool | None:
    if arm.position in wheels:
        return True
    return False if arm.tree is None or arm.position in broken else None


def _members(arm: ArmRow) -> tuple[str, ...]:
    """Return the commits picked before the fix, full SHAs."""
    return tuple(change.ref for change in parse_revision(arm.revision).changes[:-1])


def _fix_of(first: ArmRow) -> Change:
    return parse_revision(first.revision).changes[-1]


def _summary(group: _Group) -> dict[str, Any]:
    step = group.step
    built = [arm for arm in group.arms if arm.tree is not None]
    told: dict[str, Any] = {
        "arm": group.arms[0].position,
        "state": "searching",
        "measured": None,
        "sets": len(group.arms),
        "builds": len(built),
        "smallest": None,
        "why": "",
    }
    if isinstance(step, Settled):
        chosen = group.arms[step.index]
        return told | {
            "state": "settled",
            "measured": chosen.position,
            "smallest": step.smallest,
            "why": str(chosen.role.get("why", "")),
        }
    return told | ({"state": "gave_up", "why": step.why} if isinstance(step, GaveUp) else {})
