"""What the page of a bisection shows, put together from rows; templates only lay it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from perfbisect.core.states import BisectionState
from perfbisect.routers import present
from perfbisect.routers.charts import chart_of, read_evidence
from perfbisect.store import page_queries, queries
from perfbisect.store.page_queries import AnyRow
from perfbisect.web.form_values import form_address
from perfbisect.web.measured_table import (
    MeasuredCommit,
    fewer,
    measured_commits,
    measured_positions,
)
from perfbisect.web.plot import MAX_LEVELS, Plot, plot_of
from perfbisect.web.remaining import seconds_left
from perfbisect.web.works import Work, build_work, run_work

#: Rows of each table on the page at most; the API has them all.
DECISIONS = 200
WORKS = 80


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
    decisions: Sequence[AnyRow]
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
        # The name of a commit has no capitals.
        begins_with_name = any(character.isdigit() for character in rest.partition(" ")[0])
        return rest if begins_with_name else rest[:1].upper() + rest[1:]

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
    builds = page_queries.newest_builds(session, row, WORKS)
    runs = page_queries.newest_runs(session, bisection_id, WORKS)
    decisions, more = page_queries.first_decisions(session, bisection_id, DECISIONS)
    verdict = present.verdict_of(listing)
    chart = chart_of(session, evidence, most_levels=MAX_LEVELS, named=False)
    last = max(len(axis.candidates) - 1, 0)
    positions = measured_positions(evidence)
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
