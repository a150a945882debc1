"""What stands around alerts: people first, A/A runs, proofs, and series that know the rest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.alerting import Scene, SteppedRunner, scene
from tests.helpers.conducting import make_conductor, request_for

from perfbisect.alerting.desk import Desk
from perfbisect.alerting.following import follow
from perfbisect.alerting.self_checks import pool_noise, start_due, week_of
from perfbisect.alerts import AlertSignal, raise_alert
from perfbisect.core.alert_states import AlertState, MessageEvent
from perfbisect.core.series_states import ChangeState
from perfbisect.core.states import Better, BisectionState, ChangeKind, ExperimentKind
from perfbisect.errors import BadInputError
from perfbisect.routers.alert_submission import AlertSubmitter
from perfbisect.store.alert_tables import AlertRow, AnnouncementRow, FindingRow, NoticeRow
from perfbisect.store.database import new_id, now
from perfbisect.store.series_tables import SeriesChangeRow, SeriesPointRow, SeriesRow
from perfbisect.store.tables import (
    BisectionRow,
    ExperimentRow,
    PointRow,
    RepositoryRow,
    RunRow,
)
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Scene]:
    """A scene in which nothing is conducted unless a test does."""
    with scene(tmp_path, {"strong": {5: 0.5}}, working=False) as opened:
        yield opened


def by_a_person(here: Scene, tmp_path: Path, **options: Any) -> str:
    request = request_for(here.repository, benchmark="strong", **options)
    return submit(
        here.services, request, requested_by="a person", origin="api", base_dir=tmp_path,
        allow_local=True,
    ).id  # fmt: skip


def test_people_go_first(idle: Scene, tmp_path: Path) -> None:
    """A person's bisection that comes after an alert's gets the machine until it has its answer."""
    alert = raise_alert(idle.services, idle.signal("strong"))
    idle.desk.look()
    of_alert = idle.alert(alert).bisection_id
    # Another threshold, so that neither answers the other.
    person = by_a_person(idle, tmp_path, min_effect="5%")
    runner = SteppedRunner(idle.repository, {"strong": {5: 0.5}})
    conductor = make_conductor(idle.services, ScriptedBuilder(), runner, tmp_path)
    conductor.conduct_until_finished(person)
    with idle.services.database.read() as session:
        owners = session.scalars(select(RunRow.bisection_id).order_by(RunRow.id)).all()
        assert session.get_one(BisectionRow, of_alert).outcome is None
    conductor.stop()
    # The alert's may start in the moment in which the person's has ended.
    assert owners == sorted(owners, key=lambda owner: owner != person)
    assert owners.count(of_alert) <= 1


def test_a_wheel_against_itself(idle: Scene, tmp_path: Path) -> None:
    """Once a week, and only when nothing goes on: the pool's newest wheel against itself, whose
    noise is that of the runs, and which claims no difference."""
    services = idle.services
    person = by_a_person(idle, tmp_path)
    later = now() + timedelta(minutes=20)
    assert start_due(services, later) == []
    runner = SteppedRunner(idle.repository, {"strong": {5: 0.5}})
    conductor = make_conductor(services, ScriptedBuilder(), runner, tmp_path)
    conductor.conduct_until_finished(person)
    later = now() + timedelta(minutes=20)
    assert start_due(services, now()) == []
    with services.database.write() as session:
        # What the demo measured is nobody's.
        repository = session.scalars(select(RepositoryRow)).one()
        own, repository.url = repository.url, "/data/demo-repository"
    assert start_due(services, later) == []
    with services.database.write() as session:
        session.scalars(select(RepositoryRow)).one().url = own
    (started,) = start_due(services, later)
    conductor.conduct_until_finished(started)
    conductor.stop()
    assert start_due(services, later + timedelta(minutes=20)) == []
    with services.database.read() as session:
        row = session.get_one(ExperimentRow, started)
        wheels = set(
            session.scalars(select(PointRow.wheel_id).where(PointRow.experiment_id == started))
        )
        (noise,) = pool_noise(session)
    assert row.priority < 0
    assert len(wheels) == 1
    assert (noise.pool, noise.answered, noise.false_alarms) == ("default", 1, 0)
    assert noise.runs >= 16
    # The runner's noise is 0.5%: sixteen runs tell it to within a factor that holds for any seed.
    assert noise.noise is not None
    assert 0.001 < noise.noise < 0.02


def test_weeks_are_iso_weeks() -> None:
    """The first days of a year may belong to the last week of the one before."""
    assert week_of(datetime(2027, 1, 3, tzinfo=UTC)) == "2026-W53"


def test_a_proof_is_told_once(idle: Scene) -> None:
    """When the proof of a known culprit ends well, everybody who heard of the culprit hears of it;
    looking again tells nothing more."""
    services = idle.services
    alert = raise_alert(services, idle.signal("strong"))
    idle.desk.look()
    with services.database.write() as session:
        row = session.get_one(AlertRow, alert)
        bisection = session.get_one(BisectionRow, row.bisection_id)
        culprit = {"commits": ["abc"], "proof": {"verdict": "proven by revert"}}
        bisection.verdict = {"culprits": [culprit], "sentence": "abc did it"}
        finding = FindingRow(
            id=new_id(), origin="framework", commits_digest="1", commits=["abc"],
            bisection_id=bisection.id, found_at=now(),
        )  # fmt: skip
        session.add(finding)
        session.add(
            ExperimentRow(
                id=new_id(), kind=ExperimentKind.PROVE, bisection_id=bisection.id,
                state=BisectionState.FINISHED, finished_at=now(), request={}, request_digest="1",
                repository_id=bisection.repository_id, recipe_digest=bisection.recipe_digest,
                benchmark_digest=bisection.benchmark_digest, recipe={}, benchmark={}, policy={},
                plan={}, requested_by="alerts", origin="bisection", created_at=now(),
                active_seconds=0.0,
            )
        )  # fmt: skip
        session.flush()
        row.finding_id = finding.id
        row.state = AlertState.EXPLAINED
    for _ in range(2):
        follow(services, idle.desk.config, AlertSubmitter(services))
    with services.database.read() as session:
        told = session.scalars(
            select(AnnouncementRow.key).where(AnnouncementRow.event == MessageEvent.PROVEN)
        ).all()
        assert session.get_one(FindingRow, finding.id).proven_at is not None
    assert told == [f"proven:{finding.id}"]


def add_series(here: Scene, policy: dict[str, Any]) -> None:
    """Store a series with one confirmed change between the ends of the history."""
    shas = here.repository.shas
    moment = now()
    with here.services.database.write() as session:
        series = SeriesRow(
            id=new_id(), name="strong-nightly", benchmark="strong", better=Better.HIGHER,
            repository=str(here.repository.path), recipe="scripted", pool="default",
            detection={}, policy=policy, defined_by="points", created_at=moment,
        )  # fmt: skip
        session.add(series)
        session.flush()
        points = []
        for day, sha, value in ((1, shas[0], 9000.0), (2, shas[-1], 4500.0)):
            points.append(
                SeriesPointRow(
                    id=new_id(), series_id=series.id, night=date(2026, 11, day), value=value,
                    commits={str(here.repository.path): sha}, runs=1, run_values=[value],
                    source="api", measured_at=moment, received_at=moment,
                )
            )  # fmt: skip
        session.add_all(points)
        session.flush()
        session.add(
            SeriesChangeRow(
                id=new_id(), series_id=series.id, state=ChangeState.CONFIRMED,
                kind=ChangeKind.REGRESSION, last_good_night=date(2026, 11, 1),
                first_bad_night=date(2026, 11, 2), good_point_id=points[0].id,
                bad_point_id=points[1].id, suspected_night=date(2026, 11, 2), probability=0.999,
                before=9000.0, before_low=8900.0, before_high=9100.0, after=4500.0,
                after_low=4400.0, after_high=4600.0, change=-0.5, change_low=-0.51,
                change_high=-0.49, created_at=moment,
            )
        )  # fmt: skip


def test_a_series_knows_the_rest(idle: Scene) -> None:
    """An alert from outside that names a series gets its benchmark, repository and newest range."""
    add_series(idle, {})
    signal = AlertSignal(
        source="generic", fingerprint="x", started_at=now(), series="strong-nightly"
    )
    alert = raise_alert(idle.services, signal)
    idle.desk.look()
    row = idle.alert(alert)
    shas = idle.repository.shas
    assert (row.state, row.good, row.bad) == (AlertState.BISECTING, shas[0], shas[-1])
    assert row.change == -0.5


@pytest.mark.parametrize(
    ("policy", "state", "words"),
    [
        ({"start": "never"}, AlertState.DISMISSED, "nothing to be done"),
        ({"start": "ask"}, AlertState.HELD, "asks before"),
        ({"strat": "ask"}, AlertState.HELD, "strat"),
    ],
)
def test_a_series_own_policy_counts(
    idle: Scene, policy: dict[str, Any], state: AlertState, words: str
) -> None:
    """Opting out, asking, and a policy that can't be read: each says what it does."""
    add_series(idle, policy)
    alert = raise_alert(idle.services, idle.signal("strong", series="strong-nightly"))
    idle.desk.look()
    row = idle.alert(alert)
    assert row.state is state
    assert words in row.reason


def test_a_series_nobody_knows_is_held(idle: Scene) -> None:
    """A misspelt series is not overlooked."""
    alert = raise_alert(idle.services, idle.signal("strong", series="stronk-nightly"))
    idle.desk.look()
    assert "stronk-nightly" in idle.alert(alert).reason


def test_a_file_that_became_wrong_changes_nothing(idle: Scene, tmp_path: Path) -> None:
    """While perfbisect.toml can't be read, the old rules go on; a new desk refuses it."""
    old = idle.desk.config
    (tmp_path / "perfbisect.toml").write_text("[alerts]\ngroup_wiat = '1m'\n")
    assert idle.desk.config == old
    with pytest.raises(BadInputError, match="group_wiat"):
        Desk(idle.services, AlertSubmitter(idle.services))


def test_old_deliveries_are_forgotten_and_alerts_are_not(idle: Scene) -> None:
    """After 90 days only the alert itself tells how often it was told."""
    alert = raise_alert(idle.services, idle.signal("strong"))
    raise_alert(idle.services, idle.signal("strong"))
    idle.clock.ahead = timedelta(days=91)
    idle.desk.look()
    with idle.services.database.read() as session:
        assert session.scalars(select(NoticeRow)).all() == []
    assert idle.alert(alert).notices == 2


def test_a_killed_desk_submits_nothing_twice(idle: Scene) -> None:
    """A desk that dies after submitting and before noting so finds its bisection again."""
    submitter = AlertSubmitter(idle.services)
    alert = raise_alert(idle.services, idle.signal("strong"))

    class Dies(AlertSubmitter):
        """Submits, and is killed before it can say so."""

        def bisection(self, request: Any, key: str, priority: int) -> str:
            submitter.bisection(request, key, priority)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Desk(idle.services, Dies(idle.services)).look()
    assert idle.alert(alert).bisection_id is None
    idle.desk.look()
    with idle.services.database.read() as session:
        (row,) = session.scalars(select(BisectionRow)).all()
    assert idle.alert(alert).bisection_id == row.id
