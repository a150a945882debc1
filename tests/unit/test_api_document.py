"""docs/api.md says what the API does, and the OpenAPI document is fit to be read by programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.helpers.serving import settings_in, shown_app

from perfbisect import errors
from perfbisect.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PROMISES = ROOT / "tests" / "data" / "api_promises.json"
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


def test_what_was_promised_is_still_there() -> None:
    """Operations, their parameters and the fields of their answers stay; more may be added.

    After adding some: ``python tests/unit/test_api_document.py`` writes down what is promised.
    """
    promised: dict[str, Any] = json.loads(PROMISES.read_text(encoding="utf-8"))
    kept = promises()
    for name, promise in promised.items():
        assert name in kept, f"{name} is gone"
        now = kept[name]
        assert now["request"] == promise["request"], name
        assert set(promise["parameters"]) <= set(now["parameters"]), name
        assert set(now["required"]) <= set(promise["required"]), f"{name} needs more than before"
        for status, fields in promise["answers"].items():
            assert set(fields) <= set(now["answers"].get(status, [])), (name, status)


def promises() -> dict[str, Any]:
    """Return what clients rely on, by operation."""
    return {name: _promise(request, operation) for name, (request, operation) in OPERATIONS.items()}


def _promise(request: str, operation: dict[str, Any]) -> dict[str, Any]:
    parameters = [each for each in operation.get("parameters", []) if each["in"] != "header"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    fields = _fields(body.get("schema", {}))
    required = [each["name"] for each in parameters if each["required"]]
    return {
        "request": request,
        "parameters": sorted([*(each["name"] for each in parameters), *fields]),
        "required": sorted([*required, *_named(body.get("schema", {})).get("required", [])]),
        "answers": {
            status: sorted(_fields(_json(answer)))
            for status, answer in operation["responses"].items()
            if status < "300"
        },
    }


def _json(answer: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, and the items of a list or page."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for inner in (schema.get("items"), schema.get("properties", {}).get("items", {}).get("items")):
        if isinstance(inner, dict):
            return _named(inner)
    return schema


def _fields(schema: dict[str, Any]) -> list[str]:
    return list(_named(schema).get("properties", {}))


if __name__ == "__main__":
    PROMISES.write_text(json.dumps(promises(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
