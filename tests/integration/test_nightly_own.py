"""Own nights on a real repository: built, measured, appended; and what follows from a change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.helpers.command_line import Project, call, make_project
from tests.helpers.conducting import SmallRepository, make_conductor, make_repository, open_services

from perfbisect import series
from perfbisect.core.series_states import ChangeState, NightState
from perfbisect.core.states import FailureKind, Outcome
from perfbisect.errors import BadInputError, ConflictError
from perfbisect.nightly.definitions import SeriesDefinition, define, find_series, read_project
from perfbisect.nightly.own import due_nights
from perfbisect.nightly.points import NightPoint
from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.series_tables import SeriesNightRow
from perfbisect.store.tables import ExperimentRow
from perfbisect.testing import ScriptedBuilder

SERIES = """
[series.nights]
benchmark = "{benchmark}"
repository = "{repository}"
recipe = "{recipe}"
runs = 3
schedule = "30 4 * * *"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository with 145 commits on 2019-08-01, and one on the day after."""
    made = make_project(tmp_path / "project", [9000.0] * 3)
    with (made.directory / "perfbisect.toml").open("a") as file:
        file.write(SERIES.format(benchmark="read", repository=made.repository, recipe="copy"))
    return made


def test_a_night_is_built_measured_and_appended(project: Project) -> None:
    """``nightly run`` measures the branch as it was that night, once; the next has nothing new."""
    arguments = ["nightly", "run", "nights", f"--data-dir={project.data_dir}", "--json"]
    first = call([*arguments, "--night=2019-08-01"], project.directory)
    assert (first.code, first.json["state"]) == (0, "measured"), first.err
    shown = call(
        ["nightly", "show", "nights", f"--data-dir={project.data_dir}", "--json"],
        project.directory,
    ).json
    assert shown["last_value"] == pytest.approx(9000.0, rel=0.02)
    assert shown["own_nights"][0]["version"] == project.shas[-1][:12]
    again = call([*arguments, "--night=2019-08-01"], project.directory)
    assert again.code == 2
    assert "measured already" in again.err
    next_night = call([*arguments, "--night=2019-08-02"], project.directory)
    assert (next_night.code, next_night.json["state"]) == (0, "skipped")
    before = call([*arguments, "--night=2019-07-01"], project.directory)
    assert (before.code, before.json["state"]) == (3, "failed")
    assert "no commit before" in before.json["reason"]


# ---------------------------------------------------------------------- with scripted parts


class NightRunner:
    """Measures a wheel by its commit's position, without noise to speak of."""

    def __init__(self, repository: SmallRepository, slow_from: int) -> None:
        self._repository = repository
        self._slow_from = slow_from
        self.runs = 0

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        self.runs += 1
        position = self._repository.position(request.wheel.read_text().splitlines()[0])
        value = 9000.0 if position < self._slow_from else 7600.0
        value *= 1.0 + 0.002 * ((self.runs * 7) % 5 - 2)
        return RunSuccess(value, (value,), 0.01)


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    return make_repository(tmp_path / "code", 40)


@pytest.fixture
def services(
    tmp_path: Path, repository: SmallRepository, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Services]:
    monkeypatch.setenv("PERFBISECT_PROJECT_DIR", str(tmp_path))
    opened = open_services(tmp_path)
    with (tmp_path / "perfbisect.toml").open("a") as file:
        file.write(
            SERIES.format(benchmark="scripted", repository=repository.path, recipe="scripted")
        )
    series.sync_project(opened)
    yield opened
    opened.close()


def nights(repository: SmallRepository, values: list[float]) -> list[NightPoint]:
    """Return one night for every commit."""
    return [
        NightPoint(
            night=date(2019, 7, 1 + position),
            value=value * (1.0 + 0.003 * ((position * 7) % 5 - 2)),
            commits={"code": repository.shas[position]},
        )
        for position, value in enumerate(values)
    ]


def conduct(
    services: Services, runner: NightRunner, tmp_path: Path, builder: ScriptedBuilder
) -> None:
    """Conduct every experiment that is there."""
    conductor = make_conductor(services, builder, runner, tmp_path)
    with services.database.read() as session:
        ids = list(session.scalars(select(ExperimentRow.id)))
    for experiment_id in ids:
        conductor.conduct_until_finished(experiment_id)
    conductor.stop()


def test_a_drop_is_measured_again_before_anybody_is_told(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """The last good and the first bad night are measured, interleaved; then there is an alert."""
    points = nights(repository, [9000.0] * 20 + [7600.0])
    series.record_points(services, "nights", points, source="api")
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    (change,) = series.changes_of(services, "nights")
    assert change.state is ChangeState.CONFIRMING
    with services.database.read() as session:
        assert session.scalars(select(AlertRow)).all() == []
    runner = NightRunner(repository, slow_from=20)
    conduct(services, runner, tmp_path, ScriptedBuilder())
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    (change,) = series.changes_of(services, "nights")
    assert (change.state, change.confirmed_by) == (ChangeState.CONFIRMED, "measured")
    assert runner.runs >= 8
    with services.database.read() as session:
        (alert,) = session.scalars(select(AlertRow)).all()
    assert (alert.good, alert.bad) == (repository.shas[19], repository.shas[20])
    assert alert.fingerprint == change.id
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    with services.database.read() as session:
        assert len(session.scalars(select(AlertRow)).all()) == 1


def test_what_does_not_happen_again_is_refuted_and_nobody_is_told(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """Where the two nights do not differ when measured again, there is no alert, now or later."""
    points = nights(repository, [9000.0] * 20 + [7600.0] + [9000.0] * 3)
    series.record_points(services, "nights", points[:21], source="api")
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    conduct(services, NightRunner(repository, slow_from=99), tmp_path, ScriptedBuilder())
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    series.record_points(services, "nights", points[21:], source="api")
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    (change,) = series.changes_of(services, "nights")
    assert change.state is ChangeState.REFUTED
    assert "alike" in change.reason
    with services.database.read() as session:
        assert session.scalars(select(AlertRow)).all() == []


def test_history_is_shown_and_nobody_is_told(
    services: Services, repository: SmallRepository
) -> None:
    """A drop that is long past when its points come, and its recovery, raise no alerts."""
    values = [9000.0] * 10 + [7600.0] * 8 + [9000.0] * 13
    series.record_points(services, "nights", nights(repository, values), source="csv")
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    states = [change.state for change in series.changes_of(services, "nights")]
    assert states == [ChangeState.CONFIRMING, ChangeState.CONFIRMED]
    with services.database.read() as session:
        assert session.scalars(select(AlertRow)).all() == []


def test_nights_that_cannot_be_built_leave_it_to_further_nights(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A re-measurement without an answer is no word against the change: two more nights are."""
    points = nights(repository, [9000.0] * 20 + [7600.0] * 4)
    series.record_points(services, "nights", points[:21], source="api")
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    broken = ScriptedBuilder(lambda request: Failure(FailureKind.PERMANENT, "error: no"))
    conduct(services, NightRunner(repository, slow_from=20), tmp_path, broken)
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    assert series.changes_of(services, "nights")[0].state is ChangeState.SUSPECTED
    for point in points[21:]:
        series.record_points(services, "nights", [point], source="api")
        series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    (change,) = series.changes_of(services, "nights")
    assert (change.state, change.confirmed_by) == (ChangeState.CONFIRMED, "nights")


def test_missed_nights_are_caught_up_but_no_more_than_a_week(services: Services) -> None:
    """A server that was down measures what it missed; one that is new begins with last night."""
    moment = datetime(2019, 9, 20, 12, tzinfo=UTC)
    with services.database.read() as session:
        row = find_series(session, "nights")
        assert due_nights(session, row, moment) == [date(2019, 9, 20)]
        assert due_nights(session, row, datetime(2019, 9, 20, 4, 29, tzinfo=UTC)) == [
            date(2019, 9, 19)
        ]
    for last, expected in ((date(2019, 9, 17), [18, 19, 20]), (date(2019, 1, 1), range(14, 21))):
        with services.database.write() as session:
            session.query(SeriesNightRow).delete()
            session.add(
                SeriesNightRow(
                    id="night",
                    series_id=row.id,
                    night=last,
                    state=NightState.MEASURED,
                    commits={},
                    created_at=moment,
                )
            )
        with services.database.read() as session:
            due = due_nights(session, row, moment)
        assert [each.day for each in due] == list(expected)


def test_an_unreachable_night_is_due_again_after_a_while(services: Services) -> None:
    """A night that failed for want of the network is tried again; a failed build is not."""
    moment = datetime(2019, 9, 20, 12, tzinfo=UTC)
    with services.database.write() as session:
        row = find_series(session, "nights")
        for day, reason in ((19, "error: no rule"), (20, "unreachable: the network is down")):
            session.add(
                SeriesNightRow(
                    id=f"night-{day}",
                    series_id=row.id,
                    night=date(2019, 9, day),
                    state=NightState.FAILED,
                    reason=reason,
                    commits={},
                    created_at=moment,
                    finished_at=moment,
                )
            )
    with services.database.read() as session:
        assert due_nights(session, row, moment) == []
        assert due_nights(session, row, moment + timedelta(minutes=11)) == [date(2019, 9, 20)]


def test_a_night_that_fails_says_why_and_can_be_asked_for_again(
    services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """A build that fails makes a failed night with its reason, and no point."""
    series.run_night(services, "nights", date(2019, 8, 1))
    with pytest.raises(ConflictError, match="measuring already"):
        series.run_night(services, "nights", date(2019, 8, 1))
    broken = ScriptedBuilder(lambda request: Failure(FailureKind.PERMANENT, "error: no rule"))
    conduct(services, NightRunner(repository, 99), tmp_path, broken)
    series.advance(services, datetime(2019, 7, 1, tzinfo=UTC))
    with services.database.read() as session:
        (night,) = session.scalars(select(SeriesNightRow)).all()
        experiment = session.get_one(ExperimentRow, night.experiment_id)
    assert (night.state, experiment.outcome) == (NightState.FAILED, Outcome.ANSWERED)
    assert "no rule" in night.reason
    assert series.run_night(services, "nights", date(2019, 8, 1)).state is NightState.MEASURING


def test_series_that_say_too_little_cannot_be_measured(services: Services) -> None:
    """A series without benchmark takes points from outside only, and says so."""
    define(services, "outside", SeriesDefinition())
    with pytest.raises(BadInputError, match="needs a benchmark"):
        series.run_night(services, "outside")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('schedule = "soon"', "no cron expression"),
        ('min_effect = "200%"', "min_effect"),
        ("false_alarms = 100", "false_alarms"),
        ("nope = 1", "unknown key 'nope'"),
        ('better = "left"', "better"),
    ],
)
def test_wrong_definitions_name_the_key(tmp_path: Path, line: str, named: str) -> None:
    """What is wrong in [series.NAME] is told with the file, the series and the key."""
    (tmp_path / "perfbisect.toml").write_text(f"[series.a]\n{line}\n")
    with pytest.raises(BadInputError, match=named) as caught:
        read_project(tmp_path)
    assert "series 'a'" in caught.value.message
