"""Hosts, servers and connections die at random: each answer is right, each point is there once."""

from __future__ import annotations

import random
import time
from pathlib import Path

from sqlalchemy import func, select
from tests.helpers.chaos import Servers, World
from tests.helpers.conducting import make_repository, open_services, request_for
from tests.helpers.waiting import until

from perfbisect.core.states import WorkState
from perfbisect.store.tables import BisectionRow, PointRow, RunRow
from perfbisect.submission import submit

BISECTIONS = 20
COMMITS = 5
HOSTS = ("a", "b", "c", "d")
#: A server that is silent for this long is taken for dead, seconds.
LEASE = 2.0


def test_twenty_bisections_while_everything_dies_now_and_then(tmp_path: Path) -> None:
    """Seeded kills of hosts and of the server that conducts, and cut connections, during twenty
    bisections on four hosts: each names its culprit, no run has two points, none is under way."""
    services = open_services(tmp_path)
    repository = make_repository(tmp_path / "repository", COMMITS)
    culprit = 3

    def value(sha: str) -> float:
        return 9000.0 if repository.position(sha) < culprit else 6000.0

    ids = [
        submit(
            services,
            request_for(repository, env={"NUMBER": str(number)}),
            requested_by="chaos",
            origin="command line",
            base_dir=tmp_path,
            allow_local=True,
        ).id
        for number in range(BISECTIONS)
    ]
    rng = random.Random(20_260)
    world = World(HOSTS, value, seconds=0.02, seed=1)
    servers = Servers(services, world, LEASE)
    #: Points at which something dies, and what.
    plan = [(12 * number, rng.choice(("host", "host", "cut", "server"))) for number in range(1, 13)]
    assert {what for _, what in plan} == {"host", "cut", "server"}

    def points() -> int:
        with services.database.read() as session:
            return session.scalar(select(func.count()).select_from(PointRow)) or 0

    def open_bisections() -> int:
        with services.database.read() as session:
            found = select(func.count()).select_from(BisectionRow)
            return session.scalar(found.where(BisectionRow.state != "finished")) or 0

    servers.start()
    servers.start()
    try:
        for threshold, what in plan:
            until(
                lambda least=threshold: points() >= least or not open_bisections(),  # type: ignore[misc]
                f"{threshold} points",
            )
            if what == "host":
                host, seconds = rng.choice(HOSTS), rng.uniform(0.1, 3.0)
                until(
                    lambda: world.kill(host, seconds) or not open_bisections(),  # noqa: B023
                    f"something to do on {host}",
                    pause=0.002,
                )
            elif what == "server":
                servers.kill()
            else:
                reach = rng.choice(servers.running)[1]
                reach.cut.set()
                time.sleep(rng.uniform(0.0, 0.3))
                reach.cut.clear()
        until(lambda: not open_bisections(), "all answers", seconds=300)
    finally:
        servers.stop()
    with services.database.read() as session:
        rows = [session.get_one(BisectionRow, each) for each in ids]
        found = [row.verdict["culprits"] for row in rows if row.verdict]
        by_run = session.execute(
            select(PointRow.run_id, func.count()).group_by(PointRow.run_id)
        ).all()
        succeeded = session.scalar(
            select(func.count()).select_from(RunRow).where(RunRow.state == WorkState.SUCCEEDED)
        )
        under_way = session.scalar(
            select(func.count()).select_from(RunRow).where(RunRow.state == WorkState.RUNNING)
        )
    services.close()
    assert [row.outcome for row in rows] == ["culprits"] * BISECTIONS
    assert [[c["commits"] for c in each] for each in found] == [
        [[repository.shas[culprit]]]
    ] * BISECTIONS
    assert {count for _, count in by_run} == {1}
    assert len(by_run) == succeeded
    assert under_way == 0
    assert world.lost > 0
    assert servers.dead
