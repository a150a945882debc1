"""How pages and lists grow with all that was ever measured: 10^4, 10^5, 10^6 points.

    python benchmarks/store.py [sqlite|postgresql ...] [--points N,N,...]

Writes finished bisections of 100 commits with 20 runs each into one database, and measures the same
answers each time more is in it. Prints the least milliseconds of several answers, and how many
times as long the last took as the first. The promise is that what shows one bisection, or the
newest of something, does not grow; totals over everything (the hosts') do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fastapi.testclient import TestClient
from sqlalchemy import select
from tests.helpers.bulk import write_bisection
from tests.helpers.postgresql import server
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.services import Services
from perfbisect.store.host_health import judge_host
from perfbisect.store.tables import PointRow

COMMITS, RUNS = 99, 20
EACH = (COMMITS + 1) * RUNS
REPEATS = 9


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


def least(client: TestClient, path: str) -> float:
    """Return the milliseconds of the quickest of some answers."""
    took = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        answer = client.get(path)
        took.append(time.perf_counter() - start)
        assert answer.status_code == 200, answer.text
    return min(took) * 1e3


def judging(services: Services, host: str) -> float:
    """Return the milliseconds that it takes to judge a host."""
    took = []
    for _ in range(3):
        start = time.perf_counter()
        with services.database.write() as session:
            judge_host(session, host)
        took.append(time.perf_counter() - start)
    return min(took) * 1e3


@contextmanager
def url_of(engine: str) -> Iterator[str]:
    """Yield the URL of an empty database; empty: SQLite's."""
    with server() if engine == "postgresql" else nullcontext() as running:
        yield running.empty() if running is not None else ""


def measure(engine: str, sizes: list[int]) -> None:
    """Print what each answer took at each size."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory, url_of(engine) as url:
        settings = settings_in(Path(directory), database_url=url)
        with opened(settings) as services, client_of(shown_app(settings)) as client:
            written: list[str] = []
            for size in sizes:
                start = time.perf_counter()
                before = len(written)
                while len(written) * EACH < size:
                    days = 90.0 - 90.0 * len(written) * EACH / sizes[-1]
                    written.append(
                        write_bisection(services, len(written), COMMITS, RUNS, days=days)
                    )
                if not services.database.is_sqlite:
                    with services.database.engine.begin() as connection:
                        connection.exec_driver_sql("ANALYZE")  # as its autovacuum does
                rate = (len(written) - before) * EACH / (time.perf_counter() - start)
                print(f"# {engine}: {size:,} points, {rate:,.0f} written a second", flush=True)
                for name, path in answers(services, written[0]).items():
                    found.setdefault(name, []).append(least(client, path))
                found.setdefault("judging a host", []).append(judging(services, "gpu-0"))
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
