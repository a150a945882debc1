"""Whole bisections and experiments as tests and screenshots need them, written by ``seeding``."""

from __future__ import annotations

from typing import Any

from tests.helpers.seeding import BENCHMARK, RECIPE, Seed, fake_sha

from perfbisect.core.states import (
    BisectionState,
    ExperimentKind,
    Outcome,
    Purpose,
    WorkState,
)
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow, ExperimentRow


def seed_experiment(seed: Seed, *, finished: bool = True, **changes: Any) -> str:
    """Write an experiment that proves the culprits of a bisection; return its id."""
    experiment_id = new_id()
    reference = {
        "position": 0,
        "name": "later end",
        "against": None,
        "revision": seed.sha(seed.n),
        "env": {},
        "runs": 4,
        "mean": 5300.0,
        "change": 0.0,
        "ci95": [0.0, 0.0],
        "difference": None,
        "problem": None,
        "failure": None,
    }
    arms = [
        reference,
        {**reference, "position": 1, "name": "revert on the later end", "against": 0,
         "mean": 8500.0, "change": 0.604, "ci95": [0.59, 0.62], "difference": "better"},
        {**reference, "position": 2, "name": "pick on the earlier end", "against": 0, "mean": None,
         "change": None, "ci95": None, "runs": 0,
         "problem": {"kind": "conflict", "files": [{"path": "kernels/conv.cc"}]}},
    ]  # fmt: skip
    arms[1] |= changes
    with seed.services.database.write() as session:
        bisection = session.get_one(BisectionRow, seed.id)
        session.add(
            ExperimentRow(
                id=experiment_id,
                kind=ExperimentKind.PROVE,
                bisection_id=seed.id,
                state=BisectionState.FINISHED if finished else BisectionState.RUNNING,
                outcome=Outcome.ANSWERED if finished else None,
                request={},
                request_digest=fake_sha("prove", seed.id),
                repository_id=bisection.repository_id,
                recipe_digest=seed.recipe_digest,
                benchmark_digest=seed.benchmark_digest,
                recipe=RECIPE,
                benchmark=BENCHMARK,
                policy={"min_effect": 0.03},
                plan={},
                requested_by="release-team",
                origin="bisection",
                created_at=now(),
                active_seconds=600.0,
                verdict={
                    "arms": arms,
                    "sentence": "Answered: reverting it brings the value back."
                    if finished
                    else "Still measuring.",
                    "builds": 2,
                    "runs": 8,
                    "points": 8,
                    "seconds": 600.0,
                },
            )
        )
        proof = {"arm": 1, "change": 0.604, "word": "proven", "meaning": "the value came back"}
        verdict = dict(bisection.verdict or {})
        verdict["proof"] = {"experiment": experiment_id, "state": "finished"}
        verdict["culprits"] = [
            {**culprit, "proof": {"verdict": "proven by revert", "revert": proof}}
            for culprit in verdict.get("culprits", [])
        ]
        bisection.verdict = verdict
    return experiment_id


def seed_finished(services: Services, **changes: Any) -> Seed:
    """Write a finished bisection: one big regression, one small, unbuildable commits between."""
    settings: dict[str, Any] = {"steps": {19: 0.95, 31: 0.62}, **changes}
    seed = Seed(services, **settings)
    seed.submit()
    seed.start()
    for _ in range(3):
        seed.run(0, purpose=Purpose.ANCHOR, reason="good end, interleaved with the bad end")
        seed.run(seed.n, purpose=Purpose.ANCHOR, reason="bad end, interleaved with the good end")
    for position in (24, 36, 12, 18, 28, 33):
        seed.run(position)
        seed.run(position)
    seed.build(29, state=WorkState.FAILED, log="compiling\n\x1b[31merror:\x1b[0m no type\n")
    seed.build(30, state=WorkState.FAILED)
    seed.run(31, rejected="the GPU throttled: 1005 MHz of 1530 MHz")
    for position in (18, 19, 28, 31, 19, 18, 31, 28):
        seed.run(position, purpose=Purpose.VERIFY, reason="paired with its neighbour")
    seed.finish(Outcome.CULPRITS, [(18, 19), (28, 31)])
    return seed


def seed_running(services: Services, **changes: Any) -> Seed:
    """Write a running bisection: both ends known, a build and a run under way."""
    settings: dict[str, Any] = {"name": "library", "host": "gpu-18", **changes}
    seed = Seed(services, **settings)
    seed.submit(requested_by="nightly", origin="alert")
    seed.start()
    for _ in range(3):
        seed.run(0, purpose=Purpose.ANCHOR)
        seed.run(seed.n, purpose=Purpose.ANCHOR)
    seed.run(24)
    seed.believe(dict.fromkeys(range(25, 49), 0.9 / 24))
    seed.build(36, state=WorkState.RUNNING, log="compiling 1 of 300\n")
    seed.run(24, state=WorkState.RUNNING, log="epoch 1\n")
    return seed
