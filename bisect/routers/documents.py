"""Reports as answers over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Response

from perfbisect.problems import documented
from perfbisect.reports.formats import Format, render_dossier
from perfbisect.reports.web_page import POLICY
from perfbisect.routers.conditional import NOT_MODIFIED, conditional

ReportFormat = Annotated[Format, Query(description="Of the report.")]

_TYPES: dict[Format, str] = {
    "md": "text/markdown",
    "html": "text/html",
    "json": "application/json",
    "csv": "text/csv",
}
_TEXT = {"schema": {"type": "string"}}

REPORT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {_TYPES[name]: _TEXT for name in ("md", "html", "csv")}},
    **NOT_MODIFIED,
    **documented(404, 422),
}


def report_response(
    dossier: Mapping[str, Any], wanted: Format, name: str, if_none_match: str | None = None
) -> Response:
    """Return a report; a page may apply its own style and do nothing else."""
    headers: dict[str, str] = {}
    if wanted == "html":
        headers["Content-Security-Policy"] = f"{POLICY}; base-uri 'none'; frame-ancestors 'none'"
    if wanted == "csv":
        headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    content = render_dossier(dossier, wanted).encode()
    return conditional(content, if_none_match, media_type=_TYPES[wanted], headers=headers)
