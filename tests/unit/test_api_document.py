"""docs/api.md says what the API does, and the OpenAPI document is fit to be read by programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.helpers.serving import settings_in, shown_app

from perfbisect import errors
from perfbisect.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
DOCUMENT: dict[str, Any] = shown_app(settings_in(Path("unused"))).openapi()
OPERATIONS = {
    operation["operationId"]: (f"{method.upper()} {path}", operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def test_every_operation_is_documented_and_none_is_invented() -> None:
    """The table of operations holds exactly the operations, with their methods and paths."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `((?:GET|POST) [^`]+)`", TEXT, re.MULTILINE))
    assert rows == {name: request for name, (request, _) in OPERATIONS.items()}


def test_every_kind_of_error_is_documented() -> None:
    """Each type of problem that is raised on purpose has its row, with its status."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    raised = [each for each in kinds if issubclass(each, errors.PerfbisectError)]
    for each in raised:
        assert re.search(rf"^\| `{each.slug}` \| {each.http_status} ", TEXT, re.MULTILINE), each


def test_settings_that_are_named_exist() -> None:
    """Every environment variable that the page names is a setting."""
    named = set(re.findall(r"PERFBISECT_([A-Z_]+)", TEXT))
    assert named <= {name.upper() for name in Settings.model_fields}


def test_operations_have_a_summary_and_document_their_errors() -> None:
    """Each operation has a description; those under the API's prefix have problems as errors."""
    for name, (request, operation) in OPERATIONS.items():
        assert operation["description"], name
        for status, answer in operation["responses"].items():
            if status >= "400" and "/api/" in request:
                assert "application/problem+json" in answer["content"], (name, status)
