"""A database with bisections in it as the conductor leaves them: one finished, one running.

The values are made by a formula, not drawn, so that every test and screenshot sees the same.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect import report
from perfbisect.core.states import (
    BisectionState,
    FailureKind,
    Outcome,
    Purpose,
    WorkState,
)
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import (
    BenchmarkRow,
    BisectionRow,
    BuildRow,
    CandidateRow,
    DecisionRow,
    EventRow,
    HostRow,
    PointRow,
    RecipeRow,
    RepositoryRow,
    RunRow,
    WheelRow,
)

SUBJECTS = (
    "Move shape checks out of the inner loop",
    "Add a test for empty batches",
    "Update the documentation of the data loader",
    "Use a vector of spans for the op context",
    "Rename internal flags",
    "Fix a race when the profiler stops",
    "Cache the layout of convolution filters",
    "Remove unused includes",
)
BENCHMARK = {
    "name": "resnet50-train",
    "command": "{python} resnet50.py",
    "metric": {"reader": "regex", "pattern": "images/sec: ([0-9.]+)"},
    "unit": "images/s",
    "better": "higher",
}
RECIPE = {"name": "tf2-cuda10", "kind": "bazel", "cuda": True}


def fake_sha(*parts: object) -> str:
    """Return 40 hexadecimal digits that stay the same."""
    return hashlib.sha1("/".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()


def wobble(*parts: object) -> float:
    """Return a number between -1 and 1 that stays the same: the noise of a run."""
    return math.sin(int(fake_sha(*parts)[:8], 16))


@dataclass
class Seed:
    """Writes a bisection step by step, as a conductor would."""

    services: Services
    n: int = 48
    name: str = "framework"
    host: str = "gpu-17"
    #: Position -> factor on the value from there on.
    steps: dict[int, float] = field(default_factory=lambda: {31: 0.62})
    subjects: dict[int, str] = field(default_factory=dict)
    author: str = "An author"
    base: float = 9000.0
    noise: float = 0.012
    id: str = field(default_factory=new_id)
    started: datetime = field(default_factory=lambda: now() - timedelta(hours=2))
    runs: int = 0
    points: dict[int, list[float]] = field(default_factory=dict)
    wheels: dict[int, str] = field(default_factory=dict)
    #: Ids of the last build and the last run.
    known_build: str = ""
    known_run: str = ""

    def on(self, services: Services) -> Seed:
        """Return the same bisection on a copy of its database."""
        points = {position: list(values) for position, values in self.points.items()}
        return replace(self, services=services, points=points, wheels=dict(self.wheels))

    def sha(self, position: int) -> str:
        return fake_sha(self.name, position)

    def tree(self, position: int) -> str:
        return fake_sha(self.name, "tree", position)

    @property
    def recipe_digest(self) -> str:
        return fake_sha("recipe") + "0" * 24

    @property
    def benchmark_digest(self) -> str:
        return fake_sha("benchmark", self.name) + "0" * 24

    def level(self, position: int) -> float:
        value = self.base
        for at, factor in self.steps.items():
            if position >= at:
                value *= factor
        return value

    def submit(self, *, requested_by: str = "release-team", origin: str = "api") -> str:
        """Insert repository, names, bisection and candidates."""
        with self.services.database.write() as session:
            repository = session.scalar(
                select(RepositoryRow).where(RepositoryRow.name == self.name)
            )
            if repository is None:
                repository = RepositoryRow(
                    id=new_id(),
                    name=self.name,
                    url=f"https://example.org/{self.name}.git",
                    created_at=self.started,
                )
                session.add(repository)
            if session.get(RecipeRow, self.recipe_digest) is None:
                session.add(
                    RecipeRow(
                        digest=self.recipe_digest,
                        name="tf2-cuda10",
                        definition=RECIPE,
                        created_at=self.started,
                    )
                )
            if session.get(BenchmarkRow, self.benchmark_digest) is None:
                session.add(
                    BenchmarkRow(
                        digest=self.benchmark_digest,
                        name="resnet50-train",
                        definition=BENCHMARK,
                        files={},
                        created_at=self.started,
                    )
                )
            if session.get(HostRow, self.host) is None:
                session.add(
                    HostRow(
                        name=self.host,
                        pool="gpu",
                        facts={"cpu": "64 cores", "gpus": ["V100", "V100"]},
                        created_at=self.started,
                        last_seen_at=now(),
                    )
                )
            session.flush()
            session.add(self._row(repository.id, requested_by, origin))
            session.flush()
            session.add_all(self._candidate(position) for position in range(self.n + 1))
            session.add(self._event("submitted", {}))
        return self.id

    def _row(self, repository_id: str, requested_by: str, origin: str) -> BisectionRow:
        return BisectionRow(
            id=self.id,
            state=BisectionState.QUEUED,
            request={
                "repository": f"https://example.org/{self.name}.git",
                "good": self.sha(0)[:10],
                "bad": self.sha(self.n)[:10],
                "recipe": "tf2-cuda10",
                "benchmark": "resnet50-train",
                "threshold": "80%",
                "min_effect": "3%",
                "find": "all",
            },
            request_digest=fake_sha("request", self.id),
            repository_id=repository_id,
            good_sha=self.sha(0),
            bad_sha=self.sha(self.n),
            recipe_digest=self.recipe_digest,
            benchmark_digest=self.benchmark_digest,
            recipe=RECIPE,
            benchmark=BENCHMARK,
            policy={
                "better": "higher",
                "min_effect": 0.03,
                "find": "all",
                "confidence": 0.99,
            },
            requested_by=requested_by,
            origin=origin,
            created_at=self.started,
        )

    def _candidate(self, position: int) -> CandidateRow:
        default = SUBJECTS[position % len(SUBJECTS)]
        return CandidateRow(
            bisection_id=self.id,
            position=position,
            sha=self.sha(position),
            tree=self.tree(position),
            subject=self.subjects.get(position, default),
            author=self.author,
            committed_at=self.started - timedelta(hours=3 * (self.n - position)),
            weight=0.0 if position == 0 else 1.0,
            relations=[],
        )

    def _event(self, kind: str, data: dict[str, Any]) -> EventRow:
        return EventRow(bisection_id=self.id, kind=kind, data=data, at=now())

    def start(self) -> None:
        """Mark it running."""
        with self.services.database.write() as session:
            row = session.get_one(BisectionRow, self.id)
            row.state = BisectionState.RUNNING
            row.started_at = self.started
            session.add(self._event("started", {}))

    def build(
        self,
        position: int,
        *,
        state: WorkState = WorkState.SUCCEEDED,
        reason: str = "",
        log: str = "",
        cause: str = "error: 'Span' does not name a type",
    ) -> str:
        """Insert a decision and its build; a wheel too where it succeeded."""
        build_id = self.known_build = new_id()
        failed = state is WorkState.FAILED
        over = state is not WorkState.RUNNING
        with self.services.database.write() as session:
            session.add(
                BuildRow(
                    id=build_id,
                    bisection_id=self.id,
                    tree=self.tree(position),
                    recipe_digest=self.recipe_digest,
                    commit_sha=self.sha(position),
                    state=state,
                    owner="seed:1:0:0",
                    failure_kind=FailureKind.PERMANENT if failed else None,
                    cause=cause if failed else "",
                    lines=[f"kernels/conv.cc:42:7: {cause}"] if failed else [],
                    environment={},
                    created_at=now(),
                    started_at=now(),
                    finished_at=now() if over else None,
                    seconds=312.5 if over else None,
                )
            )
            session.flush()
            if state is WorkState.SUCCEEDED:
                self.wheels[position] = new_id()
                session.add(self._wheel(position, build_id))
            self._decide(session, "build", position, reason, build_id)
        path = self.services.settings.logs_dir / f"{build_id}.log"
        path.write_text(log or f"Building {self.sha(position)}\nINFO: Build completed\n")
        return build_id

    def _wheel(self, position: int, build_id: str) -> WheelRow:
        return WheelRow(
            id=self.wheels[position],
            tree=self.tree(position),
            recipe_digest=self.recipe_digest,
            commit_sha=self.sha(position),
            build_id=build_id,
            filename="framework-2.1.0-cp37-cp37m-linux_x86_64.whl",
            sha256=hashlib.sha256(self.sha(position).encode()).hexdigest(),
            size=412_000_000,
            artifact=f"sha256/{fake_sha('artifact', position)}",
            created_at=now(),
        )

    def _decide(
        self, session: Session, kind: str, position: int | None, reason: str, work_id: str | None
    ) -> None:
        row = DecisionRow(
            bisection_id=self.id,
            kind=kind,
            position=position,
            host=self.host if kind == "run" else None,
            purpose=Purpose.SEARCH if kind == "run" else None,
            reason=reason or f"{kind} position {position}: halves what is in doubt",
            work_id=work_id,
            at=now(),
        )
        session.add(row)
        session.flush()
        session.add(self._event("decision", {"decision_id": row.id, "kind": kind}))

    def run(
        self,
        position: int,
        *,
        purpose: Purpose = Purpose.SEARCH,
        state: WorkState = WorkState.SUCCEEDED,
        rejected: str = "",
        reason: str = "",
        log: str = "",
    ) -> str:
        """Insert a decision and its run; a point too where it succeeded."""
        if position not in self.wheels:
            self.build(position)
        run_id = self.known_run = new_id()
        self.runs += 1
        over = state is not WorkState.RUNNING
        with self.services.database.write() as session:
            session.add(
                RunRow(
                    id=run_id,
                    bisection_id=self.id,
                    position=position,
                    wheel_id=self.wheels[position],
                    benchmark_digest=self.benchmark_digest,
                    host=self.host,
                    purpose=purpose,
                    state=state,
                    owner="seed:1:0:0",
                    lines=[],
                    created_at=now(),
                    started_at=now(),
                    finished_at=now() if over else None,
                    seconds=41.2 if over else None,
                )
            )
            session.flush()
            self._decide(session, "run", position, reason, run_id)
            if state is WorkState.SUCCEEDED:
                session.add(self._point(position, run_id, purpose, rejected))
                session.add(self._event("run_finished", {"run_id": run_id}))
        path = self.services.settings.logs_dir / f"{run_id}.log"
        path.write_text(log or "epoch 1\nimages/sec: 9001.2\n")
        return run_id

    def _point(self, position: int, run_id: str, purpose: Purpose, rejected: str) -> PointRow:
        noise = 1 + self.noise * wobble(self.name, position, self.runs)
        value = self.level(position) * noise * (0.7 if rejected else 1.0)
        if not rejected:
            self.points.setdefault(position, []).append(value)
        return PointRow(
            id=new_id(),
            run_id=run_id,
            bisection_id=self.id,
            wheel_id=self.wheels[position],
            tree=self.tree(position),
            recipe_digest=self.recipe_digest,
            commit_sha=self.sha(position),
            benchmark_digest=self.benchmark_digest,
            host=self.host,
            purpose=purpose,
            value=value,
            unit="images/s",
            within=[value, value],
            measured_at=now(),
            seconds=41.2,
            environment={"driver": "418.87", "gpu": "V100", "load": 0.12},
            rejected=rejected,
        )

    def mean(self, position: int) -> tuple[float, float, float]:
        """Return mean and 95% interval of a position's points."""
        values = self.points[position]
        mean = sum(values) / len(values)
        half = 1.96 * self.noise * mean / math.sqrt(len(values))
        return mean, mean - half, mean + half

    def believe(self, strip: dict[int, float] | None = None) -> None:
        """Write what the points say, and the verdict so far."""
        with self.services.database.write() as session:
            row = session.get_one(BisectionRow, self.id)
            row.belief = {
                "step_probability": [[at, p] for at, p in sorted((strip or {}).items())],
                "levels": {str(at): list(self.mean(at)) for at in sorted(self.points)},
                "threshold": self.base * 0.8,
                "host_offsets": {},
                "drift": 0.004,
            }
            row.verdict = self.verdict(outcome=None, culprits=[])
            row.active_seconds = 1500.0
            session.add(self._event("belief", {}))

    def verdict(
        self, *, outcome: Outcome | None, culprits: list[dict[str, Any]], reason: str = ""
    ) -> dict[str, Any]:
        """Return a verdict as the conductor writes it."""

        def end(position: int) -> dict[str, Any]:
            revision = self.sha(position)
            if position not in self.points:
                return {"revision": revision, "mean": None, "ci95": None, "runs": 0}
            mean, low, high = self.mean(position)
            runs = len(self.points[position])
            return {"revision": revision, "mean": mean, "ci95": [low, high], "runs": runs}

        good, bad = end(0), end(self.n)
        both = good["mean"] is not None and bad["mean"] is not None
        explained = math.prod(1 + culprit["change"] for culprit in culprits) - 1
        verdict: dict[str, Any] = {
            "id": self.id,
            "state": BisectionState.FINISHED if outcome else BisectionState.RUNNING,
            "outcome": outcome,
            "good": good,
            "bad": bad,
            "culprits": culprits,
            "explained": {
                "total": bad["mean"] / good["mean"] - 1 if both else None,
                "steps": explained,
            },
            "builds": len(self.wheels),
            "runs": self.runs,
            "points": sum(map(len, self.points.values())),
            "seconds": 1620.0,
            "unit": "images/s",
            "better": "higher",
            "positions": {"good": 0, "bad": self.n},
            "min_effect": 0.03,
            "threshold": self.base * 0.8,
            "noise": self.noise,
            "confidence": 0.996,
            "missed": 0.01,
            "credible_set": [],
            "reason": reason,
            "code": "",
        }
        verdict["sentence"] = report.sentence(verdict)
        return verdict

    def culprit(self, before: int, after: int) -> dict[str, Any]:
        """Return the culprit between two measured positions."""
        old, new = self.mean(before)[0], self.mean(after)[0]
        change = new / old - 1
        default = SUBJECTS[after % len(SUBJECTS)]
        between = range(before + 1, after + 1)
        return {
            "commits": [self.sha(position) for position in between],
            "subject": self.subjects.get(after, default),
            "author": self.author,
            "subjects": [
                self.subjects.get(position, SUBJECTS[position % len(SUBJECTS)])
                for position in between
            ],
            "kind": "regression" if change < 0 else "recovery",
            "before": old,
            "after": new,
            "change": change,
            "ci95": [change - 0.012, change + 0.012],
            "probability": 0.998,
            "verified": True,
            "verify_runs": 4,
            "resolved": True,
            "before_position": before,
            "position": after,
            "relations": [{"kind": "reverted_by", "commit": fake_sha("later")}],
        }

    def finish(
        self,
        outcome: Outcome,
        pairs: list[tuple[int, int]] | None = None,
        *,
        reason: str = "",
    ) -> None:
        """Close it with these (before, after) pairs as culprits."""
        pairs = pairs or []
        culprits = [self.culprit(before, after) for before, after in pairs]
        self.believe({after: 0.998 for _, after in pairs})
        with self.services.database.write() as session:
            self._decide(session, "finish", None, reason or "every step is verified", None)
            row = session.get_one(BisectionRow, self.id)
            row.state = BisectionState.FINISHED
            row.outcome = outcome
            row.finished_at = now()
            row.active_seconds = 1620.0
            row.verdict = self.verdict(outcome=outcome, culprits=culprits, reason=reason)
            session.add(self._event("finished", {"outcome": outcome, "reason": reason}))
