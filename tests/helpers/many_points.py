"""More points than anybody measures in a test: written in bulk."""

from __future__ import annotations

from sqlalchemy import insert
from tests.helpers.seeding import Seed

from perfbisect.core.states import Purpose, WorkState
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import PointRow, RunRow

#: Rows of one statement.
_AT_ONCE = 20_000


def seed_points(services: Services, count: int, *, commits: int = 100) -> str:
    """Write a bisection with so many points, spread over its axis; return its id."""
    made = Seed(services, n=commits, name=f"points{count}", host=f"host{count}")
    made.submit()
    for position in range(commits + 1):
        made.build(position)
    for start in range(0, count, _AT_ONCE):
        runs, points = [], []
        for number in range(start, min(start + _AT_ONCE, count)):
            position, run = number % (commits + 1), new_id()
            measured = {
                "bisection_id": made.id, "wheel_id": made.wheels[position], "host": made.host,
                "benchmark_digest": made.benchmark_digest, "purpose": Purpose.SEARCH,
            }  # fmt: skip
            runs.append(
                {
                    "id": run, "position": position, "state": WorkState.SUCCEEDED, "owner": "",
                    "cause": "", "advice": "", "lines": [], "created_at": now(), **measured,
                }
            )  # fmt: skip
            points.append(
                {
                    "id": new_id(), "run_id": run, "commit_sha": made.sha(position),
                    "tree": made.tree(position), "recipe_digest": made.recipe_digest,
                    "value": 9000.0 + number % 97, "unit": "images/s", "within": [9000.0, 9001.0],
                    "measured_at": now(), "seconds": 41.2, "rejected": "",
                    "environment": {"driver": "418.87", "gpu": "V100", "load": 0.12}, **measured,
                }
            )  # fmt: skip
        with services.database.write() as session:
            session.execute(insert(RunRow), runs)
            session.execute(insert(PointRow), points)
    return made.id
