"""What the page of a bisection costs as its axis grows: 50, 500, 5,000 commits × 20 runs.

    python benchmarks/pages.py [COMMITS...]

Prints for the page, its chart and its verdict, beside ``/healthz``: processor time of an answer,
how much of it the database took, how many queries there were, and the size. The promise is that
what the page takes beside its queries is at most ten times what ``/healthz`` takes. A finished
bisection's page and chart are kept for the next reader; ``first`` is what they take when they are
not, which is also what they take while the bisection runs.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, insert
from tests.helpers.seeding import Seed, wobble
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.core.states import BisectionState, Outcome, Purpose, WorkState
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow, BuildRow, PointRow, RunRow, WheelRow

RUNS = 20
REPEATS = 15


def seed(services: Services, commits: int) -> str:
    """Write a finished bisection in which every commit was built and run 20 times."""
    made = Seed(services, n=commits, steps={commits * 2 // 3: 0.7})
    made.submit()
    builds, wheels, runs, points = [], [], [], []
    for position in range(commits + 1):
        build, wheel = new_id(), new_id()
        common = {"recipe_digest": made.recipe_digest, "tree": made.tree(position)}
        builds.append(
            {
                "id": build, "bisection_id": made.id, "commit_sha": made.sha(position),
                "state": WorkState.SUCCEEDED, "attempt": 1, "owner": "", "cause": "", "advice": "",
                "lines": [], "environment": {}, "created_at": now(), **common,
            }
        )  # fmt: skip
        wheels.append(
            {
                "id": wheel, "commit_sha": made.sha(position), "build_id": build,
                "filename": "a.whl", "sha256": "0" * 64, "size": 1, "artifact": "x",
                "created_at": now(), **common,
            }
        )  # fmt: skip
        for number in range(RUNS):
            run = new_id()
            value = made.level(position) * (1 + 0.01 * wobble(position, number))
            made.points.setdefault(position, []).append(value)
            measured = {
                "bisection_id": made.id, "wheel_id": wheel, "host": made.host,
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
                    "value": value, "unit": "images/s", "within": [], "measured_at": now(),
                    "seconds": 1.0, "environment": {"load": 0.1}, "rejected": "",
                    **measured, **common,
                }
            )  # fmt: skip
    with services.database.write() as session:
        for table, rows in ((BuildRow, builds), (WheelRow, wheels), (RunRow, runs)):
            session.execute(insert(table), rows)
        session.execute(insert(PointRow), points)
    close(made, services)
    return made.id


def close(made: Seed, services: Services) -> None:
    """Write belief and verdict."""
    step = made.n * 2 // 3
    made.believe({step: 0.999})
    with services.database.write() as session:
        row = session.get_one(BisectionRow, made.id)
        row.state, row.outcome = BisectionState.FINISHED, Outcome.CULPRITS
        culprits = [made.culprit(step - 1, step)]
        row.verdict = made.verdict(outcome=Outcome.CULPRITS, culprits=culprits)


@dataclass
class Cost:
    """What an answer costs: medians, seconds of the processor."""

    seconds: float
    database: float
    queries: int
    size: int
    compressed: int


@contextmanager
def watched(engine: Engine) -> Iterator[list[float]]:
    """Yield a list that gets the seconds of each query: execution, without reading the rows."""
    took: list[float] = []

    def before(*given: Any) -> None:
        given[4]._started = time.process_time()

    def after(*given: Any) -> None:
        took.append(time.process_time() - given[4]._started)

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    yield took
    event.remove(engine, "before_cursor_execute", before)
    event.remove(engine, "after_cursor_execute", after)


def cost(client: TestClient, path: str, *, first: bool = False) -> Cost:
    """Return what an answer costs, by the processor: another program's load does not count.

    Args:
        first: forget what is kept before each request.
    """
    seconds, database = [], []
    state: Any = client.app.state  # type: ignore[attr-defined]
    with watched(state.services.database.engine) as took:
        client.get(path)
        for _ in range(REPEATS):
            if first:
                state.kept.forget()
            took.clear()
            start = time.process_time()
            answer = client.get(path, headers={"Accept-Encoding": "identity"})
            seconds.append(time.process_time() - start)
            database.append(sum(took))
            assert answer.status_code == 200, answer.text
    small = len(gzip.compress(answer.content, 5))
    middle = statistics.median
    return Cost(middle(seconds), middle(database), len(took), len(answer.content), small)


def measure(commits: int) -> None:
    """Print the costs of one size."""
    with tempfile.TemporaryDirectory() as directory:
        settings = settings_in(Path(directory))
        with opened(settings) as services, client_of(shown_app(settings)) as client:
            bisection = seed(services, commits)
            base = f"/bisections/{bisection}"
            least = 0.0
            for name, path, first in (
                ("/healthz", "/healthz", False),
                ("page", base, False),
                ("first", base, True),
                ("chart", f"/api/v1{base}/chart", False),
                ("first", f"/api/v1{base}/chart", True),
                ("verdict", f"/api/v1{base}", False),
                ("list", "/", False),
                ("commit", f"{base}/commits/{commits // 2}", False),
            ):
                found = cost(client, path, first=first)
                own = found.seconds - found.database
                least = least or own
                print(
                    f"{commits:>7,} {name:<9} {found.seconds * 1e3:>8.1f} ms, of it "
                    f"{found.database * 1e3:>6.1f} in {found.queries:>2} queries, the rest "
                    f"{own / least:>5.1f} x /healthz {found.size / 1024:>8.1f} KiB "
                    f"{found.compressed / 1024:>6.1f} KiB gzip",
                    flush=True,
                )


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["50", "500", "5000"]:
        measure(int(argument))
