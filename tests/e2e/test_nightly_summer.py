"""The summer of 2019, night after night: alerts on the right days, and who was to blame."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.helpers.conducting import make_conductor, open_services
from tests.helpers.nightly import (
    StoryRunner,
    Summer,
    points_of,
    settle,
    store_wheels,
    tell_summer,
)
from tests.helpers.seed_repository import STORY, SeedRepository, generate

from perfbisect import series
from perfbisect.alerting.desk import Desk
from perfbisect.core.series_states import ChangeState
from perfbisect.core.states import FailureKind
from perfbisect.ports import BuildRequest, Failure
from perfbisect.routers.alert_submission import AlertSubmitter
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.tables import BisectionRow
from perfbisect.testing import ScriptedBuilder

NAME = "resnet50-nightly"
DEFINITION = """
[alerts]
group_wait = "0s"

[series.resnet50-nightly]
benchmark = "scripted"
repository = "{repository}"
recipe = "scripted"
policy = {{prove = false, budget_per_day = 100}}
"""


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> SeedRepository:
    return generate(tmp_path_factory.mktemp("seed") / "tensorflow")


@pytest.fixture
def services(
    tmp_path: Path, seed: SeedRepository, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Services]:
    monkeypatch.setenv("PERFBISECT_PROJECT_DIR", str(tmp_path))
    opened = open_services(tmp_path)
    with (tmp_path / "perfbisect.toml").open("a") as file:
        file.write(DEFINITION.format(repository=seed.path))
    yield opened
    opened.close()


def replay(services: Services, summer: Summer, tmp_path: Path) -> dict[str, date]:
    """Let every night come in turn; return the day on which each change was confirmed."""
    broken = {summer.shas[position] for position in summer.story.broken}

    def fails(request: BuildRequest) -> Failure | None:
        if request.commit in broken:
            return Failure(FailureKind.PERMANENT, "error: no rule to build this")
        return None

    runner = StoryRunner(dict(zip(summer.shas, summer.story.levels, strict=True)))
    conductor = make_conductor(services, ScriptedBuilder(fails), runner, tmp_path)
    desk = Desk(services, AlertSubmitter(services))
    confirmed: dict[str, date] = {}
    try:
        for point in points_of(summer):
            series.record_points(services, NAME, [point], source="api")
            settle(services, conductor, desk)
            for change in series.changes_of(services, NAME):
                if change.confirmed_at is not None:
                    confirmed.setdefault(change.id, point.night)
    finally:
        conductor.stop()
    return confirmed


def test_two_drops_and_two_recoveries_each_lead_to_their_culprit(
    services: Services, seed: SeedRepository, tmp_path: Path
) -> None:
    """Four changes are confirmed on the night that shows them, and each is bisected once."""
    series.sync_project(services)
    summer = tell_summer(services, seed)
    store_wheels(services, summer, tmp_path)
    confirmed = replay(services, summer, tmp_path)

    changes = series.changes_of(services, NAME)[::-1]
    real = [change for change in changes if change.id in confirmed]
    kinds = [change.kind.value for change in real]
    assert kinds == ["regression", "recovery", "regression", "recovery"]
    # Each is seen, measured again and confirmed on the first night at or after its commit.
    for change, step in zip(real, summer.story.steps, strict=True):
        first = next(day for day, position in summer.nights if position >= step)
        assert change.bad.night == first
        assert confirmed[change.id] == first
        assert change.confirmed_by == "measured"
    last = real[-1]
    assert last.remaining == pytest.approx(8400 / 9000 - 1, abs=0.02)
    assert "below July" in last.reason
    assert [change.state for change in real] == [
        ChangeState.CONFIRMED, ChangeState.CONFIRMED, ChangeState.CLOSED, ChangeState.CONFIRMED,
    ]  # fmt: skip

    with services.database.read() as session:
        alerts = session.scalars(select(AlertRow).order_by(AlertRow.started_at)).all()
        bisections = {row.id: row for row in session.scalars(select(BisectionRow))}
    assert len(alerts) == len(bisections) == 4
    culprits = [
        [
            culprit["commits"]
            for culprit in (bisections[str(alert.bisection_id)].verdict or {})["culprits"]
        ]
        for alert in alerts
    ]
    assert culprits == [[[seed.sha(original)]] for original in STORY]
