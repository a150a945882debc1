"""A verdict in words: one sentence, Markdown, JSON, CSV. Pure functions over the verdict's JSON.

What is here is the way in; ``perfbisect.reports`` holds the parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from perfbisect.reports.bisection_document import bisection_document
from perfbisect.reports.experiment_words import (
    experiment_exit_code,
    experiment_lines,
    experiment_sentence,
)
from perfbisect.reports.markdown_text import to_markdown_text
from perfbisect.reports.spreadsheets import POINT_COLUMNS, points_csv
from perfbisect.reports.verdict_words import (
    BAD_INPUT_CODES,
    CulpritLine,
    Verdict,
    cost_line,
    culprit_lines,
    doubt_line,
    ends_line,
    exit_code,
    sentence,
)
from perfbisect.reports.words import (
    format_change,
    format_interval,
    format_probability,
    format_value,
    plural,
    printable,
    short,
)

__all__ = [
    "BAD_INPUT_CODES",
    "POINT_COLUMNS",
    "CulpritLine",
    "Verdict",
    "cost_line",
    "culprit_lines",
    "doubt_line",
    "ends_line",
    "exit_code",
    "experiment_exit_code",
    "experiment_lines",
    "experiment_sentence",
    "format_change",
    "format_interval",
    "format_probability",
    "format_value",
    "plural",
    "points_csv",
    "printable",
    "sentence",
    "short",
    "to_json",
    "to_markdown",
]


def to_json(verdict: Verdict) -> str:
    """Return the verdict as indented JSON; refuses values that JSON does not have."""
    return json.dumps(verdict, indent=2, ensure_ascii=False, allow_nan=False)


def to_markdown(verdict: Verdict, decisions: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return a report for an issue or a message, of a verdict alone.

    Args:
        verdict: the verdict's JSON object.
        decisions: objects with ``kind``, ``position``, ``host`` and ``reason``, in their order.
    """
    return to_markdown_text(bisection_document({"verdict": verdict, "decisions": list(decisions)}))
