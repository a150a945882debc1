"""Tables for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: Columns of points in CSV, in this order; further keys of a point are left out.
POINT_COLUMNS = (
    "measured_at",
    "position",
    "commit",
    "value",
    "unit",
    "host",
    "purpose",
    "rejected",
    "seconds",
    "id",
    "run_id",
    "bisection_id",
    "wheel_id",
)

#: Columns of measured revisions; ``role`` says which of them are ends or sides of steps.
MEASURED_COLUMNS = (
    "position",
    "commit",
    "subject",
    "role",
    "mean",
    "low",
    "high",
    "lowest",
    "highest",
    "unit",
    "runs",
    "rejected",
    "unbuildable",
    "wheel_sha256",
)

#: Columns of an experiment's arms.
ARM_COLUMNS = (
    "position",
    "name",
    "against",
    "revision",
    "environment",
    "mean",
    "low",
    "high",
    "unit",
    "change",
    "change_low",
    "change_high",
    "difference",
    "runs",
    "problem",
)


def _csv_cell(value: object) -> object:
    # A spreadsheet takes text that starts like this for a formula.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def points_csv(points: Iterable[Mapping[str, Any]]) -> str:
    """Return points as CSV with the columns ``POINT_COLUMNS``."""
    return _csv(POINT_COLUMNS, points)


def measured_csv(measured: Iterable[Mapping[str, Any]]) -> str:
    """Return measured revisions as CSV with the columns ``MEASURED_COLUMNS``."""
    return _csv(MEASURED_COLUMNS, [_with_ends(row, "ci95", "low", "high") for row in measured])


def arms_csv(answer: Mapping[str, Any]) -> str:
    """Return the arms of an experiment as CSV with the columns ``ARM_COLUMNS``."""
    rows = []
    for arm in answer.get("arms") or ():
        row = _with_ends(arm, "ci95", "change_low", "change_high")
        row = _with_ends(row, "mean_ci95", "low", "high")
        env = " ".join(f"{key}={value}" for key, value in (arm.get("env") or {}).items())
        problem = (arm.get("problem") or {}).get("kind") or arm.get("failure")
        rows.append({**row, "environment": env, "unit": answer.get("unit"), "problem": problem})
    return _csv(ARM_COLUMNS, rows)


def _with_ends(row: Mapping[str, Any], key: str, low: str, high: str) -> dict[str, Any]:
    ends = row.get(key) or (None, None)
    return {**row, low: ends[0], high: ends[1]}


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(row.get(column)) for column in columns])
    return out.getvalue()
