"""The summer of 2019 through the whole product: real git graph, scripted builds and runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.conducting import SmallRepository, make_conductor, open_services, request_for
from tests.helpers.nightly import StoryRunner
from tests.helpers.seed_repository import (
    BAD,
    GOOD,
    SeedAxis,
    SeedRepository,
    generate,
    tell_story,
)

from perfbisect.core.states import FailureKind
from perfbisect.ports import BuildRequest, Failure
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow, CandidateRow, WheelRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder

#: Builds that the search may take; benchmarks/seed_replay.py tells what it takes on average.
MOST_BUILDS = 45


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> SeedRepository:
    return generate(tmp_path_factory.mktemp("seed") / "repository")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def replay(
    services: Services, seed: SeedRepository, tmp_path: Path, **options: Any
) -> tuple[dict[str, Any], ScriptedBuilder, SeedAxis, list[str]]:
    request = request_for(SmallRepository(seed.path, (seed.sha(GOOD), seed.sha(BAD))), **options)
    submitted = submit(
        services,
        request,
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    with services.database.read() as session:
        shas = list(
            session.scalars(
                select(CandidateRow.sha)
                .where(CandidateRow.bisection_id == submitted.id)
                .order_by(CandidateRow.position)
            )
        )
    story = tell_story(seed, shas)
    store_nightlies(services, submitted.id, story.nightlies)
    broken = {shas[position] for position in story.broken}

    def fails(request: BuildRequest) -> Failure | None:
        if request.commit in broken:
            return Failure(FailureKind.PERMANENT, "error: no rule to build this")
        return None

    builder = ScriptedBuilder(fails)
    runner = StoryRunner(dict(zip(shas, story.levels, strict=True)))
    conductor = make_conductor(services, builder, runner, tmp_path)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        verdict = session.get_one(BisectionRow, submitted.id).verdict
    assert verdict is not None
    return verdict, builder, story, shas


def store_nightlies(services: Services, bisection_id: str, positions: tuple[int, ...]) -> None:
    """Store the nightly wheels as if they had been built before."""
    with services.database.write() as session:
        digest = session.get_one(BisectionRow, bisection_id).recipe_digest
        for position in positions:
            candidate = session.get_one(CandidateRow, (bisection_id, position))
            content = f"{candidate.sha}\n{candidate.tree}\n{digest}\n".encode()
            path = services.settings.work_dir / f"nightly-{position}.whl"
            path.write_bytes(content)
            session.add(
                WheelRow(
                    id=new_id(),
                    tree=candidate.tree,
                    recipe_digest=digest,
                    commit_sha=candidate.sha,
                    filename=path.name,
                    sha256=hashlib.sha256(content).hexdigest(),
                    size=len(content),
                    artifact=services.artifacts.put(path),
                    created_at=now(),
                )
            )


def test_all_four_steps_are_named_and_the_rollback_is_one_story(
    services: Services, seed: SeedRepository, tmp_path: Path
) -> None:
    """`find = all` names exactly the four commits of the discussion, in few builds."""
    verdict, builder, story, shas = replay(services, seed, tmp_path, find="all")
    assert verdict["outcome"] == "culprits"
    assert [culprit["commits"] for culprit in verdict["culprits"]] == [
        [shas[position]] for position in story.steps
    ]
    kinds = [culprit["kind"] for culprit in verdict["culprits"]]
    assert kinds == ["regression", "recovery", "regression", "recovery"]
    assert all(culprit["verified"] for culprit in verdict["culprits"])
    layered, rollback = verdict["culprits"][2:]
    assert ("reverted_by", rollback["commits"][0]) in {
        (relation["kind"], relation["commit"]) for relation in layered["relations"]
    }
    assert ("rollback_of", layered["commits"][0]) in {
        (relation["kind"], relation["commit"]) for relation in rollback["relations"]
    }
    assert len(builder.requests) <= MOST_BUILDS


def test_the_first_crossing_is_the_dataset_change(
    services: Services, seed: SeedRepository, tmp_path: Path
) -> None:
    """`find = first` names ef9f0e8 and nothing else."""
    verdict, _, _, _ = replay(services, seed, tmp_path, find="first")
    assert [culprit["commits"] for culprit in verdict["culprits"]] == [[seed.sha("ef9f0e8f2f")]]
