"""What the page of a bisection shows, put together from rows; templates only lay it out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.core.states import BisectionState, FailureKind, WorkState
from perfbisect.routers import present
from perfbisect.routers.charts import Evidence, chart_of, read_evidence
from perfbisect.routers.logs import is_over
from perfbisect.store import queries
from perfbisect.store.queries import Axis, Listing, PointCounts
from perfbisect.store.tables import BuildRow, CandidateRow, DecisionRow, PointRow, RunRow
from perfbisect.web.form_values import form_address
from perfbisect.web.plot import MAX_LEVELS, Plot, plot_of
from perfbisect.web.remaining import seconds_left

#: Rows of each table on the page at most; the API has them all.
DECISIONS = 200
WORKS = 80
MEASURED = 240
#: Positions on both sides of a step that are shown even where there are too many.
AROUND_STEPS = 15


@dataclass(frozen=True, slots=True)
class MeasuredCommit:
    """A row of the table of measured commits."""

    position: int
    sha: str
    subject: str
    mean: float | None
    low: float | None
    high: float | None
    points: int
    rejected: int
    #: ``good end``, ``bad end``, ``culprit`` or empty.
    role: str
    unbuildable: bool
    probability: float | None


@dataclass(frozen=True, slots=True)
class Work:
    """A build or a run as tables show it."""

    kind: str
    id: str
    position: int | None
    sha: str
    state: str
    #: For runs: host and purpose.
    host: str
    purpose: str
    started_at: Any
    finished_at: Any
    seconds: float | None
    cause: str
    advice: str
    lines: Sequence[Any]
    #: Another bisection had it built.
    shared: bool

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return is_over(WorkState(self.state))


@dataclass(frozen=True, slots=True)
class BisectionView:
    """The page of a bisection."""

    verdict: dict[str, Any]
    #: ``bad``, ``good``, ``unsure`` or ``busy``: colours the headline.
    tone: str
    change: float | None
    state: BisectionState
    last: int
    plot: Plot | None
    chart: dict[str, Any]
    measured: list[MeasuredCommit]
    #: How many there are; the table may show fewer.
    all_measured: int
    #: All builds and runs; the tables show the newest.
    work_counts: tuple[int, int]
    #: Lowest and highest end of the measured commits' intervals.
    span: tuple[float, float]
    decisions: list[DecisionRow]
    more_decisions: bool
    builds: list[Work]
    runs: list[Work]
    last_event_id: int
    #: Wheels that another bisection had built already.
    reused_wheels: int
    policy: Mapping[str, Any]
    request: Mapping[str, Any]
    repository_url: str
    #: About how many seconds of work are left; None where nothing can be said.
    left: float | None
    #: The form, filled in with the same request; empty where it can't hold it.
    again: str

    @property
    def now(self) -> list[Work]:
        """What is under way."""
        return [work for work in (*self.builds, *self.runs) if not work.over]

    @property
    def headline(self) -> str:
        """The first part of the sentence: what is certain; of several steps, how many."""
        start, found, _ = str(self.verdict["sentence"]).partition("; most likely so far: ")
        if found:
            return f"{start}."
        count, several, _ = start.partition(": ")
        return f"{count}." if several and self._lists_steps else start

    @property
    def listed(self) -> str:
        """The rest of a sentence that lists several steps; each has a card of its own."""
        if not self._lists_steps or self.so_far:
            return ""
        rest = str(self.verdict["sentence"]).partition(": ")[2]
        return rest[:1].upper() + rest[1:]

    @property
    def _lists_steps(self) -> bool:
        return len(self.verdict["culprits"]) > 1

    @property
    def so_far(self) -> str:
        """The best answer of an unfinished search; empty where there is none."""
        return str(self.verdict["sentence"]).partition("; most likely so far: ")[2]

    def unplaced(self, culprit: Mapping[str, Any]) -> str:
        """Return why a culprit is a set of commits."""
        broken = set(self.chart["unbuildable"])
        between = range(culprit["before_position"] + 1, culprit["position"])
        if all(position in broken for position in between):
            return "The commits between do not build, so the step can't be placed more exactly."
        if self.state is BisectionState.FINISHED:
            return "The search ended before it placed the step more exactly."
        return "The search has not placed the step more exactly yet."

    @property
    def troubles(self) -> list[Work]:
        """What failed last, where the bisection failed: the reason is there."""
        if self.verdict["outcome"] != "failed":
            return []
        return [work for work in (*self.builds, *self.runs) if work.state == "failed"][-3:]

    def along(self, value: float) -> float:
        """Return where a value stands on a bar of 120 units that spans all intervals."""
        low, high = self.span
        share = (value - low) / (high - low) if high > low else 0.5
        return round(4 + 112 * share, 1)

    @property
    def cancellable(self) -> bool:
        """Whether its end can still be asked for."""
        return (
            self.state is not BisectionState.FINISHED
            and self.verdict["cancel_requested_at"] is None
        )


_TONES = {
    "culprits": "bad",
    "not_reproduced": "good",
    "inconclusive": "unsure",
    "budget_exhausted": "unsure",
    "cancelled": "unsure",
    "failed": "bad",
}


def tone_of(verdict: Mapping[str, Any]) -> str:
    """Return what colours a verdict; recoveries alone are good news."""
    culprits = verdict["culprits"]
    if verdict["outcome"] == "culprits" and all(c["kind"] == "recovery" for c in culprits):
        return "good"
    return _TONES.get(str(verdict["outcome"]), "busy")


def bisection_view(session: Session, bisection_id: str) -> BisectionView:
    """Return everything the page shows.

    Raises:
        NotFoundError: no such bisection.
    """
    listing = queries.get_bisection(session, bisection_id)
    row = listing.row
    # Before the rest: what comes in between is followed, rather than missed.
    last_event_id = queries.last_event_id(session, bisection_id)
    evidence = read_evidence(session, listing)
    axis = evidence.axis
    builds = queries.axis_builds(session, row, newest=WORKS)
    runs = queries.runs_of(session, bisection_id, newest=WORKS)
    decisions, more = queries.decisions_of(session, bisection_id, limit=DECISIONS)
    verdict = present.verdict_of(listing)
    chart = chart_of(session, evidence, most_levels=MAX_LEVELS)
    last = max(len(axis.candidates) - 1, 0)
    positions = measured_positions(evidence)
    levels = ((row.belief or {}).get("levels") or {}).values()
    build_works = [build_work(build, axis, bisection_id) for build in builds]
    run_works = [run_work(run, axis) for run in runs]
    left = None
    if row.state is BisectionState.RUNNING:
        verified = sum(bool(culprit.get("verified")) for culprit in verdict["culprits"])
        left = seconds_left(row.belief, verified, build_works, run_works)
    return BisectionView(
        verdict=verdict,
        tone=tone_of(verdict),
        change=present.change_of(verdict),
        state=row.state,
        last=last,
        plot=plot_of(chart),
        chart=chart,
        measured=measured_commits(evidence, fewer(positions, chart["steps"], last)),
        all_measured=len(positions),
        work_counts=queries.count_work(session, row),
        span=(
            min((low for _, low, _ in levels), default=0.0),
            max((high for _, _, high in levels), default=0.0),
        ),
        decisions=decisions,
        more_decisions=more,
        builds=build_works,
        runs=run_works,
        last_event_id=last_event_id,
        reused_wheels=queries.count_reused_wheels(session, row),
        policy=row.policy,
        request=row.request,
        repository_url=listing.address,
        left=left,
        again=form_address(row.request),
    )


def measured_commits(
    evidence: Evidence, wanted: Collection[int] | None = None
) -> list[MeasuredCommit]:
    """Return commits with points, and those that do not build, in order of the axis.

    Args:
        wanted: only these positions; None: all.
    """
    row, axis = evidence.row, evidence.axis
    belief = row.belief or {}
    levels = belief.get("levels") or {}
    probability = {int(at): share for at, share in belief.get("step_probability") or []}
    counted = {axis.position_of_tree[tree]: count for tree, count in evidence.counts.items()}
    broken = set(evidence.broken)
    roles = _roles(row.verdict or {}, len(axis.candidates) - 1)
    rows = []
    for at in sorted({*counted, *broken} if wanted is None else wanted):
        count = counted.get(at, PointCounts())
        mean, low, high = levels.get(str(at), (None, None, None))
        rows.append(
            MeasuredCommit(
                position=at,
                sha=axis.candidates[at].sha,
                subject=axis.candidates[at].subject,
                mean=mean,
                low=low,
                high=high,
                points=count.accepted,
                rejected=count.rejected,
                role=roles.get(at, ""),
                unbuildable=at in broken,
                probability=probability.get(at),
            )
        )
    return rows


def measured_positions(evidence: Evidence) -> list[int]:
    """Return the positions with points, and those that do not build."""
    place = evidence.axis.position_of_tree
    return sorted({*(place[tree] for tree in evidence.counts), *evidence.broken})


def fewer(positions: list[int], steps: list[dict[str, Any]], last: int) -> list[int]:
    """Return the positions that matter: around the steps and the ends, and evenly in between."""
    if len(positions) <= MEASURED:
        return positions
    places = [int(step["position"]) for step in steps if step["position"] is not None]
    stride = -(-len(positions) // (MEASURED // 2))
    return [
        at
        for index, at in enumerate(positions)
        if at in (0, last)
        or index % stride == 0
        or any(abs(at - place) <= AROUND_STEPS for place in places)
    ]


def _roles(verdict: Mapping[str, Any], last: int) -> dict[int, str]:
    positions = verdict.get("positions") or {"good": 0, "bad": last}
    roles = {int(positions["good"]): "good end", int(positions["bad"]): "bad end"}
    for culprit in verdict.get("culprits") or []:
        if culprit.get("position") is not None:
            before = int(culprit.get("before_position", culprit["position"] - 1))
            suspects = range(before + 1, int(culprit["position"]) + 1)
            # Only a verified culprit is called one.
            if len(suspects) == 1 and culprit.get("verified"):
                roles[suspects[0]] = "culprit"
            for position in suspects:
                roles.setdefault(position, "suspect")
    return roles


def build_work(build: BuildRow, axis: Axis, bisection_id: str) -> Work:
    """Return a build as tables show it."""
    return Work(
        kind="build",
        id=build.id,
        position=axis.position_of_tree.get(build.tree),
        sha=build.commit_sha,
        state=build.state.value,
        host="",
        purpose="",
        started_at=build.started_at,
        finished_at=build.finished_at,
        seconds=build.seconds,
        cause=_cause(build.failure_kind, build.cause),
        advice=build.advice,
        lines=build.lines,
        shared=build.bisection_id != bisection_id,
    )


def run_work(run: RunRow, axis: Axis) -> Work:
    """Return a run as tables show it."""
    known = run.position < len(axis.candidates)
    return Work(
        kind="run",
        id=run.id,
        position=run.position,
        sha=axis.candidates[run.position].sha if known else "",
        state=run.state.value,
        host=run.host,
        purpose=run.purpose.value,
        started_at=run.started_at,
        finished_at=run.finished_at,
        seconds=run.seconds,
        cause=_cause(run.failure_kind, run.cause),
        advice=run.advice,
        lines=run.lines,
        shared=False,
    )


def _cause(kind: FailureKind | None, cause: str) -> str:
    return f"{kind.value}: {cause}" if kind is not None else cause


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
