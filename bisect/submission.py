"""From a request to a bisection that is ready to be conducted: everything is checked first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from perfbisect.core.facts import Policy
from perfbisect.core.prior import path_weights
from perfbisect.core.recipe import digest_of
from perfbisect.core.states import BisectionState, Find
from perfbisect.definitions import Definitions, find_definitions, put_files, store_definitions
from perfbisect.errors import ConflictError
from perfbisect.git.values import Candidate
from perfbisect.history import Mirror, open_mirror
from perfbisect.requests import BisectionRequest
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import bisection
from perfbisect.store.tables import BisectionRow, CandidateRow
from perfbisect.units import parse_duration, parse_percent, parse_threshold

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A bisection in the database."""

    id: str
    #: An unfinished bisection of the same request was found and goes on.
    resumed: bool
    candidates: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request that was found to be right, before anything is written."""

    definitions: Definitions
    policy: Policy
    candidates: Sequence[Candidate]
    relations: Mapping[str, list[dict[str, Any]]]


def submit(
    services: Services,
    request: BisectionRequest,
    *,
    requested_by: str,
    origin: str,
    idempotency_key: str | None = None,
    base_dir: Path | None = None,
    allow_local: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> Submitted:
    """Check a request and store it as a bisection that is ready to be conducted.

    Args:
        requested_by: who asks: a token's name or a user's.
        origin: ``command line``, ``api``, ``form`` or ``alert``.
        idempotency_key: a second request with this key gets the first one's bisection.
        base_dir: directory of ``perfbisect.toml`` and of relative files.
        allow_local: accept repositories on this machine's disk, and files named in the request.
        resume: go on with an unfinished bisection of the same request if there is one.
        progress: told what goes on while the repository is mirrored.

    Raises:
        BadInputError: the request can't be right.
        ConflictError: the key was used for another request.
        TransientError: the repository can't be reached.
    """
    known = _by_key(services, request, idempotency_key)
    if known is not None:
        return known
    prepared = _prepare(services, request, base_dir, allow_local, progress)
    digest = _request_digest(prepared, request)
    files = put_files(services, prepared.definitions)
    with services.database.write() as session:
        if resume:
            unfinished = bisections.find_unfinished(session, digest)
            if unfinished is not None:
                return Submitted(unfinished.id, True, len(prepared.candidates))
        row = _insert(session, request, prepared, files, digest)
        row.requested_by = requested_by
        row.origin = origin
        row.idempotency_key = idempotency_key
        session.flush()
        _insert_candidates(session, row.id, prepared)
        bisections.add_event(session, bisection(row.id), "submitted", {})
    return Submitted(row.id, False, len(prepared.candidates))


def _by_key(services: Services, request: BisectionRequest, key: str | None) -> Submitted | None:
    if key is None:
        return None
    with services.database.read() as session:
        row = session.scalar(select(BisectionRow).where(BisectionRow.idempotency_key == key))
        if row is None:
            return None
        if row.request != request.model_dump(mode="json"):
            raise ConflictError(
                "this Idempotency-Key was used for another request; send a new key",
                field="Idempotency-Key",
                value=key,
            )
        positions = session.scalars(
            select(CandidateRow.position).where(CandidateRow.bisection_id == row.id)
        ).all()
        return Submitted(row.id, False, len(positions))


def _prepare(
    services: Services,
    request: BisectionRequest,
    base_dir: Path | None,
    allow_local: bool,
    progress: Progress | None,
) -> _Prepared:
    """Check everything that can be checked without building; cheap checks first."""
    policy = make_policy(request)
    definitions = find_definitions(
        services,
        repository=request.repository,
        recipe=request.recipe,
        benchmark=request.benchmark,
        base_dir=base_dir,
        allow_local=allow_local,
    )
    mirror = open_mirror(
        definitions.source, services.settings.mirrors_dir, allow_local=True, progress=progress
    )
    candidates = _candidates(mirror, request)
    return _Prepared(
        definitions=definitions,
        policy=replace(policy, better=definitions.benchmark.better),
        candidates=candidates,
        relations={
            sha: [asdict(relation) for relation in found]
            for sha, found in mirror.relations_between(
                candidates[0].sha, candidates[-1].sha
            ).items()
        },
    )


def make_policy(request: BisectionRequest) -> Policy:
    """Return what was asked for, in numbers.

    Raises:
        BadInputError: a threshold, share or duration can't be read.
    """
    threshold = share = None
    if request.threshold is not None:
        parsed = parse_threshold(request.threshold, "threshold")
        threshold, share = parsed.absolute, parsed.share
    effect = parse_percent(request.min_effect, "min_effect")
    return Policy(
        find=request.find,
        threshold=threshold,
        threshold_share=share,
        min_effect=effect,
        confidence=request.confidence,
        max_runs=request.max_runs,
        max_builds=request.max_builds,
        max_seconds=(
            parse_duration(request.max_time, "max_time") if request.max_time is not None else None
        ),
        probe=request.probe,
    )


def _candidates(mirror: Mirror, request: BisectionRequest) -> Sequence[Candidate]:
    """Return the axis, earlier end first; for ``find = fix`` the bad end is the earlier one."""
    return mirror.candidates(
        request.good,
        request.bad,
        find=request.find,
        all_parents=request.all_parents,
        paths=request.paths,
    )


def _request_digest(prepared: _Prepared, request: BisectionRequest) -> str:
    return digest_of(
        {
            "source": prepared.definitions.source,
            "ends": [prepared.candidates[0].sha, prepared.candidates[-1].sha],
            "recipe": prepared.definitions.recipe.digest,
            "benchmark": prepared.definitions.benchmark_digest,
            "policy": asdict(prepared.policy),
            "prove": request.prove,
            "all_parents": request.all_parents,
            "paths": list(request.paths),
        }
    )


def _insert(
    session: Session,
    request: BisectionRequest,
    prepared: _Prepared,
    files: dict[str, str],
    digest: str,
) -> BisectionRow:
    earlier, later = prepared.candidates[0].sha, prepared.candidates[-1].sha
    fix = request.find is Find.FIX
    definitions = prepared.definitions
    repository_id, recipe, benchmark = store_definitions(session, definitions, files)
    row = BisectionRow(
        id=new_id(),
        state=BisectionState.QUEUED,
        request=request.model_dump(mode="json"),
        request_digest=digest,
        repository_id=repository_id,
        good_sha=later if fix else earlier,
        bad_sha=earlier if fix else later,
        recipe_digest=definitions.recipe.digest,
        benchmark_digest=definitions.benchmark_digest,
        recipe=recipe,
        benchmark=benchmark,
        policy=asdict(prepared.policy),
        requested_by="",
        origin="",
        created_at=now(),
    )
    session.add(row)
    return row


def _insert_candidates(session: Session, bisection_id: str, prepared: _Prepared) -> None:
    weights = path_weights(
        [candidate.paths for candidate in prepared.candidates[1:]],
        prepared.definitions.recipe.relevance,
    )
    session.execute(
        insert(CandidateRow),
        [
            {
                "bisection_id": bisection_id,
                "position": position,
                "sha": candidate.sha,
                "tree": candidate.tree,
                "subject": candidate.subject,
                "author": candidate.author,
                "committed_at": candidate.committed_at,
                "weight": 0.0 if position == 0 else float(weights[position - 1]),
                "relations": prepared.relations.get(candidate.sha, []),
            }
            for position, candidate in enumerate(prepared.candidates)
        ],
    )
