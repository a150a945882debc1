"""What past builds and runs mean for what comes next: broken, waiting, hopeless, and their cost."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, literal, select
from sqlalchemy.orm import Session

from perfbisect.core.facts import Costs
from perfbisect.core.recipe import RecipeKind
from perfbisect.core.states import FailureKind, WorkState
from perfbisect.store.axis_benchmarks import benchmarks_of
from perfbisect.store.database import now
from perfbisect.store.jobs import JobRef
from perfbisect.store.tables import BisectionRow, BuildRow, ExperimentRow, PointRow, RunRow
from perfbisect.store.work import ACTIVE

#: Transient failures in a row of one build or one position's runs before a bisection gives up.
MAX_TRANSIENT = 4
#: Rejected points in a row before a host is called unfit.
MAX_REJECTED = 20
#: Permanent failures of a position's runs before it counts as broken: one crash may be chance.
MAX_CRASHES = 2
#: Guesses of a build's seconds until one was seen.
FIRST_BUILD_SECONDS: dict[str, float] = {
    RecipeKind.BAZEL: 3600.0,
    RecipeKind.PIP_WHEEL: 60.0,
    RecipeKind.COMMAND: 60.0,
}
#: Guess of a run's seconds until one was seen, as a share of the benchmark's timeout.
FIRST_RUN_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason to stop that the planner does not judge: mistakes and infrastructure."""

    message: str
    kind: FailureKind
    #: ``recipe`` or ``benchmark``.
    field: str
    lines: tuple[str, ...] = ()
    work_id: str = ""


def is_own(row: BuildRow | RunRow | PointRow, own: JobRef) -> bool:
    """Whether a bisection or experiment asked for this itself."""
    return row.bisection_id == own.bisection_id and row.experiment_id == own.experiment_id


def counts(build: BuildRow, own: JobRef) -> bool:
    """Whether a build was this bisection's own and came to an end."""
    return is_own(build, own) and build.state in (WorkState.SUCCEEDED, WorkState.FAILED)


def broken_positions(
    representative: Callable[[int], int],
    builds: Sequence[tuple[int, BuildRow]],
    runs: Sequence[RunRow],
    points: Sequence[tuple[int, PointRow]],
    own: JobRef,
) -> tuple[set[int], dict[int, Trouble]]:
    """Return the positions that can't be built or run, and why."""
    broken: set[int] = set()
    failures: dict[int, Trouble] = {}
    for position, build in builds:
        if build.failure_kind is FailureKind.PERMANENT:
            broken.add(position)
            failures[position] = _as_trouble(build, "recipe")
    measured: dict[int, int] = defaultdict(int)
    for position, point in points:
        measured[position] += is_own(point, own)
    crashes: dict[int, list[RunRow]] = defaultdict(list)
    for run in runs:
        if run.failure_kind is FailureKind.PERMANENT:
            crashes[representative(run.position)].append(run)
    for position, failed in crashes.items():
        enough = 1 if any(run.certain for run in failed) else MAX_CRASHES
        if len(failed) >= enough and len(failed) > measured[position]:
            broken.add(position)
            failures[position] = _as_trouble(failed[-1], "benchmark")
    return broken, failures


def under_construction(builds: Sequence[tuple[int, BuildRow]], own: JobRef) -> set[int]:
    """Return the positions being built, or waiting to be tried again after a transient failure."""
    building = {position for position, build in builds if build.state in ACTIVE}
    for position, failed in _transient(builds, own).items():
        last = failed[-1].finished_at
        if last is not None and now() < last + retry_delay(len(failed)):
            building.add(position)
    return building


def build_ages(builds: Sequence[tuple[int, BuildRow]]) -> dict[int, float]:
    """Return position -> seconds, for the builds that are going on."""
    moment = now()
    return {
        position: (moment - build.started_at).total_seconds()
        for position, build in builds
        if build.state in ACTIVE and build.started_at is not None
    }


def retry_delay(failures: int) -> timedelta:
    """Return how long to wait after this many transient failures in a row."""
    return timedelta(seconds=min(2.0**failures, 300.0))


def _transient(builds: Sequence[tuple[int, BuildRow]], own: JobRef) -> dict[int, list[BuildRow]]:
    """Return the unbroken run of transient failures at the end of each position's builds."""
    streaks: dict[int, list[BuildRow]] = defaultdict(list)
    for position, build in builds:
        if build.failure_kind is FailureKind.TRANSIENT and is_own(build, own):
            streaks[position].append(build)
        elif build.state is WorkState.SUCCEEDED:
            streaks.pop(position, None)
    return streaks


def find_trouble(
    builds: Sequence[tuple[int, BuildRow]],
    runs: Sequence[RunRow],
    points: Sequence[tuple[int, PointRow]],
    own: JobRef,
) -> Trouble | None:
    """Return why the bisection must stop, if it must: a mistake, or lasting trouble outside."""
    mistaken: list[tuple[BuildRow | RunRow, str]] = [
        *((build, "recipe") for _, build in builds if is_own(build, own)),
        *((run, "benchmark") for run in runs),
    ]
    for work, what in mistaken:
        if work.failure_kind is FailureKind.OURS:
            return _as_trouble(work, what)
    for failed in _transient(builds, own).values():
        if len(failed) >= MAX_TRANSIENT:
            return _as_trouble(failed[-1], "recipe")
    finished = sorted((run for run in runs if run.finished_at), key=_finished_at)
    streak = 0
    for run in finished:
        streak = streak + 1 if run.failure_kind is FailureKind.TRANSIENT else 0
        if streak >= MAX_TRANSIENT:
            return _as_trouble(run, "benchmark")
    return _too_many_rejected(points, own)


def _finished_at(run: RunRow) -> datetime:
    assert run.finished_at is not None
    return run.finished_at


def _too_many_rejected(points: Sequence[tuple[int, PointRow]], own: JobRef) -> Trouble | None:
    streak = 0
    for _, point in points:
        if not is_own(point, own):
            continue
        streak = streak + 1 if point.rejected else 0
        if streak >= MAX_REJECTED:
            return Trouble(
                f"host {point.host} is unfit to measure: {streak} points in a row were rejected, "
                f"the last because {point.rejected}",
                FailureKind.TRANSIENT,
                "host",
            )
    return None


def _as_trouble(work: BuildRow | RunRow, what: str) -> Trouble:
    kind = work.failure_kind or FailureKind.OURS
    message = work.cause + (f" ({work.advice})" if work.advice else "")
    return Trouble(message, kind, what, tuple(work.lines), work.id)


def costs(session: Session, row: BisectionRow | ExperimentRow) -> Costs:
    """Return the median seconds of the last builds and runs of this recipe and benchmark."""
    digests = (
        benchmarks_of(row)
        if isinstance(row, BisectionRow)
        else select(literal(row.benchmark_digest))
    )
    return expected_costs(session, row.recipe_digest, row.recipe, digests, row.benchmark)


def expected_costs(
    session: Session,
    recipe_digest: str,
    recipe: Mapping[str, Any],
    benchmark_digests: Select[str] | Sequence[str],
    benchmark: Mapping[str, Any],
) -> Costs:
    """Return the median seconds of past builds and runs; a guess where there are none.

    Args:
        recipe: and ``benchmark``: as JSON.
    """
    builds = _build_seconds(session, recipe_digest)
    runs = session.scalars(
        select(RunRow.seconds)
        .where(RunRow.benchmark_digest.in_(benchmark_digests), RunRow.state == WorkState.SUCCEEDED)
        .order_by(RunRow.id.desc())
        .limit(20)
    ).all()
    # Published wheels alone: nothing is built.
    first_build = FIRST_BUILD_SECONDS.get(str(recipe.get("kind", "")), 0.0)
    first_run = FIRST_RUN_SHARE * float(benchmark.get("timeout", 900.0))
    return Costs(build_seconds=_median(builds, first_build), run_seconds=_median(runs, first_run))


def usual_build_seconds(session: Session, recipe_digest: str) -> float | None:
    """Return the median seconds of the last builds by a recipe; None where there are none."""
    known = [each for each in _build_seconds(session, recipe_digest) if each is not None]
    return statistics.median(known) if known else None


def _build_seconds(session: Session, recipe_digest: str) -> Sequence[float | None]:
    return session.scalars(
        select(BuildRow.seconds)
        .where(BuildRow.recipe_digest == recipe_digest, BuildRow.state == WorkState.SUCCEEDED)
        .order_by(BuildRow.id.desc())
        .limit(20)
    ).all()


def _median(seconds: Sequence[float | None], default: float) -> float:
    known = [value for value in seconds if value is not None]
    return max(statistics.median(known), 1e-3) if known else default
