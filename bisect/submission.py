"""From a request to a bisection that is ready to be conducted: everything is checked first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from perfbisect.axes import PreparedAxis, Progress, commit_axis, version_axis
from perfbisect.companion_axis import along, companion_axis
from perfbisect.config import recipe_from_dict
from perfbisect.core.facts import Policy
from perfbisect.core.recipe import digest_of
from perfbisect.core.states import BisectionState, Find
from perfbisect.definitions import (
    Definitions,
    Measured,
    find_benchmark,
    find_definitions,
    put_files,
    remember_repository,
    store_benchmark,
    store_definitions,
    store_recipe,
)
from perfbisect.isolation import require_isolation
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import bisection
from perfbisect.store.published import share_built, store_pinned, store_published
from perfbisect.store.submitted import find_by_key, find_unfinished
from perfbisect.store.tables import BisectionRow, CandidateRow
from perfbisect.units import parse_duration, parse_percent, parse_threshold


@dataclass(frozen=True, slots=True)
class Submitted:
    """A bisection in the database."""

    id: str
    #: An unfinished bisection of the same request was found and goes on.
    resumed: bool
    candidates: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that was found to be right, before anything is written."""

    measured: Measured
    policy: Policy
    axis: PreparedAxis
    #: By position: the benchmark there; empty: ``measured`` everywhere, as no companion moves.
    by_position: tuple[Measured, ...] = ()
    #: What is stored of companions that move, or of the one that is bisected.
    companions: dict[str, Any] | None = None
    #: Columns of a built wheel that stands for every position; None: others do.
    built: Mapping[str, Any] | None = None


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
    priority: int = 0,
) -> Submitted:
    """Check a request and store it as a bisection that is ready to be conducted.

    Args:
        requested_by: who asks: a token's name or a user's.
        origin: ``command line``, ``api``, ``form`` or ``alert``.
        idempotency_key: a second request with this key gets the first one's bisection.
        base_dir: directory of ``perfbisect.toml`` and of relative files.
        allow_local: accept repositories on this machine's disk, and files named in the request.
        resume: go on with an unfinished bisection of the same request if there is one.
        progress: told what goes on while the repository is mirrored and nightlies are read.
        priority: 0 is a person's; less is work nobody waits for (see ``Conducted.priority``).

    Raises:
        BadInputError: the request can't be right.
        ConflictError: the key was used for another request.
        TransientError: the repository or the package index can't be reached.
    """
    known = _by_key(services, request, idempotency_key)
    if known is not None:
        return known
    prepared = prepare(services, request, base_dir, allow_local, progress)
    digest = _request_digest(prepared, request)
    files = put_files(services, prepared.measured)
    with services.database.write() as session:
        if resume:
            unfinished = find_unfinished(session, BisectionRow, digest)
            if unfinished is not None:
                return Submitted(unfinished.id, True, len(prepared.axis.candidates))
        row = _insert(session, request, prepared, files, digest)
        row.requested_by = requested_by
        row.origin = origin
        row.priority = priority
        row.idempotency_key = idempotency_key
        session.flush()
        _insert_benchmarks(session, prepared, files)
        _insert_candidates(session, row.id, prepared)
        _insert_wheels(session, prepared)
        bisections.add_event(session, bisection(row.id), "submitted", {})
    return Submitted(row.id, False, len(prepared.axis.candidates))


def _by_key(services: Services, request: BisectionRequest, key: str | None) -> Submitted | None:
    with services.database.read() as session:
        row = find_by_key(session, BisectionRow, key, request.model_dump(mode="json"))
        if row is None:
            return None
        query = select(func.count()).where(CandidateRow.bisection_id == row.id)
        return Submitted(row.id, False, session.scalar(query) or 0)


def prepare(
    services: Services,
    request: BisectionRequest,
    base_dir: Path | None,
    allow_local: bool,
    progress: Progress | None,
) -> Prepared:
    """Check everything that can be checked without building, and store nothing; cheap first.

    Raises: as ``submit``.
    """
    policy = make_policy(request)
    measured = _measured(services, request, base_dir, allow_local)
    if request.bisect_companion is not None:
        found = companion_axis(
            services, request, measured, allow_local=allow_local, progress=progress
        )
    else:
        axis = (
            commit_axis(services, request, measured, progress)
            if isinstance(measured, Definitions)
            else version_axis(services, request)
        )
        found = along(services, measured, axis, allow_local=allow_local, progress=progress)
    return Prepared(
        found.measured,
        replace(policy, better=measured.benchmark.better),
        found.axis,
        found.by_position,
        found.told,
        found.built,
    )


def _measured(
    services: Services, request: BisectionRequest, base_dir: Path | None, allow_local: bool
) -> Measured:
    """Return the benchmark; with a repository, it and the recipe as well."""
    if request.repository is None or request.recipe is None:
        published = find_benchmark(request.benchmark, base_dir).with_env(request.env)
        require_isolation(services.settings, published.benchmark, None)
        return published
    found = find_definitions(
        services,
        repository=request.repository,
        recipe=request.recipe,
        benchmark=request.benchmark,
        base_dir=base_dir,
        allow_local=allow_local,
    )
    switches = {switch.value: on for switch, on in request.recipe_options.items()}
    return found.with_switches(switches).with_env(request.env)


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


def _request_digest(prepared: Prepared, request: BisectionRequest) -> str:
    measured, axis = prepared.measured, prepared.axis
    return digest_of(
        {
            "source": measured.source if isinstance(measured, Definitions) else None,
            "ends": axis.ends,
            "axis": axis.identity,
            "recipe": axis.origin.digest,
            "benchmark": measured.benchmark_digest,
            "policy": asdict(prepared.policy),
            "prove": request.prove,
            "all_parents": request.all_parents,
            "paths": list(request.paths),
            **({"carried": list(axis.carried)} if axis.carried else {}),
            **_companions_identity(prepared),
        }
    )


def _companions_identity(prepared: Prepared) -> dict[str, Any]:
    """Return what companions add to a request's identity; nothing where none moves."""
    if prepared.companions is None:
        return {}
    digests = sorted({each.benchmark_digest for each in prepared.by_position})
    return {"companions": prepared.companions, "benchmarks": digests}


def _insert(
    session: Session,
    request: BisectionRequest,
    prepared: Prepared,
    files: dict[str, str],
    digest: str,
) -> BisectionRow:
    earlier, later = prepared.axis.ends
    fix = request.find is Find.FIX
    measured, origin = prepared.measured, prepared.axis.origin
    repository_id = None
    if isinstance(measured, Definitions):
        repository_id, _, benchmark = store_definitions(session, measured, files)
    else:
        benchmark = store_benchmark(session, measured, files)
    if prepared.axis.source is not None:
        repository_id = remember_repository(session, prepared.axis.source)
    store_recipe(session, origin.digest, origin.name, origin.definition)
    session.flush()
    row = BisectionRow(
        id=new_id(),
        state=BisectionState.QUEUED,
        request=request.model_dump(mode="json"),
        request_digest=digest,
        repository_id=repository_id,
        good_sha=later if fix else earlier,
        bad_sha=earlier if fix else later,
        recipe_digest=origin.digest,
        benchmark_digest=measured.benchmark_digest,
        recipe=origin.definition,
        benchmark=benchmark,
        policy=asdict(prepared.policy),
        published=prepared.axis.published,
        build_notes=list(prepared.axis.build_notes) or None,
        companions=prepared.companions,
        requested_by="",
        origin="",
        created_at=now(),
    )
    session.add(row)
    return row


def _insert_benchmarks(session: Session, prepared: Prepared, files: Mapping[str, str]) -> None:
    """Store the benchmarks of positions that have their own."""
    for measured in {id(each): each for each in prepared.by_position}.values():
        store_benchmark(session, measured, {name: files[name] for name in measured.files})
    session.flush()


def _insert_candidates(session: Session, bisection_id: str, prepared: Prepared) -> None:
    digests = [each.benchmark_digest for each in prepared.by_position]
    session.execute(
        insert(CandidateRow),
        [
            {
                "bisection_id": bisection_id,
                "benchmark_digest": digests[position] if digests else None,
                **columns,
            }
            for position, columns in enumerate(prepared.axis.candidates)
        ],
    )


def _insert_wheels(session: Session, prepared: Prepared) -> None:
    """Store the wheels that are there without a build."""
    axis = prepared.axis
    columns = dict(enumerate(axis.candidates))
    store_published(session, axis.origin.digest, axis.wheels, columns)
    if prepared.built is not None:
        store_pinned(session, axis.origin.digest, prepared.built, axis.candidates)
    elif isinstance(prepared.measured, Definitions):
        trees = {each["tree"] for each in axis.candidates}
        built_by = recipe_from_dict(axis.origin.definition).digest
        share_built(session, axis.origin.digest, built_by, trees)
