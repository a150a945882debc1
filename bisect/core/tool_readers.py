"""Readers of what TensorFlow's benchmark tools, and pytest-benchmark, print or write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from perfbisect.core.reading import (
    NUMBER,
    Found,
    Parser,
    ReadingError,
    listed,
    parse_json_text,
    to_number,
)
from perfbisect.core.recipe import Metric, ReaderKind, Take
from perfbisect.errors import did_you_mean

#: PerfZero's name for throughput.
EXAMPLES_PER_SECOND = "exp_per_second"
#: Names among which the nearest is looked for.
MOST_NAMES = 1000
#: Summaries of PerfZero that are read; one is wanted.
_MOST_SUMMARIES = 10
#: Orbit prints steps per second with one decimal.
ORBIT_RESOLUTION = 0.1

_PERFZERO_SUMMARY = re.compile(r"completed with summary:\s*(?=\{)")
_BENCHMARK_METRIC = re.compile(
    rf"BenchmarkMetric: \{{[^{{}}\n]*'(?:examples|images)_per_second': ({NUMBER})\}}"
)
#: Both forms: with and without ``N seconds, `` before the throughput.
_TIME_HISTORY = re.compile(rf"TimeHistory: (?:{NUMBER} seconds, )?({NUMBER}) examples/second")
_TF_CNN_STEP = re.compile(rf"^(?!.*\btotal\b).*\bimages/sec: ({NUMBER}) \+/-", re.MULTILINE)
_TF_CNN_TOTAL = re.compile(rf"\btotal images/sec: ({NUMBER})")
_ORBIT = re.compile(rf"train \| step:\s*(\d{{1,18}}) \| steps/sec:\s*({NUMBER})")


def _none(tool: str, looked_for: str) -> ReadingError:
    return ReadingError(
        f'{tool} printed no line like "{looked_for}"',
        advice="another reader may fit, or the run was too short to print one",
    )


def _parse_perfzero(metric: Metric, text: str) -> Found:
    """One entry of ``benchmark_result.metrics`` of PerfZero's summary."""
    summaries = _perfzero_summaries(text) or [parse_json_text(text)]
    if len(summaries) > 1:
        message = f"PerfZero ran {len(summaries)} methods; a benchmark is one of them"
        raise ReadingError(message, advice="name one method in --benchmark_methods")
    result = summaries[0].get("benchmark_result") if isinstance(summaries[0], dict) else None
    if not isinstance(result, dict):
        raise ReadingError("the JSON is no PerfZero summary: it has no 'benchmark_result'")
    # -1 is how PerfZero reports a method that raised.
    if result.get("wall_time") == -1:
        message = f"PerfZero says that {result.get('name', 'the method')} failed (wall_time is -1)"
        raise ReadingError(message, benchmark_failed=True)
    name = metric.path or EXAMPLES_PER_SECOND
    return Found([to_number(_perfzero_entry(result, name), f"PerfZero's metric '{name}'")])


def _perfzero_summaries(text: str) -> list[Any]:
    """Return the summaries in PerfZero's log; what it logs twice, as it does, counts once."""
    decoder = json.JSONDecoder()
    found = []
    for match in _PERFZERO_SUMMARY.finditer(text):
        try:
            summary = decoder.raw_decode(text, match.end())[0]
        except (ValueError, RecursionError) as error:
            raise ReadingError(f"PerfZero's summary is cut short: {error}") from error
        if summary not in found:
            found.append(summary)
        if len(found) == _MOST_SUMMARIES:
            # More than one is refused anyway, and a log may hold millions.
            break
    return found


def _perfzero_entry(result: Mapping[str, Any], name: str) -> object:
    if name == "wall_time":
        return result.get("wall_time")
    metrics = result.get("metrics")
    listing = metrics if isinstance(metrics, list) else []
    entries = [entry for entry in listing if isinstance(entry, dict)]
    for entry in entries:
        if entry.get("name") == name:
            return entry.get("value")
    names = [str(entry.get("name"))[:200] for entry in entries[:MOST_NAMES]]
    message = f"PerfZero's summary has no metric '{name}'{did_you_mean(name, names)}"
    raise ReadingError(message, advice=f"metric.path is one of: {listed(names)}")


def _parse_benchmark_metric(metric: Metric, text: str) -> Found:
    """Throughput of each logging interval, model garden before December 2019; the first is warm-up.

    Lines that give an epoch's time carry no throughput and are passed over.
    """
    found = [float(value) for value in _BENCHMARK_METRIC.findall(text)]
    if not found:
        raise _none("The model", "BenchmarkMetric: {'global step':…, 'examples_per_second':…}")
    return Found(found, warm_up=1)


def _parse_time_history(metric: Metric, text: str) -> Found:
    """Throughput of each logging interval; the first, which holds tracing, is warm-up."""
    found = [float(value) for value in _TIME_HISTORY.findall(text)]
    if not found:
        raise _none("The model", "TimeHistory: … examples/second between steps …")
    return Found(found, warm_up=1)


def _parse_tf_cnn(metric: Metric, text: str) -> Found:
    """The total, which the tool computes without its warm-up; running means are kept beside it."""
    totals = _TF_CNN_TOTAL.findall(text)
    if not totals:
        raise _none("tf_cnn_benchmarks", "total images/sec: …")
    total = float(totals[-1])
    return Found([float(value) for value in _TF_CNN_STEP.findall(text)] or [total], total=total)


def _parse_orbit(metric: Metric, text: str) -> Found:
    """Steps per second of each inner loop; the first, which holds tracing, is warm-up.

    Orbit both logs and prints each line: a step counts once.
    """
    by_step = {int(step): float(value) for step, value in _ORBIT.findall(text)}
    if not by_step:
        raise _none("Orbit", "train | step: … | steps/sec: …")
    return Found(list(by_step.values()), warm_up=1, resolution=ORBIT_RESOLUTION)


def _parse_pytest_benchmark(metric: Metric, text: str) -> Found:
    """Seconds per call of one test: its rounds if they were saved, else a statistic of them."""
    document = parse_json_text(text)
    tests = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(tests, list):
        raise ReadingError("the JSON is none of pytest-benchmark: it has no 'benchmarks'")
    stats = _pytest_test(metric, [test for test in tests if isinstance(test, dict)]).get("stats")
    if not isinstance(stats, dict):
        raise ReadingError("the test has no 'stats'; was it skipped or did it fail?")
    if isinstance(stats.get("data"), list) and stats["data"]:
        return Found([to_number(value, "a round") for value in stats["data"]])
    if metric.skip or metric.take is Take.LAST:
        message = "rounds can't be skipped or the last one taken: the file holds statistics only"
        raise ReadingError(message, advice="run pytest with --benchmark-save-data")
    return Found([to_number(stats.get(metric.take.value), f"the test's {metric.take}")])


def _pytest_test(metric: Metric, tests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the test that the metric names; a file with one test needs no name."""
    names = [str(test.get("fullname", test.get("name")))[:200] for test in tests[:MOST_NAMES]]
    fits = [
        test
        for test in tests
        if not metric.path or metric.path in (test.get("name"), test.get("fullname"))
    ]
    if len(fits) == 1:
        return fits[0]
    if metric.path:
        message = f"{len(fits) or 'no'} tests are named '{metric.path}'"
        message += did_you_mean(metric.path, names)
    else:
        message = f"the file holds {len(tests)} tests, and metric.path names none"
    raise ReadingError(message, advice=f"metric.path is one of: {listed(names)}")


TOOL_PARSERS: Mapping[ReaderKind, Parser] = {
    ReaderKind.PERFZERO: _parse_perfzero,
    ReaderKind.BENCHMARK_METRIC: _parse_benchmark_metric,
    ReaderKind.KERAS_TIME_HISTORY: _parse_time_history,
    ReaderKind.TF_CNN_BENCHMARKS: _parse_tf_cnn,
    ReaderKind.ORBIT: _parse_orbit,
    ReaderKind.PYTEST_BENCHMARK: _parse_pytest_benchmark,
}
