"""One dossier in every format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from perfbisect.reports.bisection_document import bisection_document
from perfbisect.reports.experiment_document import experiment_document
from perfbisect.reports.markdown_text import to_markdown_text
from perfbisect.reports.reproduction import bisect_command, experiment_command, try_commands
from perfbisect.reports.spreadsheets import arms_csv, measured_csv
from perfbisect.reports.web_page import to_web_page

Format = Literal["md", "html", "json", "csv"]

FORMATS: tuple[Format, ...] = get_args(Format)


def render_dossier(dossier: Mapping[str, Any], wanted: Format) -> str:
    """Return a report as text.

    Args:
        dossier: of a bisection (it has ``verdict``) or of an experiment (it has ``answer``).
    """
    if wanted == "json":
        value = finite(as_json(dossier))
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if wanted == "csv":
        if "verdict" in dossier:
            return measured_csv(dossier.get("measured") or ())
        return arms_csv(dossier["answer"])
    document = bisection_document(dossier) if "verdict" in dossier else experiment_document(dossier)
    return to_markdown_text(document) if wanted == "md" else to_web_page(document)


def as_json(dossier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict or answer itself, with what the report adds under ``report``."""
    told = {key: value for key, value in dossier.items() if key not in ("verdict", "answer")}
    if "verdict" in dossier:
        told["reproduce"] = [bisect_command(dossier), *try_commands(dossier)]
        return {**dossier["verdict"], "report": told}
    told["reproduce"] = [experiment_command(dossier, dossier["answer"])]
    return {**dossier["answer"], "report": told}


def finite(value: Any) -> Any:
    """Return a JSON value with null in place of infinities and of what is no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
