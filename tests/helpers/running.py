"""Small real wheels, benchmarks and requests for the tests of runners."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfbisect.core.recipe import Benchmark, Metric
from perfbisect.ports import Failure, RunRequest, RunSuccess

SPEED = Metric(pattern=r"^images/sec: (\S+)$")


def make_wheel(
    directory: Path,
    files: Mapping[str, str],
    *,
    name: str = "tiny",
    version: str = "1.0",
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
) -> Path:
    """Write a real wheel with these files and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {text}\n" for text in requires)
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in members.items())
    path = directory / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**members, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(member), text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def make_benchmark(program: str, **changes: Any) -> Benchmark:
    """Return a benchmark that runs ``bench.py``, whose text `make_request` writes."""
    benchmark = Benchmark(
        name="bench",
        command="{python} bench.py",
        metric=SPEED,
        unit="images/s",
        files=("bench.py",) if program else (),
        timeout=60.0,
    )
    return replace(benchmark, **changes)


def make_request(
    root: Path, wheel: Path, program: str, *, run: str = "run-1", **changes: Any
) -> RunRequest:
    """Return a request to run a program on a wheel; ``changes`` are of the benchmark."""
    source = root / "benchmark"
    source.mkdir(parents=True, exist_ok=True)
    (source / "bench.py").write_text(program, encoding="utf-8")
    work = root / "work" / run
    work.mkdir(parents=True, exist_ok=True)
    return RunRequest(
        id=f"{root.name}-{run}",
        wheel=wheel,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        benchmark=make_benchmark(program, **changes),
        benchmark_dir=source,
        host="here",
        work_dir=work,
        log_path=root / "logs" / f"{run}.log",
        cache_dir=root / "cache",
    )


def success(result: RunSuccess | Failure) -> RunSuccess:
    """Return the success, or fail with what went wrong."""
    assert isinstance(result, RunSuccess), result
    return result


def failure(result: RunSuccess | Failure) -> Failure:
    """Return the failure, or fail with the value that came instead."""
    assert isinstance(result, Failure), result
    return result
