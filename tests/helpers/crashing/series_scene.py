"""Scene: nightly series whose changes are confirmed, refuted and closed; nights of all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from sqlalchemy import select, update
from tests.helpers.conducting import SmallRepository, make_repository
from tests.helpers.crashing.searching import opened_repository
from tests.helpers.crashing.world import BENCHMARK, RECIPE, Scene, SceneBuilder, unfinished

from perfbisect import series
from perfbisect.core.series_states import ChangeState, NightState
from perfbisect.errors import ConflictError
from perfbisect.nightly.points import NightPoint
from perfbisect.nightly.values import Change
from perfbisect.ports import Builder, CancelToken, Runner, RunRequest, RunSuccess
from perfbisect.services import Services
from perfbisect.store.database import now
from perfbisect.store.series_tables import SeriesNightRow

COMMITS = 30
#: Positions between which the measured benchmark is slow.
SLOW = range(20, 23)

CONFIG = """
[alerts]
self_checks = false
[alerts.policy]
start = "never"
"""
SERIES = """
[series.{name}]
benchmark = "{benchmark}"
repository = "{repository}"
recipe = "{recipe}"
runs = 3
"""
#: Series -> benchmark, recipe.
DEFINED = {
    "measured": ("slow", "scripted"),
    "calm": ("calm", "scripted"),
    "unbuildable": ("slow", "broken"),
    "nights": ("calm", "scripted"),
}
#: The day of all commits, one with the same head, and one before the first.
FULL, SAME, TOO_EARLY = date(2019, 8, 1), date(2019, 8, 2), date(2019, 7, 1)


class _NightRunner:
    """Measures a wheel by its commit's position, almost without noise."""

    def __init__(self, repository: SmallRepository) -> None:
        self._repository = repository
        self._runs = 0

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess:
        self._runs += 1
        position = self._repository.position(request.wheel.read_text().splitlines()[0])
        slow = request.benchmark.name == "slow" and position in SLOW
        value = (7600.0 if slow else 9000.0) * (1.0 + 0.002 * ((self._runs * 7) % 5 - 2))
        return RunSuccess(value, (value,), 0.01)


class Following(Scene):
    """Four series with a change each that ends in another way, and three nights measured here."""

    name = "following"

    def prepare(self) -> None:
        """Write the repository, the names and the series."""
        repository = make_repository(self.directory / "repository", COMMITS)
        text = CONFIG + "".join(RECIPE.format(name=name) for name in ("scripted", "broken"))
        text += "".join(BENCHMARK.format(name=name) for name in ("slow", "calm"))
        for name, (benchmark, recipe) in DEFINED.items():
            text += SERIES.format(
                name=name, benchmark=benchmark, recipe=recipe, repository=repository.path
            )
        (self.directory / "perfbisect.toml").write_text(text)

    def parts(self, services: Services) -> tuple[Builder, Runner]:
        """Return builds that succeed unless their recipe says otherwise, and runs by position."""
        series.sync_project(services)
        return SceneBuilder(), _NightRunner(opened_repository(self.directory / "repository"))

    def step(self, services: Services) -> None:
        """Send the next nights, and ask for nights to be measured."""
        shas = opened_repository(self.directory / "repository").shas
        low = [9000.0] * 20 + [7600.0]
        for name in ("measured", "calm", "unbuildable", "outside"):
            changes = _changes(services, name)
            if not changes:
                _record(services, name, shas, low)
        _go_on(services, shas)
        self._measure(services)

    def _measure(self, services: Services) -> None:
        """Ask for each night; once more for those that were skipped or failed."""
        # A night that a dead process began to measure is given up after an hour.
        with services.database.write() as session:
            session.execute(
                update(SeriesNightRow)
                .where(
                    SeriesNightRow.state == NightState.MEASURING,
                    SeriesNightRow.experiment_id.is_(None),
                )
                .values(created_at=now() - timedelta(hours=2))
            )
        nights = self._nights(services)
        for night, again in ((FULL, NightState.FAILED), (SAME, NightState.SKIPPED),
                             (TOO_EARLY, NightState.FAILED)):  # fmt: skip
            state = nights.get(night)
            waits = night == SAME and nights.get(FULL) is not NightState.MEASURED
            wanted = state is None or (
                state is again and not self.survived(f"night: {again.value} -> measuring")
            ) or (state is NightState.FAILED and night != TOO_EARLY)  # fmt: skip
            if wanted and not waits:
                try:
                    series.run_night(services, "nights", night)
                except ConflictError:
                    continue

    def told(self, services: Services) -> str:
        """Return every state."""
        changes = {name: states_of(services, name) for name in ENDS}
        return f"{changes} {self._nights(services)}"

    def _nights(self, services: Services) -> dict[date, NightState]:
        with services.database.read() as session:
            return {row.night: row.state for row in session.scalars(select(SeriesNightRow))}

    def is_over(self, services: Services) -> bool:
        """Return whether every change and every night is where it ends."""
        nights = self._nights(services)
        ended = {FULL: NightState.MEASURED, SAME: NightState.SKIPPED, TOO_EARLY: NightState.FAILED}
        again = all(
            self.survived(f"night: {old} -> measuring") for old in ("skipped", "failed")
        )  # fmt: skip
        return (
            nights == ended
            and again
            and all(states_of(services, name) == wanted for name, wanted in ENDS.items())
            and not unfinished(services)
        )


#: Series -> the states that its changes end in, the earliest first.
ENDS = {
    "measured": [ChangeState.CLOSED, ChangeState.CONFIRMED],
    "calm": [ChangeState.REFUTED],
    "unbuildable": [ChangeState.CONFIRMED],
    "outside": [ChangeState.REFUTED],
}


def states_of(services: Services, name: str) -> list[ChangeState]:
    """Return the states of a series' changes, the earliest first."""
    return [change.state for change in _changes(services, name)]


def _changes(services: Services, name: str) -> list[Change]:
    from perfbisect.errors import NotFoundError

    try:
        found = series.changes_of(services, name)
    except NotFoundError:
        return []
    return sorted(found, key=lambda change: change.bad.night)


def _record(services: Services, name: str, shas: Sequence[str], values: list[float]) -> None:
    """Send one night for each commit; those that are known already are no news."""
    points = [
        NightPoint(
            night=date(2019, 6, 1) + timedelta(days=position),
            value=value * (1.0 + 0.003 * ((position * 7) % 5 - 2)),
            commits={"repository": shas[position]} if name != "outside" else {},
        )
        for position, value in enumerate(values)
    ]
    series.record_points(services, name, points, source="api")


def _go_on(services: Services, shas: Sequence[str]) -> None:
    """Send further nights once a change waits for them."""
    low = [9000.0] * 20
    measured = _changes(services, "measured")
    if [each.state for each in measured] == [ChangeState.CONFIRMED]:
        _record(services, "measured", shas, [*low, *[7600.0] * 3, 9000.0])
    unbuildable = _changes(services, "unbuildable")
    # Its nights were to be measured again, and could not.
    if [(each.state, bool(each.experiment)) for each in unbuildable] == [
        (ChangeState.SUSPECTED, True)
    ]:
        _record(services, "unbuildable", shas, [*low, *[7600.0] * 4])
    if [each.state for each in _changes(services, "outside")] == [ChangeState.SUSPECTED]:
        _record(services, "outside", shas, [*low, 7600.0, *[9000.0] * 8])
