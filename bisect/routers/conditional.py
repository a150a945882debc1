"""Answers that are sent again only if they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Header, Response

from perfbisect.reports.formats import finite

IfNoneMatch = Annotated[
    str | None, Header(max_length=1000, description="`ETag` of the answer that is there already.")
]

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "Unchanged."}}


def conditional_json(value: Mapping[str, Any], if_none_match: str | None) -> Response:
    """Return JSON, or that it is unchanged."""
    return conditional(json_text(value).encode(), if_none_match, media_type="application/json")


def json_text(value: Mapping[str, Any]) -> str:
    """Return JSON without spaces."""
    options: Any = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    try:
        return json.dumps(value, **options)
    except ValueError:
        return json.dumps(finite(value), **options)


def conditional(
    content: bytes,
    if_none_match: str | None,
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    cache_control: str = "no-cache",
) -> Response:
    """Return content with its ``ETag``, or that it is what the caller has already."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    told = {**(headers or {}), "ETag": etag, "Cache-Control": cache_control}
    if if_none_match is not None and etag in _etags(if_none_match):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=told)
    return Response(content, media_type=media_type, headers=told)


def _etags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}
