"""A bisection under a conductor: its axis, its facts, its verdict, and the proof that follows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.building_notes import CarriedAlong, named_patches
from perfbisect.companion_checks import insert_check
from perfbisect.core.facts import Action, Finish, Step
from perfbisect.core.planner import believe
from perfbisect.core.planner import plan as make_plan
from perfbisect.core.states import Outcome
from perfbisect.errors import PerfbisectError
from perfbisect.gather import Capacity, gather, load_axis, load_policy
from perfbisect.history import Mirror
from perfbisect.jobs import Look
from perfbisect.proofs import PreparedProof, insert_proof, prepare_proof
from perfbisect.services import Services
from perfbisect.step_evidence import add_commit_ranges, published_at, read_git_versions
from perfbisect.store.carried import carried_along
from perfbisect.store.jobs import bisection
from perfbisect.store.tables import BisectionRow, RepositoryRow
from perfbisect.verdicts import assemble, belief_json
from perfbisect.work_orders import mirror_path

log = logging.getLogger(__name__)


class BisectionJob:
    """Implements ``jobs.Job`` for bisections."""

    def __init__(self, services: Services, bisection_id: str) -> None:
        self._services = services
        self.ref = bisection(bisection_id)
        with services.database.read() as session:
            row = session.get_one(BisectionRow, bisection_id)
            self._axis = load_axis(session, bisection_id)
            self._policy = load_policy(row)
            self._benchmark_digest = row.benchmark_digest
            #: None: versions of a package, which can be neither reverted nor picked.
            self._url: str | None = None
            if row.repository_id is not None:
                self._url = session.get_one(RepositoryRow, row.repository_id).url
            #: A companion is bisected: it can't be measured with changes, only as it was.
            self._bisected = "bisected" in (row.companions or {})
            self._prove = bool(row.request.get("prove", True)) and not self._bisected

    def look(self, session: Session, capacity: Capacity, elapsed: float) -> Look:
        """Read everything that bears on the bisection."""
        row = session.get_one(BisectionRow, self.ref.id)
        found = gather(session, row, self._axis, self._policy, capacity, elapsed)
        return Look(found.facts, found.wheels, found.trouble, found.failures)

    def decide(self, look: Look) -> Sequence[Action]:
        """Ask the search's planner."""
        plan = make_plan(look.facts)
        look.belief = plan.belief
        return plan.actions

    def representative(self, position: int) -> int:
        """Return the smallest position with the same tree."""
        return self._axis.representative(position)

    def source_of(self, position: int) -> tuple[str, str]:
        """Return tree and commit of a position."""
        return self._axis.trees[position], self._axis.shas[position]

    def benchmark_of(self, position: int) -> str:
        """Return the bisection's one benchmark, or the position's own where a companion moves."""
        return self._axis.benchmark(position) or self._benchmark_digest

    def progress(self, session: Session, look: Look) -> dict[str, Any]:
        """Store verdict and belief so far."""
        row = session.get_one(BisectionRow, self.ref.id)
        row.verdict = assemble(session, row, self._axis, look, None)
        if look.belief is not None:
            row.belief = belief_json(look.belief)
        return _summary(row.verdict)

    def prepare_end(self, look: Look, action: Finish) -> Any:
        """Resolve the revisions that prove the culprits; of versions, read which commits they are.

        Returns:
            a proof, or position -> git version; None: neither is of use.
        """
        if look.belief is None:
            look.belief = believe(look.facts)
        if action.outcome is not Outcome.CULPRITS:
            return None
        steps = [step for step in look.belief.steps if step.verified]
        if self._url is None:
            return self._git_versions(steps)
        if not self._prove:
            return None
        mirror = self._mirror(self._url)
        return prepare_proof(mirror, self._axis, self._policy, steps, self._carried())

    def _carried(self) -> CarriedAlong:
        """Return what is carried along the axis."""
        with self._services.database.read() as session:
            request = session.get_one(BisectionRow, self.ref.id).request
            changes = carried_along(session, self.ref.id)
        return CarriedAlong(changes, named_patches(request.get("carry") or ()))

    def end(self, session: Session, look: Look, action: Finish, prepared: Any) -> dict[str, Any]:
        """Store the final belief and start the proof; return the verdict."""
        row = session.get_one(BisectionRow, self.ref.id)
        if look.belief is not None:
            row.belief = belief_json(look.belief)
        verdict = assemble(session, row, self._axis, look, action, self._relations)
        if isinstance(prepared, PreparedProof):
            insert_proof(session, row, prepared, verdict)
        elif prepared:
            add_commit_ranges(verdict["culprits"], prepared)
            verdict["sentence"] = report.sentence(verdict)
        if action.outcome is Outcome.CULPRITS:
            insert_check(session, row, self._axis, self._policy, verdict)
        return verdict

    def _git_versions(self, steps: Sequence[Step]) -> dict[int, str]:
        positions = {position for step in steps for position in (step.before, step.after)}
        with self._services.database.read() as session:
            row = session.get_one(BisectionRow, self.ref.id)
            wheels = published_at(session, row, positions)
        return read_git_versions(self._services, wheels)

    def _mirror(self, url: str) -> Mirror:
        return Mirror(mirror_path(self._services, url))

    def _relations(self, sha: str) -> list[dict[str, Any]]:
        """Return what the whole history knows; trouble with git must not keep an end from us."""
        if self._url is None:
            return []
        try:
            return [asdict(relation) for relation in self._mirror(self._url).relations(sha)]
        except PerfbisectError as error:
            log.warning("relations of %s: %s", sha, error)
            return []


def _summary(verdict: dict[str, Any]) -> dict[str, Any]:
    keys = ("culprits", "explained", "noise", "confidence", "missed", "builds", "runs")
    return {key: verdict.get(key) for key in keys}
