"""Errors over HTTP: one mapping to problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from perfbisect.errors import LimitedError, PerfbisectError

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:perfbisect:problem:"


class FieldProblem(BaseModel):
    """One thing that is wrong with one field."""

    field: str = Field(description="Where: body, query, path or header, then the name.")
    message: str


class Problem(BaseModel):
    """What every error looks like (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:perfbisect:problem:not-found",
                "title": "Not Found",
                "status": 404,
                "detail": "no bisection '01J…'",
                "field": "bisection_id",
            }
        }
    )

    type: str
    title: str
    status: int
    detail: str
    field: str | None = Field(default=None, description="The field at fault, where there is one.")
    errors: list[FieldProblem] | None = None


class ProblemResponse(JSONResponse):
    """A response of type ``application/problem+json``."""

    media_type = MEDIA_TYPE


def problem_response(
    status: int,
    detail: str,
    *,
    slug: str = "",
    field: str = "",
    errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """Return a problem; without a slug its type is made from the status."""
    title = HTTPStatus(status).phrase
    content: dict[str, Any] = {
        "type": _TYPE + (slug or title.lower().replace(" ", "-")),
        "title": title,
        "status": int(status),
        "detail": detail,
    }
    if field:
        content["field"] = field
    if errors:
        content["errors"] = list(errors)
    return ProblemResponse(content, status_code=int(status), headers=dict(headers or {}))


def error_problem(error: PerfbisectError) -> ProblemResponse:
    """Return the problem of an error raised on purpose."""
    headers: dict[str, str] = {}
    if error.http_status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = "5"
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = 'Bearer realm="perfbisect"'
    if isinstance(error, LimitedError):
        headers["retry-after"] = str(error.retry_after)
    return problem_response(
        error.http_status, error.message, slug=error.slug, field=error.field, headers=headers
    )


def _field_of(item: Mapping[str, Any]) -> str:
    """Return the place of a mistake; where the body is no JSON, all of it."""
    place = item["loc"][:1] if item["type"] == "json_invalid" else item["loc"]
    return ".".join(str(part) for part in place)


def validation_problem(error: RequestValidationError) -> ProblemResponse:
    """Return the problem of a request that does not fit its schema, naming every field."""
    errors = [{"field": _field_of(item), "message": str(item["msg"])} for item in error.errors()]
    first = errors[0] if errors else {"field": "", "message": "the request is not valid"}
    return problem_response(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"{first['field']}: {first['message']}",
        slug="bad-input",
        field=first["field"].removeprefix("body."),
        errors=errors,
    )


def unexpected_problem(request_id: str) -> ProblemResponse:
    """Return the problem of a mistake of ours; its cause is in the log under the request's id."""
    return problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"a mistake of ours; the log has it under request {request_id}",
        slug="internal",
    )


#: For ``responses=`` of every route: what errors look like in OpenAPI.
def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI entries for these error statuses."""
    return {
        status: {
            "model": Problem,
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }
