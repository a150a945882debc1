"""The API keeps the promises of its own OpenAPI document, whatever is sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.helpers.seeding import Seed
from tests.helpers.serving import listening, settings_in, shown_app

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: Requests to each operation of each kind.
EXAMPLES = 6


@pytest.fixture(scope="module")
def schema(
    tmp_path_factory: pytest.TempPathFactory, seeded: tuple[Path, Seed, Seed]
) -> Iterator[Any]:
    """The OpenAPI document of a listening service."""
    place = settings_in(tmp_path_factory.mktemp("schema"))
    shutil.copytree(seeded[0], place.data_dir)
    with listening(shown_app(place)) as url:
        yield schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json")


def operations() -> dict[str, dict[str, Any]]:
    """Return the operations of the document, which is made without opening anything."""
    paths = shown_app(settings_in(Path("unused"))).openapi()["paths"]
    return {
        operation["operationId"]: operation
        for methods in paths.values()
        for operation in methods.values()
    }


OPERATIONS = operations()
#: Those to which something wrong can be sent.
WITH_INPUT = [key for key, value in OPERATIONS.items() if {"parameters", "requestBody"} & {*value}]


def examine(schema: Any, operation_id: str, mode: GenerationMode, known: dict[str, str]) -> None:
    """Send requests to one operation and check every answer against the document."""
    operation = schema.find_operation_by_id(operation_id)

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case[Any]) -> None:
        # Wrong tokens would keep every request from getting further; tests/unit/test_access.py
        # sends them.
        case.headers.pop("Authorization", None)
        for name in case.path_parameters:
            if name in known:
                case.path_parameters[name] = known[name]
        case.call_and_validate(checks=CHECKS)

    send()


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_valid_requests_are_answered_as_documented(schema: Any, operation_id: str) -> None:
    """Random requests that fit the document get documented answers only, and never a 5xx."""
    examine(schema, operation_id, GenerationMode.POSITIVE, {})


@pytest.mark.parametrize("operation_id", WITH_INPUT)
def test_invalid_requests_are_answered_as_documented(schema: Any, operation_id: str) -> None:
    """Random requests that break the document get documented answers only, and never a 5xx."""
    examine(schema, operation_id, GenerationMode.NEGATIVE, {})


#: Asks a host that is not there for the repository of the seeded bisection.
BEYOND = {"rerunBisection"}


@pytest.mark.parametrize("operation_id", sorted({*OPERATIONS} - BEYOND))
def test_answers_about_what_is_there_fit_their_schema(
    schema: Any, operation_id: str, seeded: tuple[Path, Seed, Seed]
) -> None:
    """With ids that exist, the bodies of the answers fit the documented schema."""
    finished = seeded[1]
    known = {
        "bisection_id": finished.id,
        "build_id": finished.known_build,
        "run_id": finished.known_run,
    }
    examine(schema, operation_id, GenerationMode.POSITIVE, known)
