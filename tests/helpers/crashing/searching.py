"""Scene: a bisection with its proof, and others that are cancelled in the middle of their work."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from sqlalchemy import select
from tests.helpers.conducting import FactorRunner, SmallRepository, make_factor_repository
from tests.helpers.crashing.world import BENCHMARK, RECIPE, Scene, SceneBuilder, unfinished

from perfbisect.core.states import FailureKind
from perfbisect.ports import Builder, CancelToken, Failure, Runner, RunRequest, RunSuccess
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services, request_cancel
from perfbisect.store.tables import BisectionRow, BuildRow, RunRow
from perfbisect.submission import submit

CULPRIT, UNBUILDABLE = 6, 4
_FAILS = 2


class _SometimesCrashing(FactorRunner):
    """The good end's first runs crash, whichever process runs them."""

    def __init__(self, services: Services, directory: Path, good: str) -> None:
        super().__init__(services)
        self._file = directory / "crashes"
        self._good = good

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        commit = request.wheel.read_text(encoding="utf-8").splitlines()[0]
        before = self._file.read_text() if self._file.exists() else ""
        if commit == self._good and len(before) < _FAILS:
            self._file.write_text(before + ".")
            return Failure(FailureKind.TRANSIENT, "the host went away")
        return super().run(request, cancel)


class Searching(Scene):
    """The culprit is found and proven; three searches are cancelled while they build or run."""

    name = "searching"
    alarms = follows = False

    def prepare(self) -> None:
        """Write the repository and the names."""
        make_factor_repository(self.directory / "repository", {CULPRIT: 0.5}, 8)
        text = "".join(RECIPE.format(name=name) for name in ("scripted", "stuck"))
        text += "".join(BENCHMARK.format(name=name) for name in ("scripted", "stuck"))
        (self.directory / "perfbisect.toml").write_text(text)

    @property
    def repository(self) -> SmallRepository:
        """The repository as it was made."""
        return opened_repository(self.directory / "repository")

    def parts(self, services: Services) -> tuple[Builder, Runner]:
        """Return a builder that fails on one commit, and a runner whose host is lost at first."""
        shas = self.repository.shas
        builder = SceneBuilder(frozenset({shas[UNBUILDABLE]}))
        return builder, _SometimesCrashing(services, self.directory, shas[0])

    def step(self, services: Services) -> None:
        """Submit one after the other; cancel what is stuck as soon as it works."""
        with services.database.read() as session:
            known = {row.idempotency_key: row for row in session.scalars(select(BisectionRow))}
            working = {
                *session.scalars(select(BuildRow.bisection_id).where(BuildRow.state == "running")),
                *session.scalars(select(RunRow.bisection_id).where(RunRow.state == "running")),
            }
        for key, row in known.items():
            if key != "proved" and row.id in working and row.cancel_requested_at is None:
                request_cancel(services, row.id)
        if not unfinished(services):
            missing = [key for key in KEYS if key not in known]
            if missing:
                self._submit(services, missing[0])

    def _submit(self, services: Services, key: str) -> None:
        shas = self.repository.shas
        request = BisectionRequest.model_validate(
            {
                "repository": str(self.directory / "repository"),
                "good": shas[0],
                "bad": shas[-1],
                "recipe": "stuck" if "build" in key else "scripted",
                "benchmark": "stuck" if "run" in key else "scripted",
                "prove": key == "proved",
            }
        )
        submit(
            services,
            request,
            requested_by="tester",
            origin="command line",
            idempotency_key=key,
            base_dir=self.directory,
            allow_local=True,
        )

    def is_over(self, services: Services) -> bool:
        """Return whether all of them were submitted and ended."""
        with services.database.read() as session:
            known = set(session.scalars(select(BisectionRow.idempotency_key)))
        return set(KEYS) <= known and not unfinished(services)


#: In this order. Three of each: one is killed before its end is stored, one after.
KEYS = ("proved", *(f"{kind}-{number}" for kind in ("build", "run") for number in range(3)))


@functools.cache
def opened_repository(path: Path) -> SmallRepository:
    """Return a repository that was made before; it does not change."""
    listed = subprocess.run(
        ["git", "rev-list", "--reverse", "master"],
        cwd=path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return SmallRepository(path, tuple(listed.stdout.split()))
