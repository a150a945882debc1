"""Many finished bisections with many points, written in bulk, straight into the tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, text
from tests.helpers.seeding import Seed, fake_sha, wobble

from perfbisect.core.states import BisectionState, Outcome, Purpose, WorkState
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow, BuildRow, PointRow, RunRow, WheelRow

#: Hosts that measure in turn, and repositories and benchmarks that are measured.
HOSTS = NAMES = 10
#: Columns of runs and points that a copy shares with what it is a copy of.
_RUN = "position, purpose, state, owner, cause, advice, lines, certain, created_at"
_POINT = "recipe_digest, purpose, value, unit, within, measured_at, seconds, environment, rejected"
_Rows = list[dict[str, Any]]


class _Many(Seed):
    """One of many bisections of a repository: its commits are its own."""

    def sha(self, position: int) -> str:
        return fake_sha(self.id, position)

    def tree(self, position: int) -> str:
        return fake_sha(self.id, "tree", position)


def write_bisection(
    services: Services, number: int, commits: int, runs: int, *, days: float = 0.0
) -> str:
    """Write a finished bisection in which every commit was built, and run so often; return its id.

    Args:
        days: how long ago it was.
    """
    made = _submitted(services, number, commits)
    builds, wheels, ran, points = _rows(made, commits, runs, days)
    with services.database.write() as session:
        tables = ((BuildRow, builds), (WheelRow, wheels), (RunRow, ran), (PointRow, points))
        for table, rows in tables:
            if rows:
                session.execute(insert(table), rows)
    if runs:
        _close(made)
    return made.id


def _submitted(services: Services, number: int, commits: int) -> Seed:
    made = _Many(
        services,
        n=commits,
        name=f"framework-{number % NAMES}",
        host=f"gpu-{number % HOSTS}",
        steps={commits * 2 // 3: 0.7},
    )
    made.submit()
    return made


def write_copy(services: Services, template: str, number: int, commits: int) -> str:
    """Write a bisection with another's builds, runs and points under ids of its own.

    The database copies the rows: ten times as quick as to write them.

    Args:
        template: bisection that ``write_bisection`` wrote, of as many commits.
        number: from 1 on, another one each time.
    """
    made = _submitted(services, number, commits)
    # Behind every id that is made by time.
    new = f"02{number:06d}"
    values = {"new": new, "made": made.id, "template": template, "host": made.host}
    values["benchmark"] = made.benchmark_digest
    with services.database.write() as session:
        old = session.scalars(select(WheelRow).join(BuildRow).where(
            BuildRow.bisection_id == template
        ).order_by(WheelRow.id)).all()  # fmt: skip
        builds, wheels = _Table(), _Table()
        for position, wheel in enumerate(old):
            common = {
                "recipe_digest": made.recipe_digest, "tree": made.tree(position),
                "commit_sha": made.sha(position),
            }  # fmt: skip
            build = f"{new}{str(wheel.build_id)[8:]}"
            builds.add(
                id=build, bisection_id=made.id, state=WorkState.SUCCEEDED, attempt=1, owner="",
                cause="", advice="", lines=[], environment={}, created_at=now(), **common,
            )  # fmt: skip
            wheels.add(
                id=f"{new}{wheel.id[8:]}", build_id=build, filename="a.whl", sha256="0" * 64,
                size=1, artifact="x", created_at=now(), **common,
            )  # fmt: skip
        session.execute(insert(BuildRow), builds.rows)
        session.execute(insert(WheelRow), wheels.rows)
        session.execute(
            text(
                "INSERT INTO runs (id, bisection_id, wheel_id, benchmark_digest, host, "
                f"{_RUN}) SELECT :new || substr(id, 9), :made, :new || substr(wheel_id, 9), "
                f":benchmark, :host, {_RUN} FROM runs WHERE bisection_id = :template"
            ),
            values,
        )
        columns = ", ".join(f"p.{name.strip()}" for name in _POINT.split(","))
        session.execute(
            text(
                "INSERT INTO points (id, run_id, bisection_id, wheel_id, tree, commit_sha, "
                f"benchmark_digest, host, {_POINT}) SELECT :new || substr(p.id, 9), "
                ":new || substr(p.run_id, 9), :made, w.id, w.tree, w.commit_sha, :benchmark, "
                f":host, {columns} FROM points p JOIN wheels w ON w.id = :new || "
                "substr(p.wheel_id, 9) WHERE p.bisection_id = :template"
            ),
            values,
        )
    return made.id


def _rows(made: Seed, commits: int, runs: int, days: float) -> tuple[_Rows, _Rows, _Rows, _Rows]:
    builds, wheels, ran, points = _Table(), _Table(), _Table(), _Table()
    moment = now() - timedelta(days=days)
    for position in range(commits + 1):
        build, wheel = new_id(), new_id()
        common = {
            "recipe_digest": made.recipe_digest, "tree": made.tree(position),
            "commit_sha": made.sha(position),
        }  # fmt: skip
        builds.add(
            id=build, bisection_id=made.id, state=WorkState.SUCCEEDED, attempt=1, owner="",
            cause="", advice="", lines=[], environment={}, created_at=moment, **common,
        )  # fmt: skip
        wheels.add(
            id=wheel, build_id=build, filename="a.whl", sha256="0" * 64, size=1, artifact="x",
            created_at=moment, **common,
        )  # fmt: skip
        for number in range(runs):
            run = new_id()
            value = made.level(position) * (1 + 0.01 * wobble(position, number))
            made.points.setdefault(position, []).append(value)
            measured = {
                "bisection_id": made.id, "wheel_id": wheel, "host": made.host,
                "benchmark_digest": made.benchmark_digest, "purpose": Purpose.SEARCH,
            }  # fmt: skip
            ran.add(
                id=run, position=position, state=WorkState.SUCCEEDED, owner="", cause="",
                advice="", lines=[], created_at=moment, **measured,
            )  # fmt: skip
            points.add(
                id=new_id(), run_id=run, value=value, unit="images/s", within=[], seconds=1.0,
                measured_at=moment, environment={"load": 0.1},
                rejected="" if number or position % 10 else "the machine slept",
                **measured, **common,
            )  # fmt: skip
    return builds.rows, wheels.rows, ran.rows, points.rows


class _Table:
    """Rows of one table."""

    def __init__(self) -> None:
        self.rows: _Rows = []

    def add(self, **columns: Any) -> None:
        """Append one."""
        self.rows.append(columns)


def _close(made: Seed) -> None:
    """Write belief and verdict."""
    step = made.n * 2 // 3
    made.believe({step: 0.999})
    with made.services.database.write() as session:
        row = session.get_one(BisectionRow, made.id)
        row.state, row.outcome = BisectionState.FINISHED, Outcome.CULPRITS
        row.finished_at = row.created_at
        culprits = [made.culprit(step - 1, step)]
        row.verdict = made.verdict(outcome=Outcome.CULPRITS, culprits=culprits)
