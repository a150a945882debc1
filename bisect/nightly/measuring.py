"""Measuring nights here: what a night was made of becomes an arm of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.arms import PreparedArm, insert_arm, prepare_arm
from perfbisect.axes import PUBLISHED, published_on
from perfbisect.companions import resolve_at
from perfbisect.core.recipe import digest_of
from perfbisect.core.revision import Revision
from perfbisect.core.states import BisectionState, ExperimentKind
from perfbisect.definitions import (
    Definitions,
    Measured,
    find_benchmark,
    find_definitions,
    put_files,
    store_benchmark,
    store_definitions,
    store_recipe,
)
from perfbisect.errors import BadInputError
from perfbisect.history import open_mirror
from perfbisect.isolation import require_isolation
from perfbisect.nightly.definitions import repository_name
from perfbisect.packages import Published, index_access, published_version
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.database import new_id, now
from perfbisect.store.jobs import experiment
from perfbisect.store.published import store_published
from perfbisect.store.series_tables import SeriesPointRow, SeriesRow
from perfbisect.store.tables import ExperimentRow

#: Who asks for what a series measures.
REQUESTED_BY = "nightly"
#: Priority of what a series measures (see ``Conducted.priority``).
BEHIND = -10


@dataclass(frozen=True, slots=True)
class NightBuild:
    """What is measured for a night: a commit to build, or a published wheel."""

    #: For people, e.g. ``night 2019-09-14``.
    name: str
    #: Commit of the series' repository, or version of its package.
    revision: str
    #: Runs that are wanted, compared or not; 0: as many as the comparison needs.
    runs: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """Arms with what they are built by and measured with."""

    measured: Measured
    arms: tuple[PreparedArm, ...]
    wheels: Mapping[int, Published] = field(default_factory=dict)
    #: Digest, name and definition of where published wheels come from.
    origin: tuple[str, str, dict[str, Any]] | None = None


def can_measure(series: SeriesRow) -> bool:
    """Return whether this series says what it takes to measure a night here."""
    made = series.package or (series.repository and series.recipe)
    return bool(series.benchmark and made)


def revision_of(series: SeriesRow, point: SeriesPointRow) -> str | None:
    """Return the commit, or the published version, that a point is of; None: it does not tell."""
    if series.repository and series.recipe:
        name = repository_name(series.repository)
        commits = point.commits
        for key in (series.repository, name):
            if key in commits:
                return str(commits[key])
        return str(next(iter(commits.values()))) if len(commits) == 1 else None
    if series.package:
        return point.version or point.night.isoformat()
    return None


def can_compare(series: SeriesRow, good: SeriesPointRow, bad: SeriesPointRow) -> bool:
    """Return whether two nights can be measured against each other here."""
    ends = [revision_of(series, point) for point in (good, bad)]
    return can_measure(series) and None not in ends and ends[0] != ends[1]


def start_measuring(
    services: Services,
    series: SeriesRow,
    builds: Sequence[NightBuild],
    *,
    compare: bool,
    request: Mapping[str, Any],
) -> str:
    """Store an experiment that measures these builds; return its id.

    Args:
        compare: measure all but the first against the first, interleaved; else each by itself.
        request: what is asked for, in words of the series; stored with the experiment.

    Raises:
        BadInputError: a revision or definition does not exist.
        TransientError: repository or index can't be reached.
    """
    by_package = series.package is not None and not (series.repository and series.recipe)
    plan = (
        _of_package(services, series, builds, compare)
        if by_package
        else _of_repository(services, series, builds, compare)
    )
    files = put_files(services, plan.measured)
    with services.database.write() as session:
        return _insert(session, series, plan, files, request)


def _role(build: NightBuild) -> dict[str, Any]:
    return {"kind": "night", "wanted": build.runs}


def _of_repository(
    services: Services, series: SeriesRow, builds: Sequence[NightBuild], compare: bool
) -> _Plan:
    assert series.repository is not None
    assert series.recipe is not None
    definitions = find_definitions(
        services,
        repository=series.repository,
        recipe=series.recipe,
        benchmark=series.benchmark,
        base_dir=services.settings.project_dir,
        # The series is the operator's own word: it may name a path of this machine.
        allow_local=True,
    )
    mirror = open_mirror(
        definitions.source, services.settings.mirrors_dir, fetching=services.settings.fetching
    )
    arms = tuple(
        prepare_arm(
            mirror,
            build.name,
            Revision(mirror.resolve(build.revision, "commit").sha),
            against=0 if compare and number else None,
            role=_role(build),
        )
        for number, build in enumerate(builds)
    )
    # One companion for all nights that are compared, as of the last of them.
    dated = max(mirror.commit(arm.base_sha).committed_at for arm in arms)
    return _Plan(resolve_at(services, definitions, dated, allow_local=True), arms)


def _of_package(
    services: Services, series: SeriesRow, builds: Sequence[NightBuild], compare: bool
) -> _Plan:
    assert series.package is not None
    measured = find_benchmark(series.benchmark, services.settings.project_dir)
    require_isolation(services.settings, measured.benchmark, None)
    access = index_access(services.settings.index_url)
    wheels = {
        number: published_version(series.package, build.revision, access=access, field="version")
        for number, build in enumerate(builds)
    }
    source = {"package": wheels[0].package, "index": access.url}
    definition = {"name": wheels[0].package, "kind": PUBLISHED, **source}
    arms = tuple(
        PreparedArm(
            name=build.name,
            against=0 if compare and number else None,
            revision=Revision(wheels[number].version),
            base_sha=wheels[number].version,
            tree=wheels[number].sha256,
            role=_role(build),
        )
        for number, build in enumerate(builds)
    )
    dated = max(filter(None, map(published_on, wheels.values())), default=None)
    measured = resolve_at(services, measured, dated, allow_local=True)
    return _Plan(measured, arms, wheels, (digest_of(source), wheels[0].package, definition))


def _store(
    session: Session, series: SeriesRow, plan: _Plan, files: dict[str, str]
) -> tuple[str | None, str, dict[str, Any], dict[str, Any]]:
    """Store what a night is measured by: repository, recipe's digest, recipe and benchmark."""
    if isinstance(plan.measured, Definitions):
        repository_id, recipe, benchmark = store_definitions(session, plan.measured, files)
        return repository_id, plan.measured.recipe.digest, recipe, benchmark
    if plan.origin is None:
        raise BadInputError(
            f"series '{series.name}' says neither recipe nor package", field="recipe"
        )
    benchmark = store_benchmark(session, plan.measured, files)
    recipe_digest, name, recipe = plan.origin
    store_recipe(session, recipe_digest, name, recipe)
    session.flush()
    columns = {
        number: {"tree": arm.tree, "sha": arm.base_sha} for number, arm in enumerate(plan.arms)
    }
    store_published(session, recipe_digest, plan.wheels, columns)
    return None, recipe_digest, recipe, benchmark


def _insert(
    session: Session,
    series: SeriesRow,
    plan: _Plan,
    files: dict[str, str],
    request: Mapping[str, Any],
) -> str:
    repository_id, recipe_digest, recipe, benchmark = _store(session, series, plan, files)
    row = ExperimentRow(
        id=new_id(),
        kind=ExperimentKind.TRY,
        state=BisectionState.QUEUED,
        request=dict(request),
        request_digest=digest_of({"series": series.name, **request}),
        repository_id=repository_id,
        recipe_digest=recipe_digest,
        benchmark_digest=plan.measured.benchmark_digest,
        recipe=recipe,
        benchmark=benchmark,
        policy={
            "better": series.better,
            "min_effect": series.detection["min_effect"],
            # A night whose runs keep being disturbed is given up.
            "max_runs": 3 * sum(arm.role["wanted"] for arm in plan.arms) or None,
            "max_seconds": None,
        },
        plan={},
        requested_by=REQUESTED_BY,
        origin="nightly",
        # People go first: nobody waits for a night.
        priority=BEHIND,
        created_at=now(),
        active_seconds=0.0,
    )
    session.add(row)
    session.flush()
    for position, arm in enumerate(plan.arms):
        insert_arm(session, row.id, position, arm, plan.measured.benchmark_digest)
    bisections.add_event(session, experiment(row.id), "submitted", {})
    return row.id
