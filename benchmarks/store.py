"""How pages and lists grow with all that was ever measured: 10^4, 10^5, 10^6 points.

    python benchmarks/store.py [sqlite|postgresql ...] [--points N,N,...]

Writes finished bisections of 100 commits with 20 runs each into one database, and measures the same
answers each time more is in it. Prints milliseconds of the processor for an answer, the server's
included, and how many times as much the last took as the first. The promise is that what shows one
bisection, or the newest of something, does not grow; totals over everything (the hosts') do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fastapi.testclient import TestClient
from sqlalchemy import select
from tests.helpers.bulk import HOSTS, write_bisection, write_copy
from tests.helpers.postgresql import server
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.services import Services
from perfbisect.store.host_health import judge_host
from perfbisect.store.tables import PointRow

COMMITS, RUNS = 99, 20
EACH = (COMMITS + 1) * RUNS
REPEATS = 15


def answers(services: Services, bisection: str) -> dict[str, str]:
    """Return name -> path of what is measured; the bisection is the first one of all."""
    with services.database.read() as session:
        query = select(PointRow).where(PointRow.bisection_id == bisection).limit(1)
        point = session.scalars(query).one()
    base = f"/bisections/{bisection}"
    return {
        "list of bisections": "/",
        "a bisection": base,
        "its chart": f"/api/v1{base}/chart",
        "its commit": f"{base}/commits/{COMMITS // 2}",
        "newest points": "/points",
        "points of a host": f"/points?host={point.host}",
        "points of a benchmark": f"/points?benchmark={point.benchmark_digest}",
        "points of a commit": f"/points?commit={point.commit_sha}",
        "rejected points": "/points?rejected=true",
        "points of no commit": "/points?commit=0000000",
        "newest wheels": "/wheels",
        "hosts": "/hosts",
    }


Clock = Callable[[], float]


def cost(clock: Clock, client: TestClient, path: str) -> float:
    """Return the milliseconds of an answer, by the processor: other programs' load counts not."""
    client.get(path)
    start = clock()
    for _ in range(REPEATS):
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
    return (clock() - start) / REPEATS * 1e3


def judging(clock: Clock, services: Services, host: str) -> float:
    """Return the milliseconds that it takes to judge a host."""
    start = clock()
    for _ in range(REPEATS):
        with services.database.write() as session:
            judge_host(session, host)
    return (clock() - start) / REPEATS * 1e3


def more(services: Services, written: list[str]) -> str:
    """Write one more bisection: a few as they are, then copies of them."""
    number = len(written)
    if number < HOSTS:
        return write_bisection(services, number, COMMITS, RUNS, days=1.0)
    return write_copy(services, written[number % HOSTS], number, COMMITS)


@contextmanager
def url_of(engine: str) -> Iterator[tuple[str, Clock]]:
    """Yield the URL of an empty database (empty: SQLite's) and a clock of what it costs."""
    with server() if engine == "postgresql" else nullcontext() as running:
        if running is None:
            yield "", time.process_time
        else:
            yield running.empty(), lambda: time.process_time() + running.cpu_seconds()


def measure(engine: str, sizes: list[int]) -> None:
    """Print what each answer costs at each size."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory, url_of(engine) as (url, clock):
        settings = settings_in(Path(directory), database_url=url)
        with opened(settings) as services, client_of(shown_app(settings)) as client:
            written: list[str] = []
            for size in sizes:
                while len(written) * EACH < size:
                    written.append(more(services, written))
                if not services.database.is_sqlite:
                    with services.database.engine.begin() as connection:
                        connection.exec_driver_sql("ANALYZE")  # as its autovacuum does
                print(f"# {engine}: {size:,} points", flush=True)
                for name, path in answers(services, written[0]).items():
                    found.setdefault(name, []).append(cost(clock, client, path))
                found.setdefault("judging a host", []).append(judging(clock, services, "gpu-0"))
    heads = " ".join(f"{size:>10,}" for size in sizes)
    print(f"{engine:<24}{heads}  last/first")
    for name, took in found.items():
        row = " ".join(f"{each:>10.1f}" for each in took)
        print(f"{name:<24}{row} {took[-1] / took[0]:>10.1f}x", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--points", default="10000,100000,1000000")
    given = parser.parse_args()
    for engine in given.engines:
        measure(engine, [int(each) for each in given.points.split(",")])


if __name__ == "__main__":
    main()
