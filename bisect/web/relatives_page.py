"""Where a commit has gone: who took it back or carried it on, and which branches contain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from perfbisect.core.relations import Relation
from perfbisect.errors import PerfbisectError
from perfbisect.history import Mirror
from perfbisect.routers.bisections import BisectionId
from perfbisect.routers.deps import Opened
from perfbisect.services import Services
from perfbisect.store import queries
from perfbisect.store.queries import Listing
from perfbisect.web.templating import render
from perfbisect.work_orders import mirror_path

router = APIRouter(prefix="/bisections/{bisection_id}/commits/{position}")

#: Branches and tags that a page lists at most, each.
MOST_REFS = 200

Branch = Annotated[str, Query(max_length=300, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class Relatives:
    """What the mirror knows of a commit's place in history."""

    #: The nearest tag before it, and the distance.
    described: str
    relations: Sequence[Relation]
    branches: Sequence[str]
    tags: Sequence[str]
    #: Full SHA -> subject, of the commits that are related.
    subjects: Mapping[str, str]
    #: The branch that was asked about; empty: none was.
    branch: str = ""
    #: The commit itself is on that branch.
    contained: bool = False
    counterpart: Relation | None = None
    #: Why the question about the branch has no answer.
    trouble: str = ""


def relatives_of(services: Services, listing: Listing, sha: str, branch: str) -> Relatives | None:
    """Return where a commit has gone; None where its mirror is not on this machine.

    Args:
        branch: look for its counterpart there; empty: don't.
    """
    if listing.repository is None:
        return None
    try:
        path = mirror_path(services, listing.repository.url)
        if not path.is_dir():
            return None
        mirror = Mirror(path)
        relations = mirror.relations(sha)
        found = Relatives(
            described=mirror.describe(sha),
            relations=relations,
            branches=mirror.branches_containing(sha),
            tags=mirror.tags_containing(sha),
            subjects=_subjects(mirror, [relation.commit for relation in relations]),
        )
    except PerfbisectError:
        return None
    return _with_counterpart(mirror, found, sha, branch) if branch else found


def _with_counterpart(mirror: Mirror, found: Relatives, sha: str, branch: str) -> Relatives:
    if branch in (*found.branches, *found.tags):
        return replace(found, branch=branch, contained=True)
    try:
        counterpart = mirror.counterpart(sha, branch)
    except PerfbisectError as error:
        return replace(found, branch=branch, trouble=error.message)
    subjects = _subjects(mirror, [counterpart.commit]) if counterpart else {}
    return replace(
        found,
        branch=branch,
        counterpart=counterpart,
        subjects={**found.subjects, **subjects},
    )


def _subjects(mirror: Mirror, shas: Sequence[str]) -> dict[str, str]:
    found = {}
    for sha in dict.fromkeys(shas):
        try:
            found[sha] = mirror.commit(sha).subject
        except PerfbisectError:
            found[sha] = ""
    return found


@router.get("/relatives", response_class=HTMLResponse)
def show_relatives(
    request: Request,
    services: Opened,
    bisection_id: BisectionId,
    position: Annotated[int, Path(ge=0)],
    branch: Branch = "",
) -> HTMLResponse:
    """Show where a commit of the axis has gone, and its counterpart on another branch."""
    with services.database.read() as session:
        listing = queries.get_bisection(session, bisection_id)
        candidate = queries.candidate_at(session, bisection_id, position)
    context = {
        "bisection_id": bisection_id,
        "listing": listing,
        "candidate": candidate,
        "found": relatives_of(services, listing, candidate.sha, branch.strip()),
        "most": MOST_REFS,
    }
    return render(request, "relatives.html", context)
