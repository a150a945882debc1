"""What a bisection will cost, before it is submitted: the real planner against simulated hosts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from perfbisect.config import benchmark_to_dict, recipe_to_dict
from perfbisect.core.facts import Policy
from perfbisect.core.simulation import Estimate, SimulationSpec, simulate, summarise
from perfbisect.core.states import Better, BisectionState, FailureKind, Find, WorkState
from perfbisect.definitions import Definitions
from perfbisect.report import plural
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.store.tables import BisectionRow, BuildRow, WheelRow
from perfbisect.submission import Prepared, prepare
from perfbisect.units import format_duration, parse_percent
from perfbisect.worklog import expected_costs

#: Noise of one run, relative, where the benchmark was never measured.
UNKNOWN_NOISE = 0.02
#: Share of unbuildable commits where the recipe was never used.
UNKNOWN_UNBUILDABLE = 0.05
#: Past bisections from which noise is learnt.
_LAST = 20


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate and what it rests on."""

    estimate: Estimate
    spec: SimulationSpec
    #: Positions whose wheels are there already.
    wheels: int
    #: ``measured`` or ``assumed``, by name of an assumption.
    sources: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``POST /api/v1/estimates``."""
        told, spec = self.estimate, self.spec
        return {
            "sentence": self.sentence,
            "builds": asdict(told.builds),
            "runs": asdict(told.runs),
            "seconds": asdict(told.wall_seconds),
            "machine_seconds": asdict(told.machine_seconds),
            "exact": told.exact,
            "trials": told.trials,
            "outcomes": told.outcomes,
            "assumptions": {
                "commits": spec.commits,
                "steps": list(spec.steps),
                "noise": spec.noise,
                "outliers": spec.outliers,
                "unbuildable": spec.unbuildable,
                "build_seconds": spec.build_seconds,
                "run_seconds": spec.run_seconds,
                "wheels": self.wheels,
            },
            "sources": dict(self.sources),
        }

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        told = self.estimate
        steps = ", ".join(f"{step:+.0%}" for step in self.spec.steps) or "no change at all"
        return (
            f"About {plural(round(told.builds.median), 'build')}, "
            f"{plural(round(told.runs.median), 'run')}, "
            f"{format_duration(told.wall_seconds.median)} (in 19 of 20 cases at most "
            f"{plural(round(told.builds.p95), 'build')}, {plural(round(told.runs.p95), 'run')}, "
            f"{format_duration(told.wall_seconds.p95)}) for {steps} among "
            f"{plural(self.spec.commits, 'commit')}; right in {told.exact:.0%} of "
            f"{plural(told.trials, 'simulation')}."
        )


def estimate_request(
    services: Services,
    request: BisectionRequest,
    *,
    steps: tuple[str, ...] | None = None,
    noise: str | None = None,
    trials: int = 40,
    max_seconds: float = 8.0,
    base_dir: Path | None = None,
    allow_local: bool = False,
) -> Estimated:
    """Simulate a request with what is known of its recipe, benchmark and range.

    Args:
        steps: relative changes that are assumed to be there; None: one that is 10% worse, or
            better where a fix is looked for.
        noise: of one run; None: as measured before, else 2%.
        trials: simulated searches, fewer if they take longer than ``max_seconds``.

    Raises: as ``submission.submit``.
    """
    prepared = prepare(services, request, base_dir, allow_local, None)
    with services.database.read() as session:
        assumed = (_assumed_step(prepared.policy),) if steps is None else steps
        spec, wheels, sources = _spec(session, prepared, assumed, noise)
    seeds = [int(each) for each in np.random.SeedSequence(1).generate_state(trials)]
    results = []
    deadline = time.monotonic() + max_seconds
    for seed in seeds:
        results.append(simulate(spec, seed))
        if time.monotonic() > deadline:
            break
    return Estimated(summarise(results), spec, wheels, sources)


def _assumed_step(policy: Policy) -> str:
    """Return the change that a search is usually for: worse, or better for a fix."""
    falls = (policy.better is Better.HIGHER) is not (policy.find is Find.FIX)
    return "-10%" if falls else "+10%"


def _spec(
    session: Session, prepared: Prepared, steps: tuple[str, ...], noise: str | None
) -> tuple[SimulationSpec, int, dict[str, str]]:
    measured, axis = prepared.measured, prepared.axis
    commits = len(axis.candidates) - 1
    changes = tuple(signed_percent(step, "steps") for step in steps)
    definitions = measured if isinstance(measured, Definitions) else None
    recipe = recipe_to_dict(definitions.recipe) if definitions else {}
    digest = definitions.recipe.digest if definitions else axis.origin.digest
    costs = expected_costs(
        session, digest, recipe, [measured.benchmark_digest], benchmark_to_dict(measured.benchmark)
    )
    known_noise = _known_noise(session, measured.benchmark_digest)
    unbuildable = _known_unbuildable(session, digest) if definitions else 0.0
    wheels = _wheels(session, prepared, digest) if definitions else commits + 1
    spec = SimulationSpec(
        commits=commits,
        steps=changes[:commits],
        noise=parse_percent(noise, "noise") if noise else known_noise or UNKNOWN_NOISE,
        outliers=0.02,
        unbuildable=UNKNOWN_UNBUILDABLE if unbuildable is None else unbuildable,
        prebuilt_every=1 if wheels > commits else (commits // wheels if wheels else 0),
        build_seconds=costs.build_seconds,
        run_seconds=costs.run_seconds,
        policy=prepared.policy,
    )
    sources = {
        "noise": "given" if noise else "measured" if known_noise else "assumed",
        "unbuildable": "assumed" if unbuildable is None else "measured",
    }
    return spec, wheels, sources


def signed_percent(text: str, field: str) -> float:
    """Return ``"-10%"`` as -0.1 and ``"+20%"`` as 0.2.

    Raises:
        BadInputError: anything else.
    """
    stripped = text.strip()
    sign = -1.0 if stripped.startswith("-") else 1.0
    return sign * parse_percent(stripped.lstrip("+-"), field)


def _known_noise(session: Session, benchmark_digest: str) -> float | None:
    """Return the noise of one run that past bisections of this benchmark found."""
    verdicts = session.scalars(
        select(BisectionRow.verdict)
        .where(
            BisectionRow.benchmark_digest == benchmark_digest,
            BisectionRow.state == BisectionState.FINISHED,
        )
        .order_by(BisectionRow.id.desc())
        .limit(_LAST)
    )
    known = [float(each["noise"]) for each in verdicts if each and each.get("noise")]
    return max(statistics.median(known), 1e-3) if known else None


def _known_unbuildable(session: Session, recipe_digest: str) -> float | None:
    """Return the share of this recipe's builds that failed for good."""
    ended = session.execute(
        select(BuildRow.failure_kind, func.count())
        .where(
            BuildRow.recipe_digest == recipe_digest,
            BuildRow.state.in_((WorkState.SUCCEEDED, WorkState.FAILED)),
        )
        .group_by(BuildRow.failure_kind)
    )
    counts = {row[0]: int(row[1]) for row in ended}
    total = sum(count for kind, count in counts.items() if kind is not FailureKind.TRANSIENT)
    if total < 5:
        return None
    return min(counts.get(FailureKind.PERMANENT, 0) / total, 0.5)


def _wheels(session: Session, prepared: Prepared, recipe_digest: str) -> int:
    trees = {candidate["tree"] for candidate in prepared.axis.candidates}
    stored = session.scalars(select(WheelRow.tree).where(WheelRow.recipe_digest == recipe_digest))
    return sum(tree in trees for tree in stored)
