"""What routes are given: the open services, and parameters that many of them share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from perfbisect.core.moments import in_utc
from perfbisect.core.states import BisectionState, Outcome
from perfbisect.services import Services
from perfbisect.store.job_queries import JobFilter

PREFIX = "/api/v1"

#: Rows of a page unless asked otherwise, and at most.
DEFAULT_LIMIT = 50
MAX_LIMIT = 500


def services_of(request: Request) -> Services:
    """Return the services that the application's lifespan opened."""
    services: Services = request.app.state.services
    return services


Opened = Annotated[Services, Depends(services_of)]


def words(description: str | None = None) -> Any:
    """Return a query parameter for text to look for: PostgreSQL can't hold a NUL character."""
    return Query(max_length=200, pattern=r"^[^\x00]*$", description=description)


Words = Annotated[str | None, words()]

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

#: In UTC; one without a time zone is taken for that.
_Moment = Annotated[datetime, AfterValidator(in_utc)]
Since = Annotated[_Moment | None, Query(description="At or after this moment.")]
Until = Annotated[_Moment | None, Query(description="Before this moment.")]


def job_filter(
    state: BisectionState | None = None,
    outcome: Outcome | None = None,
    repository: Annotated[str | None, words("Name or URL.")] = None,
    culprit: Annotated[str | None, words("A culprit, or how its name begins.")] = None,
    commit: Annotated[
        str | None, words("A commit of the axis or of an arm, or how its name begins.")
    ] = None,
    benchmark: Annotated[str | None, words("Name or digest.")] = None,
    host: Annotated[str | None, words("Where something was run for it.")] = None,
    requested_by: Words = None,
    since: Annotated[Since, Query(description="Submitted at or after this moment.")] = None,
    until: Annotated[Until, Query(description="Submitted before this moment.")] = None,
    q: Annotated[str | None, words("Words found anywhere in it.")] = None,
) -> JobFilter:
    """Return which bisections or experiments are wanted."""
    return JobFilter(
        state=state,
        outcome=outcome,
        repository=repository,
        culprit=lower(culprit),
        commit=lower(commit),
        benchmark=benchmark,
        host=host,
        requested_by=requested_by,
        since=since,
        until=until,
        q=q,
    )


def lower(sha: str | None) -> str | None:
    """Return a commit's name as git writes it; versions have no capitals either."""
    return None if sha is None else sha.strip().lower()


Wanted = Annotated[JobFilter, Depends(job_filter)]
