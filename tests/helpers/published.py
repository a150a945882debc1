"""A package on an index of its own, whose versions are of known speed, and a benchmark for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.helpers.package_index import FakeIndex
from tests.helpers.running import make_wheel

PROJECT = """
[benchmark.speed]
command = "{python} bench.py"
files = ["bench.py"]
metric = {reader = "regex", pattern = 'images/sec: ([0-9.]+)'}
unit = "images/s"
timeout = "60s"
"""

#: The speed of the wheel, with half a per cent of noise.
BENCH = """
import random
import probe
print(f"images/sec: {probe.SPEED * random.gauss(1, 0.005):.3f}")
"""


def write_project(directory: Path) -> None:
    """Write ``perfbisect.toml`` with the benchmark ``speed``."""
    (directory / "perfbisect.toml").write_text(PROJECT)
    (directory / "bench.py").write_text(BENCH)


class Shelf:
    """Puts wheels into an index, one a month."""

    def __init__(self, index: FakeIndex, directory: Path) -> None:
        self.index = index
        self._directory = directory

    def put(
        self,
        name: str,
        version: str,
        uploaded: datetime,
        files: Mapping[str, str],
        requires: Sequence[str] = (),
        **extra: Any,
    ) -> str:
        """Put a wheel on; return its file name."""
        path = make_wheel(self._directory, files, name=name, version=version, requires=requires)
        self.index.files[path.name] = path.read_bytes()
        moment = uploaded.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.index.extra[path.name] = {"upload-time": moment, **extra}
        return path.name

    def put_probe(self, version: str, uploaded: datetime, speed: float, **extra: Any) -> str:
        """Put a version of the package ``probe`` on; a speed of 0 can't be imported."""
        code = f"SPEED = {speed}\n" if speed else "raise ImportError('made for another world')\n"
        return self.put("probe", version, uploaded, {"probe.py": code}, ["probedep"], **extra)


def months(start: datetime, count: int) -> list[datetime]:
    """Return moments thirty days apart."""
    return [start + timedelta(days=30 * number) for number in range(count)]
