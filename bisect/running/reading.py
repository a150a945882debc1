"""Reading a metric where it can do no harm: what was printed may be made to take for ever to read.

Large or strange output is read by a process of its own, with limits: a pattern that goes back and
forth would hold up everything else in this one. Started as a program, this module is that process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from perfbisect.core.readers import Reading, ReadingError, read_metric
from perfbisect.core.recipe import Metric

#: Text up to this, with lines up to that, is read at once.
_SMALL, _SHORT = 64_000, 1_000
#: Seconds of processor time, and bytes of memory, for reading.
CPU_SECONDS = 60
_MEMORY = 8 * 1024**3
#: Seconds until a process that does not even use the processor is given up.
_PATIENCE = 900

_METRIC: TypeAdapter[Metric] = TypeAdapter(Metric)


def read_apart(
    metric: Metric, output: str, files: Mapping[str, str], *, seconds: int = CPU_SECONDS
) -> Reading:
    """Return what ``read_metric`` finds, within limits of time and memory.

    Raises:
        ReadingError: as ``read_metric``, or it takes too long.
    """
    if all(map(_is_plain, (output, *files.values()))):
        return read_metric(metric, output, files)
    asked = {
        "metric": _METRIC.dump_python(metric, mode="json"),
        "output": output,
        "files": dict(files),
        "seconds": seconds,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(asked).encode(),
            capture_output=True,
            check=False,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise _too_much(seconds) from None
    if done.returncode != 0:
        raise _too_much(seconds)
    return _understood(json.loads(done.stdout))


def _is_plain(text: str) -> bool:
    return len(text) <= _SMALL and all(len(line) <= _SHORT for line in text.split("\n"))


def _too_much(seconds: int) -> ReadingError:
    return ReadingError(
        f"reading the value took more than {seconds} s, or more memory than there is",
        advice="print less, in shorter lines, or write the value to a file (metric.file)",
    )


def _understood(told: dict[str, Any]) -> Reading:
    if "message" in told:
        raise ReadingError(
            told["message"], advice=told["advice"], benchmark_failed=told["benchmark_failed"]
        )
    return Reading(tuple(told["values"]), told["value"], told["resolution"])


def _main() -> None:
    asked = json.load(sys.stdin)
    limits = ((resource.RLIMIT_CPU, asked["seconds"]), (resource.RLIMIT_DATA, _MEMORY))
    for kind, limit in limits:
        _, most = resource.getrlimit(kind)
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (limit, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    metric = _METRIC.validate_python(asked["metric"])
    try:
        told = asdict(read_metric(metric, asked["output"], asked["files"]))
    except ReadingError as error:
        told = {
            "message": error.message,
            "advice": error.advice,
            "benchmark_failed": error.benchmark_failed,
        }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    _main()
