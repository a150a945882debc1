"""Own nights: the newest published wheel, or the branch's head, measured here and appended."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect.axes import published_on
from perfbisect.core.series_states import NightState
from perfbisect.core.states import BisectionState
from perfbisect.definitions import find_definitions
from perfbisect.errors import BadInputError, ConflictError, PerfbisectError, TransientError
from perfbisect.git.log import read_commits
from perfbisect.git.process import Git
from perfbisect.history import open_mirror
from perfbisect.nightly.definitions import find_series, repository_name, runs_of, trigger_of
from perfbisect.nightly.measuring import NightBuild, can_measure, start_measuring
from perfbisect.nightly.points import NightPoint, store_points
from perfbisect.packages import index_access, published_around
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.series_tables import SeriesNightRow, SeriesPointRow, SeriesRow
from perfbisect.store.tables import ExperimentRow, PointRow

log = logging.getLogger(__name__)

#: Missed nights that are caught up, at most: older ones are history.
MOST_MISSED = 7
#: How the reason of a night begins that failed for want of a network, and is tried again.
_UNREACHABLE = "unreachable: "
#: Time until such a night is tried again.
_TRY_AGAIN = timedelta(minutes=10)
#: Time after which a night that never became an experiment was lost with its process.
_LOST = timedelta(hours=1)
#: How far back a published wheel of a night may be.
_OLDEST_WHEEL = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class _Build:
    """What a night is made of."""

    #: Commit or version.
    revision: str
    version: str
    commits: dict[str, str]


def run_night(services: Services, name: str, night: date | None = None) -> SeriesNightRow:
    """Start measuring a night of a series; nothing waits for it.

    A night whose build is the one measured before it is skipped, with the reason.

    Args:
        night: its day; None: today, in UTC.

    Raises:
        NotFoundError: no such series.
        BadInputError: the series does not say what to measure, or the night is in the future.
        ConflictError: the night is measured, or being measured.
        TransientError: repository or index can't be reached.
    """
    today = now().date()
    night = night or today
    if night > today:
        raise BadInputError(f"night: {night} is in the future", field="night", value=str(night))
    with services.database.read() as session:
        series = find_series(session, name)
        last = _last_point(session, series.id, night)
    if not can_measure(series):
        raise BadInputError(
            f"series '{name}' can't be measured here: it needs a benchmark, and a package or a "
            "repository with a recipe",
            field="series",
            value=name,
        )
    row = _begin(services, series, night)
    try:
        build = _build_of(services, series, night)
        if last is not None and _same(last, build):
            return _end(services, row.id, NightState.SKIPPED, f"as on {last.night}: nothing new")
        return _start(services, series, row, build)
    except TransientError as error:
        _end(services, row.id, NightState.FAILED, _UNREACHABLE + error.message)
        raise
    except PerfbisectError as error:
        return _end(services, row.id, NightState.FAILED, error.message)


def _last_point(session: Session, series_id: str, night: date) -> SeriesPointRow | None:
    return session.scalars(
        select(SeriesPointRow)
        .where(SeriesPointRow.series_id == series_id, SeriesPointRow.night < night)
        .order_by(SeriesPointRow.night.desc(), SeriesPointRow.id.desc())
        .limit(1)
    ).first()


def _same(point: SeriesPointRow, build: _Build) -> bool:
    if build.commits:
        return dict(point.commits) == build.commits
    return bool(build.version) and point.version == build.version


def _begin(services: Services, series: SeriesRow, night: date) -> SeriesNightRow:
    with services.database.write() as session:
        row = session.scalar(
            select(SeriesNightRow).where(
                SeriesNightRow.series_id == series.id, SeriesNightRow.night == night
            )
        )
        if row is None:
            row = SeriesNightRow(
                id=new_id(), series_id=series.id, night=night, created_at=now(), reason=""
            )
            session.add(row)
        elif row.state in (NightState.MEASURING, NightState.MEASURED):
            raise ConflictError(
                f"night {night} of series '{series.name}' is {row.state} already",
                field="night",
                value=str(night),
            )
        row.state = NightState.MEASURING
        row.version, row.commits, row.created_at = "", {}, now()
        row.experiment_id = row.finished_at = None
    return row


def _end(services: Services, night_id: str, state: NightState, reason: str) -> SeriesNightRow:
    with services.database.write() as session:
        row = session.get_one(SeriesNightRow, night_id)
        row.state, row.reason, row.finished_at = state, reason, now()
    return row


def _start(
    services: Services, series: SeriesRow, row: SeriesNightRow, build: _Build
) -> SeriesNightRow:
    arm = NightBuild(f"night {row.night}", build.revision, runs_of(series))
    asked: dict[str, Any] = {"series": series.name, "night": row.night.isoformat()}
    experiment_id = start_measuring(services, series, [arm], compare=False, request=asked)
    with services.database.write() as session:
        locked = session.get_one(SeriesNightRow, row.id)
        locked.experiment_id = experiment_id
        locked.version, locked.commits = build.version, dict(build.commits)
    return locked


def _build_of(services: Services, series: SeriesRow, night: date) -> _Build:
    """Return what was newest at the end of a night.

    Raises:
        BadInputError: there was nothing.
        TransientError: repository or index can't be reached.
    """
    end = datetime.combine(night, time(), UTC) + timedelta(days=1)
    if series.repository and series.recipe:
        return _head(services, series, end)
    assert series.package is not None
    access = index_access(services.settings.index_url)
    found = published_around(series.package, end - _OLDEST_WHEEL, end, access=access)
    wheels = [wheel for wheel in found.wheels if (published_on(wheel) or end) < end]
    if not wheels:
        raise BadInputError(
            f"package: {series.package} has no wheel of the month before {night} that fits here",
            field="package",
            value=series.package,
        )
    return _Build(wheels[-1].version, wheels[-1].version, {})


def _head(services: Services, series: SeriesRow, end: datetime) -> _Build:
    assert series.repository is not None
    assert series.recipe is not None
    source = find_definitions(
        services,
        repository=series.repository,
        recipe=series.recipe,
        benchmark=series.benchmark,
        base_dir=services.settings.project_dir,
        allow_local=True,
    ).source
    mirror = open_mirror(source, services.settings.mirrors_dir, fetching=services.settings.fetching)
    head = mirror.resolve(series.branch or "HEAD", "branch").sha
    before = f"--before={end.isoformat()}"
    commits = read_commits(Git(mirror.path), "--first-parent", "-n1", before, head, "--")
    if not commits:
        raise BadInputError(
            f"branch: {series.branch} has no commit before {end:%Y-%m-%d}",
            field="branch",
            value=series.branch,
        )
    sha = commits[0].sha
    return _Build(sha, sha[:12], {repository_name(series.repository): sha})


# ---------------------------------------------------------------------- what came back


def collect_nights(services: Services) -> int:
    """Append the nights whose measurement is finished; return how many ended."""
    with services.database.read() as session:
        query = select(SeriesNightRow).where(
            SeriesNightRow.state == NightState.MEASURING,
            SeriesNightRow.experiment_id.is_not(None),
        )
        rows = list(session.scalars(query.order_by(SeriesNightRow.night)))
        lost = session.scalars(
            select(SeriesNightRow.id).where(
                SeriesNightRow.state == NightState.MEASURING,
                SeriesNightRow.experiment_id.is_(None),
                SeriesNightRow.created_at < now() - _LOST,
            )
        ).all()
    for night_id in lost:
        _end(services, night_id, NightState.FAILED, _UNREACHABLE + "its process was lost")
    return len(lost) + sum(_collect(services, row) for row in rows)


def _collect(services: Services, row: SeriesNightRow) -> bool:
    with services.database.read() as session:
        experiment = session.get_one(ExperimentRow, row.experiment_id)
        if experiment.state is not BisectionState.FINISHED:
            return False
        series = session.get_one(SeriesRow, row.series_id)
        points = session.scalars(
            select(PointRow)
            .where(PointRow.experiment_id == experiment.id, PointRow.rejected == "")
            .order_by(PointRow.id)
        ).all()
        reason = _reason(experiment)
    if not points:
        _end(services, row.id, NightState.FAILED, reason)
        return True
    point = NightPoint(
        night=row.night,
        values=tuple(each.value for each in points),
        version=row.version,
        commits=row.commits,
        host=points[0].host,
        measured_at=points[0].measured_at,
    )
    store_points(services, series, [point], source="own", experiment_id=experiment.id)
    _end(services, row.id, NightState.MEASURED, f"{len(points)} runs")
    return True


def _reason(experiment: ExperimentRow) -> str:
    verdict = experiment.verdict or {}
    arms = verdict.get("arms") or [{}]
    told = (
        arms[0].get("failure") or verdict.get("reason") or (experiment.error or {}).get("message")
    )
    return str(told or f"ended: {experiment.outcome}")


# ---------------------------------------------------------------------- when


def due_nights(session: Session, series: SeriesRow, moment: datetime) -> list[date]:
    """Return the nights whose time has come and that nobody has measured, the earliest first.

    A schedule's night is the day on which it fires. Nights missed while no server ran are caught
    up, the last ones only; a series without any night begins with the newest one.
    """
    if not series.schedule:
        return []
    trigger = trigger_of(series.schedule)
    own = SeriesNightRow.series_id == series.id
    last = session.scalar(select(func.max(SeriesNightRow.night)).where(own))
    again = session.scalars(
        select(SeriesNightRow.night).where(
            own,
            SeriesNightRow.state == NightState.FAILED,
            SeriesNightRow.reason.startswith(_UNREACHABLE),
            SeriesNightRow.finished_at < moment - _TRY_AGAIN,
            SeriesNightRow.night > moment.date() - timedelta(days=MOST_MISSED),
        )
    )
    begin = moment - timedelta(days=MOST_MISSED)
    if last is not None:
        begin = max(begin, datetime.combine(last, time(), UTC) + timedelta(days=1))
    nights = sorted(again)
    fire = trigger.get_next_fire_time(None, begin)
    while fire is not None and fire <= moment:
        if fire.date() not in nights:
            nights.append(fire.date())
        fire = trigger.get_next_fire_time(fire, fire + timedelta(seconds=1))
    return nights if last is not None else nights[-1:]


def start_due_nights(services: Services, moment: datetime) -> int:
    """Start what is due in every series, one night of a series at a time; return how many."""
    with services.database.read() as session:
        scheduled = session.scalars(select(SeriesRow).where(SeriesRow.schedule != "")).all()
        due = {row.name: due_nights(session, row, moment) for row in scheduled}
    started = 0
    for name, nights in due.items():
        for night in nights:
            try:
                run_night(services, name, night)
                started += 1
            except ConflictError:
                continue
            except PerfbisectError as error:
                log.error("series %s, night %s: %s", name, night, error)
    return started
