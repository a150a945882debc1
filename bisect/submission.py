"""From a request to a bisection that is ready to be conducted: everything is checked first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from perfbisect.config import (
    LoadedBenchmark,
    benchmark_from_dict,
    benchmark_to_dict,
    load_benchmark,
    load_recipe,
    recipe_from_dict,
    recipe_to_dict,
)
from perfbisect.core.facts import Policy
from perfbisect.core.prior import path_weights
from perfbisect.core.recipe import Benchmark, Recipe, digest_of
from perfbisect.core.states import BisectionState, Find
from perfbisect.errors import BadInputError, ConflictError, NotFoundError
from perfbisect.git.source import parse_source
from perfbisect.git.values import Candidate
from perfbisect.history import Mirror, open_mirror
from perfbisect.requests import BisectionRequest
from perfbisect.services import Services, known_repository
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import bisection
from perfbisect.store.tables import (
    BenchmarkRow,
    BisectionRow,
    CandidateRow,
    RecipeRow,
    RepositoryRow,
)
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

    source: str
    name: str
    recipe: Recipe
    benchmark: Benchmark
    #: The benchmark's files: name -> path on this machine.
    files: Mapping[str, Path]
    benchmark_digest: str
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
    # Files first: an artifact nobody refers to does no harm, a reference to nothing would.
    files = {name: services.artifacts.put(path) for name, path in prepared.files.items()}
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
    recipe = _recipe(request.recipe, base_dir)
    benchmark, files, digest = _benchmark(request.benchmark, base_dir)
    policy = Policy(**{**asdict(policy), "better": benchmark.better})
    source = _source(services, request.repository, allow_local)
    mirror = open_mirror(source, services.settings.mirrors_dir, allow_local=True, progress=progress)
    candidates = _candidates(mirror, request)
    parsed = parse_source(source, allow_local=True)
    return _Prepared(
        source=parsed.url,
        name=parsed.name.rsplit("-", 1)[0],
        recipe=recipe,
        benchmark=benchmark,
        files=files,
        benchmark_digest=digest,
        policy=policy,
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


def _recipe(given: str | dict[str, Any], base_dir: Path | None) -> Recipe:
    if isinstance(given, dict):
        return recipe_from_dict(given, "recipe")
    return load_recipe(given, base_dir).recipe


def _benchmark(
    given: str | dict[str, Any], base_dir: Path | None
) -> tuple[Benchmark, dict[str, Path], str]:
    if isinstance(given, dict):
        benchmark = benchmark_from_dict(given, "benchmark")
        if benchmark.files:
            raise BadInputError(
                "a benchmark defined in the request can't name files: give the name of one that "
                "the server knows",
                field="benchmark.files",
                value=list(benchmark.files),
            )
        return benchmark, {}, benchmark.digest({})
    loaded: LoadedBenchmark = load_benchmark(given, base_dir)
    files = {name: loaded.base_dir / name for name in loaded.files}
    return loaded.benchmark, files, loaded.digest


def _source(services: Services, repository: str, allow_local: bool) -> str:
    """Return what to mirror: a repository known by name, one that is allowed, or any if local."""
    known = known_repository(services, repository)
    if known is not None:
        return known.url
    if allow_local or repository in services.settings.allowed_repositories:
        return repository
    with services.database.read() as session:
        names = sorted(session.scalars(select(RepositoryRow.name)))
    raise NotFoundError(
        f"repository '{repository}' is not known to this server; known: "
        f"{', '.join([*names, *services.settings.allowed_repositories]) or 'none'}",
        field="repository",
        value=repository,
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
            "source": prepared.source,
            "ends": [prepared.candidates[0].sha, prepared.candidates[-1].sha],
            "recipe": prepared.recipe.digest,
            "benchmark": prepared.benchmark_digest,
            "policy": asdict(prepared.policy),
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
    recipe, benchmark = recipe_to_dict(prepared.recipe), benchmark_to_dict(prepared.benchmark)
    repository_id = _remember_repository(session, prepared)
    if session.get(RecipeRow, prepared.recipe.digest) is None:
        session.add(
            RecipeRow(
                digest=prepared.recipe.digest,
                name=prepared.recipe.name,
                definition=recipe,
                created_at=now(),
            )
        )
    if session.get(BenchmarkRow, prepared.benchmark_digest) is None:
        session.add(
            BenchmarkRow(
                digest=prepared.benchmark_digest,
                name=prepared.benchmark.name,
                definition=benchmark,
                files=files,
                created_at=now(),
            )
        )
    session.flush()
    row = BisectionRow(
        id=new_id(),
        state=BisectionState.QUEUED,
        request=request.model_dump(mode="json"),
        request_digest=digest,
        repository_id=repository_id,
        good_sha=later if fix else earlier,
        bad_sha=earlier if fix else later,
        recipe_digest=prepared.recipe.digest,
        benchmark_digest=prepared.benchmark_digest,
        recipe=recipe,
        benchmark=benchmark,
        policy=asdict(prepared.policy),
        requested_by="",
        origin="",
        created_at=now(),
    )
    session.add(row)
    return row


def _remember_repository(session: Session, prepared: _Prepared) -> str:
    known = session.scalar(select(RepositoryRow).where(RepositoryRow.url == prepared.source))
    if known is not None:
        return known.id
    name, number = prepared.name, 1
    while session.scalar(select(RepositoryRow.id).where(RepositoryRow.name == name)):
        number += 1
        name = f"{prepared.name}-{number}"
    row = RepositoryRow(id=new_id(), name=name, url=prepared.source, created_at=now())
    session.add(row)
    session.flush()
    return row.id


def _insert_candidates(session: Session, bisection_id: str, prepared: _Prepared) -> None:
    weights = path_weights(
        [candidate.paths for candidate in prepared.candidates[1:]], prepared.recipe.relevance
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
