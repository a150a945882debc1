"""Metric readers: from what a benchmark printed or wrote to its value. Pure functions of text.

Each named reader knows one tool's format, warm-up and way to say that it failed.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfbisect.core.reading import (
    LEAST_VALUE,
    MOST_VALUE,
    Found,
    Parser,
    ReadingError,
    parse_json_text,
    to_number,
)
from perfbisect.core.recipe import Metric, ReaderKind, Take
from perfbisect.core.tool_readers import TOOL_PARSERS
from perfbisect.errors import shown

__all__ = ["MAX_CHARACTERS", "Reading", "ReadingError", "metric_problem", "read_metric"]

#: Characters at the end of an output that are read; a benchmark's figures stand at its end.
MAX_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one process."""

    #: The series within the process, warm-up dropped, in order; each finite and greater than zero.
    values: tuple[float, ...]
    #: The one value of the process, in the benchmark's unit.
    value: float
    #: Smallest difference that the format can show, in the same unit; 0: not known to matter.
    resolution: float = 0.0


def read_metric(metric: Metric, output: str, files: Mapping[str, str]) -> Reading:
    """Return the value of one process.

    Args:
        metric: which reader, and its options.
        output: standard output and error of the process, as they came.
        files: content by name of the files that the process left, for ``metric.file``.

    Raises:
        ReadingError: no value, not enough values, or one that is NaN, infinite, zero or negative.
    """
    if metric.reader is ReaderKind.ARTIFACT_COUNT:
        return _count(metric, files)
    if metric.file and metric.file not in files:
        message = f"the benchmark did not write '{metric.file}'"
        wrote = ", ".join(sorted(files)) or "no files"
        raise ReadingError(message, advice=f"metric.file names a file it writes; found: {wrote}")
    text = _last_part(files[metric.file] if metric.file else output)
    parser = _PARSERS[metric.reader]
    return _reading(metric, parser(metric, text))


def metric_problem(metric: Metric) -> tuple[str, str] | None:
    """Return which key can't be right and what would be ("pattern", "set: …"), or None."""
    uses_path = (ReaderKind.JSON, ReaderKind.PERFZERO, ReaderKind.PYTEST_BENCHMARK)
    if metric.reader is ReaderKind.ARTIFACT_COUNT:
        return _count_problem(metric)
    if metric.pattern and metric.reader is not ReaderKind.REGEX:
        return "pattern", f"left out: reader '{metric.reader}' has none"
    if metric.path and metric.reader not in uses_path:
        return "path", f"left out: reader '{metric.reader}' has none"
    if metric.reader is ReaderKind.REGEX:
        return _pattern_problem(metric.pattern)
    if metric.reader is ReaderKind.JSON and not metric.path:
        return "path", "the dotted path of the value, e.g. 'metrics.0.value'"
    if metric.reader is ReaderKind.PYTEST_BENCHMARK and not metric.file:
        return "file", "the file named by --benchmark-json"
    return None


def _count(metric: Metric, files: Mapping[str, str]) -> Reading:
    """Count the pattern in all files, plus one: a count may be zero, a value may not."""
    if not files:
        message = f"the benchmark left no file that '{metric.file}' fits"
        raise ReadingError(message, advice="metric.file is a glob of the files that it writes")
    compiled = re.compile(metric.pattern, re.MULTILINE)
    counts = [sum(1 for _ in compiled.finditer(files[name])) for name in sorted(files)]
    value = 1.0 + sum(counts)
    return Reading(values=(value,), value=value, resolution=1.0)


def _count_problem(metric: Metric) -> tuple[str, str] | None:
    if not metric.file:
        return "file", "a glob of the files that are searched, e.g. 'dump/**/*.pbtxt'"
    if metric.path:
        return "path", f"left out: reader '{metric.reader}' has none"
    if metric.skip:
        return "skip", f"left out: reader '{metric.reader}' has one value"
    if not metric.pattern:
        return "pattern", "a regular expression of what is counted, e.g. 'GpuToHost'"
    return _compile_problem(metric.pattern)


def _compile_problem(pattern: str) -> tuple[str, str] | None:
    try:
        re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        return "pattern", f"a valid regular expression: {error}"
    return None


def _last_part(text: str) -> str:
    """Bound the text to its last part, from the start of a line on."""
    if len(text) <= MAX_CHARACTERS:
        return text
    cut = len(text) - MAX_CHARACTERS
    line = text.find("\n", cut)
    return text[line + 1 :] if line >= 0 else text[cut:]


def _reading(metric: Metric, found: Found) -> Reading:
    """Drop warm-up, refuse what is no measurement, and take the one value."""
    dropped = found.warm_up + metric.skip
    kept = tuple(found.values[dropped:])
    if not kept:
        message = (
            f"{len(found.values)} values were read and {dropped} dropped as warm-up: none left"
        )
        raise ReadingError(message, advice="run more steps, print more often, or lower 'skip'")
    for value in kept if found.total is None else (*kept, found.total):
        _require_positive(value, found.resolution)
    value = _TAKE[metric.take](kept) if found.total is None else found.total
    return Reading(values=kept, value=value, resolution=found.resolution)


def _require_positive(value: float, resolution: float) -> None:
    if LEAST_VALUE <= value <= MOST_VALUE:
        return
    if not math.isfinite(value):
        what = "not a finite number"
    else:
        what = "zero" if value == 0 else "negative" if value < 0 else "no measure of anything"
    advice = "a metric must be finite and greater than zero, e.g. images/s or seconds"
    if value == 0 and resolution:
        advice += f"; this format shows no less than {resolution:g}"
    raise ReadingError(f"the benchmark reported {value:g}, which is {what}", advice=advice)


def _last(values: Sequence[float]) -> float:
    return values[-1]


_TAKE: Mapping[Take, Callable[[Sequence[float]], float]] = {
    Take.MEDIAN: statistics.median,
    Take.MEAN: statistics.fmean,
    Take.MIN: min,
    Take.MAX: max,
    Take.LAST: _last,
}


def _pattern_problem(pattern: str) -> tuple[str, str] | None:
    example = r"e.g. 'images/sec: ([0-9.]+)'"
    if not pattern:
        return "pattern", f"a regular expression with one group, the value, {example}"
    if problem := _compile_problem(pattern):
        return problem
    compiled = re.compile(pattern, re.MULTILINE)
    if compiled.groups != 1 and "value" not in compiled.groupindex:
        return "pattern", f"with one group (…), or one named (?P<value>…), {example}"
    return None


def _parse_regex(metric: Metric, text: str) -> Found:
    """Every match is one value; ``^`` and ``$`` match at lines."""
    compiled = re.compile(metric.pattern, re.MULTILINE)
    group = "value" if "value" in compiled.groupindex else 1
    matched = [match.group(group) for match in compiled.finditer(text)]
    if not matched:
        where = f"'{metric.file}'" if metric.file else "the output"
        message = f"the pattern {shown(metric.pattern)} matches nothing in {where}"
        raise ReadingError(message, advice="correct metric.pattern, or what the benchmark prints")
    what = f"what {shown(metric.pattern)} matched"
    return Found([to_number(value, what) for value in matched])


def _parse_json(metric: Metric, text: str) -> Found:
    """The value, or the list of values, at a dotted path."""
    document = parse_json_text(text)
    found = [_one_or_many(value) for value in _at(document, metric.path.split("."), metric.path)]
    values = [to_number(value, f"'{metric.path}'") for part in found for value in part]
    return Found(values)


def _one_or_many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _at(value: Any, path: Sequence[str], whole: str) -> list[Any]:
    """Return what is at a path; ``*`` fans out over a list or an object."""
    if not path:
        return [value]
    key, rest = path[0], path[1:]
    if key == "*" and isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return [found for item in inner for found in _at(item, rest, whole)]
    if isinstance(value, dict) and key in value:
        return _at(value[key], rest, whole)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return _at(value[int(key)], rest, whole)
    if isinstance(value, dict):
        has = f"known there: {', '.join(map(str, list(value)[:20])) or 'nothing'}"
    else:
        has = (
            f"a list of {len(value)}" if isinstance(value, list) else f"found there: {value!r:.80}"
        )
    raise ReadingError(f"the JSON has nothing at '{key}' of path '{whole}'", advice=has)


_PARSERS: Mapping[ReaderKind, Parser] = {
    ReaderKind.REGEX: _parse_regex,
    ReaderKind.JSON: _parse_json,
    **TOOL_PARSERS,
}
