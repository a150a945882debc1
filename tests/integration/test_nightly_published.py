"""Nights that are published wheels: a real index over HTTP, real environments, tiny wheels."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.helpers.command_line import call
from tests.helpers.conducting import make_conductor
from tests.helpers.package_index import FakeIndex, serving
from tests.helpers.published import Shelf, write_project

from perfbisect import series
from perfbisect.core.series_states import ChangeState
from perfbisect.nightly.points import NightPoint
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.tables import ExperimentRow
from perfbisect.testing import ScriptedBuilder
from perfbisect.wiring import make_host_runner

FIRST = datetime(2023, 3, 1, 6, tzinfo=UTC)
#: From this night on the package is slower.
SLOW = 24
SERIES = """
[series.probe]
benchmark = "speed"
package = "probe"
runs = 2
"""


def version(night: int) -> str:
    return f"1.0.dev{FIRST + timedelta(days=night):%Y%m%d}"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """An index with nightlies of ``probe`` around a drop of a third."""
    write_project(tmp_path)
    with (tmp_path / "perfbisect.toml").open("a") as file:
        file.write(SERIES)
    with serving(FakeIndex()) as index:
        monkeypatch.setenv("PERFBISECT_INDEX_URL", f"{index.url}/simple/")
        monkeypatch.setenv("PERFBISECT_PROJECT_DIR", str(tmp_path))
        shelf = Shelf(index, tmp_path / "wheels")
        shelf.put("probedep", "1.0", datetime(2022, 1, 1, tzinfo=UTC), {"probedep.py": ""})
        for night in (SLOW - 2, SLOW - 1, SLOW):
            speed = 900.0 if night < SLOW else 600.0
            shelf.put_probe(version(night), FIRST + timedelta(days=night), speed)
        yield shelf


def test_the_newest_wheel_of_a_night_is_measured(shelf: Shelf, tmp_path: Path) -> None:
    """``nightly run`` takes what was newest that night, and skips a night without a new wheel."""
    day = (FIRST + timedelta(days=SLOW - 1)).date()
    arguments = ["nightly", "run", "probe", f"--data-dir={tmp_path}/data", "--json"]
    first = call([*arguments, f"--night={day}"], tmp_path)
    assert (first.code, first.json["state"]) == (0, "measured"), first.err
    shown = call(["nightly", "show", "probe", f"--data-dir={tmp_path}/data", "--json"], tmp_path)
    assert shown.json["last_value"] == pytest.approx(900.0, rel=0.05)
    assert shown.json["own_nights"][0]["version"] == version(SLOW - 1)
    later = call([*arguments, f"--night={day + timedelta(days=30)}"], tmp_path)
    assert later.json["state"] == "measured", later.err
    same = call([*arguments, f"--night={day + timedelta(days=31)}"], tmp_path)
    assert same.json["state"] == "skipped"


def test_two_published_nights_are_measured_again(shelf: Shelf, tmp_path: Path) -> None:
    """A drop between two nightlies is confirmed by their wheels, and the alert names versions."""
    services = Services.open(Settings(data_dir=tmp_path / "data"))
    try:
        series.sync_project(services)
        points = [
            NightPoint(
                night=date(2023, 3, 1) + timedelta(days=night),
                value=(900.0 if night < SLOW else 600.0) * (1 + 0.003 * ((night * 7) % 5 - 2)),
                version=version(night),
            )
            for night in range(SLOW + 1)
        ]
        series.record_points(services, "probe", points, source="api")
        series.advance(services)
        with services.database.read() as session:
            (experiment_id,) = session.scalars(select(ExperimentRow.id)).all()
        conductor = make_conductor(
            services, ScriptedBuilder(), make_host_runner(services.settings), tmp_path
        )
        conductor.conduct_until_finished(experiment_id)
        conductor.stop()
        series.advance(services)
        (change,) = series.changes_of(services, "probe")
        assert (change.state, change.confirmed_by) == (ChangeState.CONFIRMED, "measured")
        with services.database.read() as session:
            (alert,) = session.scalars(select(AlertRow)).all()
        assert (alert.package, alert.good, alert.bad) == (
            "probe",
            version(SLOW - 1),
            version(SLOW),
        )
    finally:
        services.close()
