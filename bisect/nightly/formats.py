"""Points as other tools write them: plain JSON, PerfZero's summary, pytest-benchmark, CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from perfbisect.core.moments import from_epoch
from perfbisect.core.reading import ReadingError
from perfbisect.core.recipe import Metric, ReaderKind
from perfbisect.core.tool_readers import TOOL_PARSERS
from perfbisect.core.versions import commit_prefix, night_of
from perfbisect.errors import BadInputError
from perfbisect.nightly.points import NightPoint, check_count
from perfbisect.store.series_tables import SeriesPointRow


class PointFormat(StrEnum):
    """What a delivery is written in."""

    AUTO = "auto"
    GENERIC = "generic"
    PERFZERO = "perfzero"
    PYTEST_BENCHMARK = "pytest-benchmark"


_SHA = re.compile(r"[0-9a-fA-F]{7,64}")
#: Columns of a CSV file; any other is the commit of the repository it names.
CSV_COLUMNS = ("night", "value", "version", "host", "runs", "measured_at")


def read_points(
    document: object,
    chosen: PointFormat = PointFormat.AUTO,
    *,
    metric: str = "",
    night: date | None = None,
    text: Callable[[object], str],
) -> tuple[str, list[NightPoint]]:
    """Return the format and the points of a document.

    Args:
        document: a point, a list of points, ``{"points": [...]}``, or a tool's document.
        metric: which value of a tool's document; empty: the tool's own main one.
        night: the day, where a tool's document does not tell the one that is meant.
        text: writes JSON.

    Raises:
        BadInputError: names the point and its field, or what the document lacks.
    """
    found = _recognised(document) if chosen is PointFormat.AUTO else chosen
    if found is PointFormat.PERFZERO:
        return found.value, [_perfzero(document, metric, night, text)]
    if found is PointFormat.PYTEST_BENCHMARK:
        return found.value, [_pytest_benchmark(document, metric, night, text)]
    listed = document.get("points") if isinstance(document, Mapping) else document
    if listed is None:
        listed = [document]
    if not isinstance(listed, list):
        raise BadInputError("points: should be a list of points", field="points")
    check_count(listed)
    return "api", [point_from_dict(each, f"points[{n}]") for n, each in enumerate(listed)]


def _recognised(document: object) -> PointFormat:
    if isinstance(document, Mapping):
        if "benchmark_result" in document:
            return PointFormat.PERFZERO
        if "benchmarks" in document:
            return PointFormat.PYTEST_BENCHMARK
    return PointFormat.GENERIC


def point_from_dict(data: object, where: str) -> NightPoint:
    """Return a point, checked.

    Raises:
        BadInputError: names the field below ``where``.
    """
    if not isinstance(data, Mapping):
        raise BadInputError(f"{where}: {data!r:.80} should be an object", field=where)
    try:
        return NightPoint.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join([where, *(str(part) for part in first["loc"])])
        known = f"; known: {', '.join(NightPoint.model_fields)}"
        hint = known if first["type"] == "extra_forbidden" else ""
        shown = "" if isinstance(first["input"], Mapping) else f" = {first['input']!r:.80}"
        raise BadInputError(f"{field}{shown}: {first['msg']}{hint}", field=field) from error


def _value(
    kind: ReaderKind, document: object, metric: str, text: Callable[[object], str]
) -> list[float]:
    """Return what the readers of runs find in a tool's document."""
    try:
        found = TOOL_PARSERS[kind](Metric(reader=kind, path=metric), text(document))
    except ReadingError as error:
        advice = f"; {error.advice}".replace("metric.path is", "metric is") if error.advice else ""
        raise BadInputError(f"{error.message}{advice}", field="metric", value=metric) from error
    return list(found.values)


def _perfzero(
    document: object, metric: str, night: date | None, text: Callable[[object], str]
) -> NightPoint:
    values = _value(ReaderKind.PERFZERO, document, metric, text)
    assert isinstance(document, Mapping)
    framework = _table(document, "ml_framework_info")
    system = _table(document, "system_info")
    stamp = document.get("execution_timestamp")
    try:
        measured = from_epoch(stamp) if isinstance(stamp, int | float) else None
    except ValueError as error:
        raise BadInputError(
            f"execution_timestamp = {stamp!r:.60} {error}", field="execution_timestamp"
        ) from error
    version = str(framework.get("version") or "")
    day = night or night_of(version) or (measured and measured.date())
    if day is None:
        raise BadInputError(
            "execution_timestamp: the summary tells no day; send ?night=YYYY-MM-DD",
            field="execution_timestamp",
        )
    commit = commit_prefix(str(framework.get("build_version") or ""))
    name = str(framework.get("name") or "tensorflow")
    data = {
        "night": day,
        "values": values,
        "version": version,
        "commits": {name: commit} if commit else {},
        "host": str(system.get("platform_name") or ""),
        "measured_at": measured,
    }
    return point_from_dict(data, "summary")


def _pytest_benchmark(
    document: object, metric: str, night: date | None, text: Callable[[object], str]
) -> NightPoint:
    values = _value(ReaderKind.PYTEST_BENCHMARK, document, metric, text)
    assert isinstance(document, Mapping)
    commit = _table(document, "commit_info")
    machine = _table(document, "machine_info")
    moment = document.get("datetime")
    measured = _moment(moment)
    day = night or (measured and measured.date())
    if day is None:
        raise BadInputError(
            f"datetime = {moment!r:.80}: the document tells no day; send ?night=YYYY-MM-DD",
            field="datetime",
        )
    told, project = str(commit.get("id") or ""), str(commit.get("project") or "")
    # Outside a repository it says "unversioned" or "unknown".
    sha = told if _SHA.fullmatch(told) else ""
    ranked = sorted(values)
    data = {
        "night": day,
        # The rounds of one process are no runs of their own.
        "value": ranked[len(ranked) // 2],
        "commits": {project: sha} if project and sha else {},
        "version": sha[:12],
        "host": str(machine.get("node") or ""),
        "measured_at": measured,
    }
    return point_from_dict(data, "document")


def _table(document: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _moment(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def read_csv(text: str, file: str) -> list[NightPoint]:
    """Return the points of a CSV file with a header.

    Columns: ``night`` and ``value``, then as wanted ``version``, ``host``, ``runs``,
    ``measured_at``; every other column is named after a repository and holds its commit.

    Raises:
        BadInputError: names the row and the column.
    """
    rows = csv.DictReader(io.StringIO(text), restkey="", strict=True)
    try:
        names = [name.strip() for name in rows.fieldnames or ()]
        missing = [name for name in ("night", "value") if name not in names]
        if missing:
            raise BadInputError(
                f"{file}, row 1: no column '{missing[0]}'; the header names night, value, and as "
                f"wanted version, host, runs, measured_at and repositories; it has: "
                f"{', '.join(names) or 'nothing'}",
                field=missing[0],
            )
        rows.fieldnames = names
        listed = [_csv_row(row, f"{file}, row {rows.line_num}") for row in rows]
    except csv.Error as error:
        raise BadInputError(f"{file}, row {rows.line_num}: not CSV: {error}", field="") from error
    check_count(listed, file)
    return listed


def _csv_row(row: Mapping[str, Any], where: str) -> NightPoint:
    extra = row.get("")
    if extra:
        raise BadInputError(f"{where}: more cells than the header has: {extra!r:.80}", field=where)
    cells = {name: (cell or "").strip() for name, cell in row.items() if name}
    data: dict[str, Any] = {name: cells[name] for name in CSV_COLUMNS if cells.get(name, "") != ""}
    commits = {name: cell for name, cell in cells.items() if name not in CSV_COLUMNS and cell != ""}
    return point_from_dict({**data, "commits": commits}, where)


def points_csv(rows: Sequence[SeriesPointRow]) -> str:
    """Return points as CSV that ``read_csv`` reads back."""
    repositories = sorted({name for row in rows for name in row.commits})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*CSV_COLUMNS, *repositories])
    for row in rows:
        cells = (row.night, repr(row.value), row.version, row.host, row.runs, row.measured_at)
        plain = [cell.isoformat() if isinstance(cell, date) else cell for cell in cells]
        writer.writerow([*plain, *(row.commits.get(name, "") for name in repositories)])
    return out.getvalue()
