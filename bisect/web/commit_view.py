"""What the page of a commit shows, put together from rows; its template only lays it out."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from perfbisect.store import queries
from perfbisect.store.queries import Listing
from perfbisect.store.tables import CandidateRow, PointRow
from perfbisect.web.works import Work, build_work, run_work


@dataclass(frozen=True, slots=True)
class CommitView:
    """The page of a commit on an axis."""

    listing: Listing
    candidate: CandidateRow
    last: int
    builds: list[Work]
    runs: list[Work]
    points: list[PointRow]
    level: tuple[float, float, float] | None
    probability: float | None
    #: Neighbours that are measured: where to look next.
    before: int | None
    after: int | None
    #: Other positions with the same tree.
    same_tree: list[int]


def commit_view(session: Session, bisection_id: str, position: int) -> CommitView:
    """Return everything the page of a commit shows.

    Raises:
        NotFoundError: no such bisection, or no such position.
    """
    listing = queries.get_bisection(session, bisection_id)
    candidate = queries.candidate_at(session, bisection_id, position)
    row = listing.row
    axis = queries.axis_of(session, bisection_id)
    belief = row.belief or {}
    levels = {int(at): level for at, level in (belief.get("levels") or {}).items()}
    own = axis.position_of_tree.get(candidate.tree, position)
    level = levels.get(position) or levels.get(own)
    strip = {int(at): float(share) for at, share in belief.get("step_probability") or []}
    same_tree = [
        other.position
        for other in axis.candidates
        if other.tree == candidate.tree and other.position != position
    ]
    runs = [
        run
        for place in (position, *same_tree)
        for run in queries.runs_of(session, bisection_id, position=place)
    ]
    return CommitView(
        listing=listing,
        candidate=candidate,
        last=max(len(axis.candidates) - 1, 0),
        builds=[
            build_work(build, axis, bisection_id)
            for build in queries.axis_builds(session, row, tree=candidate.tree)
        ],
        runs=[run_work(run, axis) for run in runs],
        points=queries.axis_points(session, row, tree=candidate.tree),
        level=(level[0], level[1], level[2]) if level else None,
        probability=strip.get(position),
        before=max((at for at in levels if at < position), default=None),
        after=min((at for at in levels if at > position), default=None),
        same_tree=same_tree,
    )
