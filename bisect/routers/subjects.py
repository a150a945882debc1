"""What an experiment takes from a bisection: what was measured, and whom it suspects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfbisect.errors import BadInputError
from perfbisect.request_models import ExperimentRequest, ExperimentSubmission
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

    def suspects(self, field: str = "bisection") -> tuple[str, ...]:
        """Return the commits of all regressions.

        Args:
            field: what named the bisection, for the message.

        Raises:
            BadInputError: there are none.
        """
        if not self.regressions:
            raise BadInputError(
                f"{field}: bisection {self.bisection} names no regression whose commits could "
                "be reverted; list the suspects as reverts",
                field=field,
                value=self.bisection,
            )
        return self.regressions


def subject_of(services: Services, bisection_id: str, field: str = "bisection") -> Subject:
    """Return what a bisection was about.

    Args:
        field: what named the bisection, for messages.

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
            f"{field}: bisection {bisection_id} is about published wheels: there is no commit "
            "to revert or to pick",
            field=field,
            value=bisection_id,
        )
    regressions = [
        sha
        for culprit in verdict["culprits"]
        if culprit.get("kind") == "regression" and len(culprit["commits"]) <= MOST_OF_A_SET
        for sha in culprit["commits"]
    ]
    return Subject(bisection_id, url, recipe, benchmark, row.bad_sha, tuple(regressions))


def completed(services: Services, body: ExperimentSubmission) -> ExperimentRequest:
    """Return the request with what it leaves to its bisection filled in.

    Raises:
        NotFoundError: no such bisection.
        BadInputError: the bisection can't tell what is missing.
    """
    told = body.model_dump(mode="json", exclude={"bisection"})
    if body.bisection is not None:
        subject = subject_of(services, body.bisection)
        told["repository"] = body.repository or subject.repository
        told["recipe"] = body.recipe or subject.recipe
        told["benchmark"] = body.benchmark or subject.benchmark
        if not told["arms"]:
            told["arms"] = [{"revert": _reverts(body, subject)}]
        for arm in (*told["arms"], *([told["against"]] if told["against"] else ())):
            arm["base"] = arm.get("base") or subject.bad
    return ExperimentRequest.model_validate(told)


def _reverts(body: ExperimentSubmission, subject: Subject) -> list[str]:
    """Return what an experiment without arms reverts."""
    if not body.minimise_reverts:
        raise BadInputError(
            "arms: say what to revert or to pick, or ask for minimise_reverts", field="arms"
        )
    return list(subject.suspects())
