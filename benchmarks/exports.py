"""What exporting all points costs as their number grows: 10,000, 100,000, a million.

    python benchmarks/exports.py [POINTS...]

Prints for each format and number: seconds, megabytes sent, and by how much the memory of the
process grew while it was written. The promise is that memory does not grow with the rows.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import psutil
from tests.helpers.many_points import seed_points
from tests.helpers.serving import listening, opened, settings_in, shown_app

_MEGABYTE = 1024 * 1024


@contextmanager
def watching() -> Iterator[list[int]]:
    """Yield a list that gets the resident bytes of this process, twenty times a second."""
    seen: list[int] = []
    over = threading.Event()
    process = psutil.Process()

    def look() -> None:
        while not over.wait(0.05):
            seen.append(process.memory_info().rss)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def export(url: str) -> tuple[float, int, int]:
    """Return seconds, bytes and growth of an export that is thrown away as it comes."""
    before = psutil.Process().memory_info().rss
    start, size = time.perf_counter(), 0
    with watching() as seen, httpx.stream("GET", url, timeout=None) as answer:
        answer.raise_for_status()
        for chunk in answer.iter_bytes():
            size += len(chunk)
    return time.perf_counter() - start, size, max(seen, default=before) - before


def measure(count: int) -> None:
    """Print the costs of one number of points."""
    with tempfile.TemporaryDirectory() as directory:
        settings = settings_in(Path(directory))
        with opened(settings) as services:
            bisection = seed_points(services, count)
        with listening(shown_app(settings)) as base:
            httpx.get(f"{base}/api/v1/points?format=csv&host=nowhere")
            for path in ("/points", f"/bisections/{bisection}/points"):
                for format in ("csv", "ndjson"):
                    seconds, size, grown = export(f"{base}/api/v1{path}?format={format}")
                    print(
                        f"{count:>9,} {path[:8]:<9} {format:<7}{seconds:>7.1f} s "
                        f"{size / _MEGABYTE:>7.1f} MiB sent {grown / _MEGABYTE:>6.1f} MiB grown",
                        flush=True,
                    )


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["10000", "100000", "1000000"]:
        measure(int(argument))
