"""What an experiment takes from a bisection: what was measured, and whom it suspects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfbisect.errors import BadInputError
from perfbisect.routers import present
from perfbisect.services import Services
from perfbisect.store import queries

#: Commits of a culprit set that are suspected together, at most.
MOST_OF_A_SET = 20


@dataclass(frozen=True, slots=True)
class Subject:
    """What a bisection was about."""

    bisection: str
    #: URL or path.
    repository: str
    recipe: str | dict[str, Any]
    benchmark: str | dict[str, Any]
    #: Commit of the bad end.
    bad: str
    #: Commits of all regressions, in the order of the axis.
    regressions: tuple[str, ...]

    def suspects(self) -> tuple[str, ...]:
        """Return the commits of all regressions.

        Raises:
            BadInputError: there are none.
        """
        if not self.regressions:
            raise BadInputError(
                f"--bisection: bisection {self.bisection} names no regression whose commits could "
                "be reverted; list the suspects with --revert",
                field="--bisection",
                value=self.bisection,
            )
        return self.regressions


def subject_of(services: Services, bisection_id: str) -> Subject:
    """Return what a bisection was about.

    Raises:
        NotFoundError: no such bisection.
        BadInputError: it is about published wheels, to which no change can be applied.
    """
    with services.database.read() as session:
        listing = queries.get_bisection(session, bisection_id)
        verdict, row = present.verdict_of(listing), listing.row
        url = listing.repository.url if listing.repository is not None else None
    recipe, benchmark = row.request.get("recipe"), row.request.get("benchmark")
    if url is None or recipe is None or benchmark is None:
        raise BadInputError(
            f"--bisection: bisection {bisection_id} is about published wheels: there is no commit "
            "to revert or to pick",
            field="--bisection",
            value=bisection_id,
        )
    regressions = [
        sha
        for culprit in verdict["culprits"]
        if culprit.get("kind") == "regression" and len(culprit["commits"]) <= MOST_OF_A_SET
        for sha in culprit["commits"]
    ]
    return Subject(bisection_id, url, recipe, benchmark, row.bad_sha, tuple(regressions))
