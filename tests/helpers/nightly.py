"""The seed's summer as a nightly series, and everything that a server does about it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np
from sqlalchemy import select
from tests.helpers.seed_repository import BAD, SeedAxis, SeedRepository, tell_story

from perfbisect import series
from perfbisect.alerting.desk import Desk
from perfbisect.conductor import Conductor
from perfbisect.config import load_recipe
from perfbisect.core.states import BisectionState
from perfbisect.history import open_mirror
from perfbisect.nightly.points import NightPoint
from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow, ExperimentRow, WheelRow

#: First commit of the data that is of that summer.
FIRST = "e44642d3f0"


class StoryRunner:
    """Measures a wheel by its commit: CV 2%, and one run in fifty at 0.6 of its value."""

    def __init__(self, levels: dict[str, float]) -> None:
        self._levels = levels
        self._random = np.random.default_rng(5)
        self.runs = 0

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        self.runs += 1
        value = self._levels[request.wheel.read_text().splitlines()[0]]
        value *= 1 + 0.02 * self._random.normal()
        if self._random.random() < 0.02:
            value *= 0.6
        return RunSuccess(value, (value,), 1.0)


@dataclass(frozen=True)
class Summer:
    """The story over every commit of the summer, and its nights."""

    shas: tuple[str, ...]
    trees: tuple[str, ...]
    story: SeedAxis
    #: Day and position of each night that has a wheel.
    nights: tuple[tuple[date, int], ...]

    def level(self, position: int) -> float:
        return self.story.levels[position]


def tell_summer(services: Services, seed: SeedRepository) -> Summer:
    mirror = open_mirror(str(seed.path), services.settings.mirrors_dir, allow_local=True)
    candidates = mirror.candidates(seed.sha(FIRST), seed.sha(BAD))
    shas = [candidate.sha for candidate in candidates]
    story = tell_story(seed, shas)
    originals = {sha: original for original, sha in seed.names.items()}
    nights = tuple(
        (seed.commits[originals[shas[position]]].committed_at.date(), position)
        for position in story.nightlies
    )
    return Summer(tuple(shas), tuple(each.tree for each in candidates), story, nights)


def store_wheels(services: Services, summer: Summer, base_dir: object) -> None:
    """Store the nights' wheels as if they had been built before."""
    digest = load_recipe("scripted", services.settings.project_dir).recipe.digest
    with services.database.write() as session:
        for day, position in summer.nights:
            content = f"{summer.shas[position]}\n{summer.trees[position]}\n{digest}\n".encode()
            path = services.settings.work_dir / f"night-{day}.whl"
            path.write_bytes(content)
            session.add(
                WheelRow(
                    id=new_id(),
                    tree=summer.trees[position],
                    recipe_digest=digest,
                    commit_sha=summer.shas[position],
                    filename=path.name,
                    sha256=hashlib.sha256(content).hexdigest(),
                    size=len(content),
                    artifact=services.artifacts.put(path),
                    created_at=now(),
                )
            )


def points_of(summer: Summer, noise: float = 0.02) -> list[NightPoint]:
    """Return what each night measured, one value with this noise."""
    random = np.random.default_rng(2019)
    return [
        NightPoint(
            night=day,
            value=summer.level(position) * float(np.exp(noise * random.standard_normal())),
            version=f"1.15.0.dev{day:%Y%m%d}",
            commits={"tensorflow": summer.shas[position]},
            host="gpu-1",
            measured_at=datetime(day.year, day.month, day.day, 12, tzinfo=UTC),
        )
        for day, position in summer.nights
    ]


def settle(services: Services, conductor: Conductor, desk: Desk) -> None:
    """Do what a server does until nothing is left to do."""
    quiet = 0
    while quiet < 2:
        done = series.advance(services)
        desk.look()
        unfinished = _unfinished(services)
        for job_id in unfinished:
            conductor.conduct_until_finished(job_id)
        quiet = 0 if done or unfinished else quiet + 1


def _unfinished(services: Services) -> Sequence[str]:
    with services.database.read() as session:
        return [
            job_id
            for table in (ExperimentRow, BisectionRow)
            for job_id in session.scalars(
                select(table.id)
                .where(table.state != BisectionState.FINISHED)
                .order_by(table.created_at)
            )
        ]
