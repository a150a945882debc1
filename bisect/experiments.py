"""From a request to an experiment ready to be conducted: every revision is resolved first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect.arms import (
    PreparedArm,
    as_json,
    carried_role,
    change_for,
    insert_arm,
    prepare_arm,
)
from perfbisect.building_notes import carry_along, make_carry
from perfbisect.companions import resolve_at
from perfbisect.core.recipe import digest_of
from perfbisect.core.revision import Action, Change, Revision, parse_revision
from perfbisect.core.states import BisectionState, ExperimentKind
from perfbisect.definitions import Definitions, find_definitions, put_files, store_definitions
from perfbisect.errors import BadInputError
from perfbisect.git.prerequisites import PickSet
from perfbisect.git.process import Progress
from perfbisect.history import Mirror, open_mirror
from perfbisect.pick_sets import pick_set_role
from perfbisect.request_models import ArmRequest, ExperimentRequest
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import experiment
from perfbisect.store.submitted import find_by_key, find_unfinished
from perfbisect.store.tables import ArmRow, ExperimentRow
from perfbisect.units import parse_duration, parse_percent

#: Seconds to look for what picks need, for somebody at a terminal and within a request.
_LONG, _SHORT = 120.0, 20.0


@dataclass(frozen=True, slots=True)
class SubmittedExperiment:
    """An experiment in the database."""

    id: str
    #: An unfinished experiment of the same request was found and goes on.
    resumed: bool
    arms: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    definitions: Definitions
    arms: tuple[PreparedArm, ...]
    policy: Mapping[str, Any]
    plan: Mapping[str, Any]
    kind: ExperimentKind


def submit_experiment(
    services: Services,
    request: ExperimentRequest,
    *,
    requested_by: str,
    origin: str,
    idempotency_key: str | None = None,
    base_dir: Path | None = None,
    allow_local: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    priority: int = 0,
    patience: float | None = None,
) -> SubmittedExperiment:
    """Check a request and store it as an experiment that is ready to be conducted.

    Args: as ``submission.submit``; and

        patience: seconds to look for what picks need; None: few within a request, more for
            somebody at a terminal.

    Raises:
        BadInputError: the request can't be right, or the reference can't be applied.
        ConflictError: the key was used for another request.
        TransientError: the repository can't be reached.
    """
    asked = request.model_dump(mode="json")
    with services.database.read() as session:
        known = find_by_key(session, ExperimentRow, idempotency_key, asked)
        if known is not None:
            return SubmittedExperiment(known.id, False, _count_arms(session, known.id))
    if patience is None:
        patience = _LONG if allow_local else _SHORT
    prepared = _prepare(services, request, base_dir, allow_local, progress, patience)
    digest = _digest(prepared)
    files = put_files(services, prepared.definitions)
    with services.database.write() as session:
        if resume:
            unfinished = find_unfinished(session, ExperimentRow, digest)
            if unfinished is not None:
                return SubmittedExperiment(unfinished.id, True, len(prepared.arms))
        row = _insert(session, prepared, files)
        row.request = asked
        row.request_digest = digest
        row.requested_by = requested_by
        row.origin = origin
        row.priority = priority
        row.idempotency_key = idempotency_key
        session.flush()
        for position, arm in enumerate(prepared.arms):
            own = prepared.definitions.with_env(arm.env)
            store_definitions(session, own, files)
            insert_arm(session, row.id, position, arm, own.benchmark_digest)
        bisections.add_event(session, experiment(row.id), "submitted", {})
    return SubmittedExperiment(row.id, False, len(prepared.arms))


def _count_arms(session: Session, experiment_id: str) -> int:
    query = select(func.count()).select_from(ArmRow).where(ArmRow.experiment_id == experiment_id)
    return session.scalar(query) or 0


def _insert(session: Session, prepared: _Prepared, files: dict[str, str]) -> ExperimentRow:
    """Add the row of an experiment; what is not known from the preparation is still to be set."""
    repository_id, recipe, benchmark = store_definitions(session, prepared.definitions, files)
    row = ExperimentRow(
        id=new_id(),
        kind=prepared.kind,
        state=BisectionState.QUEUED,
        repository_id=repository_id,
        recipe_digest=prepared.definitions.recipe.digest,
        benchmark_digest=prepared.definitions.benchmark_digest,
        recipe=recipe,
        benchmark=benchmark,
        policy=dict(prepared.policy),
        plan=dict(prepared.plan),
        created_at=now(),
        active_seconds=0.0,
    )
    session.add(row)
    return row


def _digest(prepared: _Prepared) -> str:
    return digest_of(
        {
            "source": prepared.definitions.source,
            "recipe": prepared.definitions.recipe.digest,
            "benchmark": prepared.definitions.benchmark_digest,
            "policy": dict(prepared.policy),
            "plan": dict(prepared.plan),
            "kind": prepared.kind,
            "arms": [[arm.tree, str(arm.revision), dict(arm.env)] for arm in prepared.arms],
        }
    )


def _prepare(
    services: Services,
    request: ExperimentRequest,
    base_dir: Path | None,
    allow_local: bool,
    progress: Progress | None,
    patience: float,
) -> _Prepared:
    max_seconds = parse_duration(request.max_time, "max_time") if request.max_time else None
    effect = parse_percent(request.min_effect, "min_effect")
    definitions = find_definitions(
        services,
        repository=request.repository,
        recipe=request.recipe,
        benchmark=request.benchmark,
        base_dir=base_dir,
        allow_local=allow_local,
    )
    mirror = open_mirror(
        definitions.source,
        services.settings.mirrors_dir,
        progress=progress,
        fetching=services.settings.fetching,
    )
    against = request.against or ArmRequest(base=request.arms[0].base)
    carrying = _carrying(mirror, request, against, progress)
    reference = _arm(mirror, against, None, carrying)
    reference = replace(reference, role={**reference.role, "kind": "reference"})
    if reference.tree is None:
        raise BadInputError(
            f"the reference '{reference.revision}' can't be applied: {_why(reference.problem)}",
            field="against",
            value=str(reference.revision),
        )
    # One companion for all arms, as of the reference: what differs is the repository under test.
    dated = mirror.commit(reference.base_sha).committed_at
    definitions = resolve_at(
        services, definitions, dated, allow_local=allow_local, progress=progress
    )
    policy = {
        "better": definitions.benchmark.better,
        "min_effect": effect,
        "max_runs": request.max_runs,
        "max_seconds": max_seconds,
    }
    plan: dict[str, Any] = {"carried": list(carrying.notes)} if carrying.notes else {}
    if request.minimise_reverts:
        plan |= _minimisation(mirror, request)
        return _Prepared(definitions, (reference,), policy, plan, ExperimentKind.MINIMISE_REVERTS)
    end = time.monotonic() + patience
    arms = tuple(
        _arm_or_pick_set(mirror, arm, request.with_prerequisites, carrying, end)
        for arm in request.arms
    )
    return _Prepared(definitions, (reference, *arms), policy, plan, ExperimentKind.TRY)


@dataclass(frozen=True, slots=True)
class _Carrying:
    """What an experiment carries along."""

    #: Base commit -> changes that it needs and takes.
    changes: Mapping[str, tuple[Change, ...]]
    patches: Mapping[str, bytes]
    notes: tuple[str, ...]


def _carrying(
    mirror: Mirror, request: ExperimentRequest, against: ArmRequest, progress: Progress | None
) -> _Carrying:
    """Apply what is carried along to the bases of all arms."""
    carry = make_carry(mirror, request.carry_pick, request.carry)
    if carry.changes and request.with_prerequisites:
        raise BadInputError(
            "with_prerequisites looks for what a pick needs on the commit as it is: nothing can "
            "be carried along",
            field="with_prerequisites",
            value=True,
        )
    found = [mirror.resolve(each.base, "base") for each in (against, *request.arms)]
    trees = {commit.sha: commit.tree for commit in found}
    columns = [{"sha": sha, "tree": tree} for sha, tree in trees.items()]
    carried, notes = carry_along(mirror, columns, carry, progress, among="experiment")
    return _Carrying(
        {
            sha: parse_revision(" ".join([sha, *(column.get("carried") or ())])).changes
            for sha, column in ((str(each["sha"]), each) for each in carried)
        },
        carry.patches,
        tuple(str(each["note"]) for each in notes),
    )


def _minimisation(mirror: Mirror, request: ExperimentRequest) -> dict[str, Any]:
    """Return base and suspects, newest first: the order in which reverts conflict least."""
    (arm, *more) = request.arms
    if more or arm.pick or arm.patch or not arm.revert:
        raise BadInputError(
            "minimise_reverts needs one arm with the reverts to choose from, and no other change",
            field="minimise_reverts",
            value=True,
        )
    commits = [mirror.resolve(ref, "revert") for ref in dict.fromkeys(arm.revert)]
    newest_first = sorted(commits, key=lambda commit: commit.committed_at, reverse=True)
    base = mirror.resolve(arm.base, "base")
    return {"base": base.sha, "suspects": [commit.sha for commit in newest_first]}


def _arm(
    mirror: Mirror, wanted: ArmRequest, against: int | None, carrying: _Carrying
) -> PreparedArm:
    patches = {f"patch-{number}.diff": text.encode() for number, text in enumerate(wanted.patch, 1)}
    base = mirror.resolve(wanted.base, "base").sha
    carried = carrying.changes[base]
    revision = Revision(
        base,
        (
            *carried,
            *(_change(mirror, Action.REVERT, ref) for ref in wanted.revert),
            *(_change(mirror, Action.PICK, ref) for ref in wanted.pick),
            *(Change(Action.PATCH, name) for name in patches),
        ),
    )
    return prepare_arm(
        mirror,
        wanted.name or _name(wanted),
        revision,
        against=against,
        env=wanted.env,
        role={"kind": "arm", **carried_role(carried)},
        patches={**carrying.patches, **patches},
    )


def _change(mirror: Mirror, action: Action, ref: str) -> Change:
    return change_for(mirror, action, mirror.resolve(ref, action.value).sha)


def _name(wanted: ArmRequest) -> str:
    """Return the arm as people say it."""
    words = [wanted.base]
    words += [f"revert {ref}" for ref in wanted.revert]
    words += [f"pick {ref}" for ref in wanted.pick]
    words += [f"{len(wanted.patch)} patches"] if wanted.patch else []
    words += [f"{key}={value}" for key, value in wanted.env.items()]
    return ", ".join(words)


def _arm_or_pick_set(
    mirror: Mirror, wanted: ArmRequest, with_prerequisites: bool, carrying: _Carrying, end: float
) -> PreparedArm:
    """Return the arm; where its one pick conflicts, with the smallest set that makes it apply.

    Args:
        end: when, of the monotonic clock, there is no more time to look for the set.
    """
    arm = _arm(mirror, wanted, 0, carrying)
    if not with_prerequisites:
        return arm
    conflicts = arm.problem is not None and arm.problem["kind"] == "conflict"
    if len(wanted.pick) != 1 or wanted.revert or wanted.patch:
        if not conflicts:
            return arm
        raise BadInputError(
            "with_prerequisites needs arms with one pick and no other change",
            field="with_prerequisites",
            value=True,
        )
    if not conflicts:
        return replace(arm, role=pick_set_role(None))
    left = max(end - time.monotonic(), 0.0)
    found = mirror.prerequisites(wanted.base, wanted.pick[0], max_seconds=left)
    if not isinstance(found, PickSet):
        if time.monotonic() >= end:
            raise BadInputError(
                f"with_prerequisites: what '{wanted.pick[0]}' needs on '{wanted.base}' was not "
                "found in time; 'perfbisect try --with-prerequisites' looks for longer, and names "
                "the commits to give as further picks",
                field="with_prerequisites",
                value=True,
            )
        problem = {**(arm.problem or {}), "nearest_miss": as_json(found)}
        return replace(arm, problem=problem)
    role = pick_set_role(found)
    return replace(arm, revision=found.revision, tree=found.tree, problem=None, role=role)


def _why(problem: Mapping[str, Any] | None) -> str:
    """Return a problem in words."""
    if problem is None:
        return "unknown"
    if problem["kind"] == "empty":
        return f"'{problem['change']}' changes nothing: {problem['why']}"
    files = ", ".join(file["path"] for file in problem["files"][:5])
    return f"'{problem['change']}' conflicts in {files}"
