"""Arms of experiments: revisions with changes, resolved to trees, as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.core.revision import Change, Revision
from perfbisect.errors import PerfbisectError
from perfbisect.history import Conflict, Empty, Mirror, Resolved
from perfbisect.store.tables import ArmRow


@dataclass(frozen=True, slots=True)
class PreparedArm:
    """An arm before it is stored."""

    name: str
    #: Index of the arm it is compared with; None: a reference only.
    against: int | None
    revision: Revision
    base_sha: str
    #: None: it can't be applied; ``problem`` says why.
    tree: str | None
    problem: dict[str, Any] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    role: Mapping[str, Any] = field(default_factory=dict)


def prepare_arm(
    mirror: Mirror,
    name: str,
    revision: Revision,
    *,
    against: int | None,
    env: Mapping[str, str] | None = None,
    role: Mapping[str, Any] | None = None,
    patches: Mapping[str, bytes] | None = None,
) -> PreparedArm:
    """Resolve a revision to its tree; a conflict or an empty change becomes the arm's problem.

    Raises:
        BadInputError: a commit or patch that does not exist.
    """
    base = mirror.resolve(revision.base, "base")
    found = mirror.resolve_revision(revision, patches)
    tree = found.tree if isinstance(found, Resolved) else None
    return PreparedArm(
        name=name,
        against=against,
        revision=revision,
        base_sha=base.sha,
        tree=tree,
        problem=None if isinstance(found, Resolved) else describe_problem(found),
        env=dict(env or {}),
        role=dict(role or {}),
    )


def describe_problem(found: Conflict | Empty) -> dict[str, Any]:
    """Return why a revision has no tree of its own, as JSON."""
    if isinstance(found, Empty):
        return {"kind": "empty", "change": str(found.change), "why": found.why}
    return {
        "kind": "conflict",
        "change": str(found.change),
        "files": [asdict(file) for file in found.files],
    }


def as_json(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON; moments and paths become text."""
    return {key: _plain(each) for key, each in asdict(value).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def change_for(mirror: Mirror, kind: Any, sha: str) -> Change:
    """Return a change by a commit; a merge is seen from its first parent."""
    try:
        merge = len(mirror.commit(sha).parents) > 1
    except PerfbisectError:
        merge = False
    return Change(kind, sha, 1 if merge else None)


def carried_role(carried: Sequence[Change]) -> dict[str, Any]:
    """Return the part of an arm's role that says what is carried along in it."""
    return {"carried": [str(change) for change in carried]} if carried else {}


def insert_arm(
    session: Session, experiment_id: str, position: int, arm: PreparedArm, benchmark_digest: str
) -> None:
    """Store an arm."""
    session.add(
        ArmRow(
            experiment_id=experiment_id,
            position=position,
            name=arm.name,
            against=arm.against,
            revision=str(arm.revision),
            base_sha=arm.base_sha,
            tree=arm.tree,
            env=dict(arm.env),
            benchmark_digest=benchmark_digest,
            problem=arm.problem,
            role=dict(arm.role),
        )
    )
