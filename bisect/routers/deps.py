"""What routes are given: the open services, and parameters that many of them share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query, Request

from perfbisect.services import Services

PREFIX = "/api/v1"

#: Rows of a page unless asked otherwise, and at most.
DEFAULT_LIMIT = 50
MAX_LIMIT = 500


def services_of(request: Request) -> Services:
    """Return the services that the application's lifespan opened."""
    services: Services = request.app.state.services
    return services


Opened = Annotated[Services, Depends(services_of)]

#: Text to look for: PostgreSQL can't hold a NUL character.
Words = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Rows of a page at most.")]
After = Annotated[
    str | None,
    Query(
        alias="after",
        max_length=40,
        pattern=r"^[0-9A-Z]*$",
        description="Where the next page begins: `next` of the page before.",
    ),
]
NumberAfter = Annotated[
    int, Query(alias="after", ge=0, lt=2**53, description="Only rows with a greater id.")
]

Since = Annotated[datetime | None, Query(description="At or after this moment.")]
Until = Annotated[datetime | None, Query(description="Before this moment.")]


def aware(moment: datetime | None) -> datetime | None:
    """Take a moment without a time zone for UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)
