"""Builds and runs as tables show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfbisect.core.states import FailureKind, WorkState
from perfbisect.routers.logs import is_over
from perfbisect.store.page_queries import AnyRow
from perfbisect.store.queries import Axis
from perfbisect.store.tables import BuildRow, RunRow


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


def build_work(build: BuildRow | AnyRow, axis: Axis, bisection_id: str) -> Work:
    """Return a build as tables show it; without its lines where only columns were read."""
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
        lines=build.lines if isinstance(build, BuildRow) else (),
        shared=build.bisection_id != bisection_id,
    )


def run_work(run: RunRow | AnyRow, axis: Axis) -> Work:
    """Return a run as tables show it; without its lines where only columns were read."""
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
        lines=run.lines if isinstance(run, RunRow) else (),
        shared=False,
    )


def _cause(kind: FailureKind | None, cause: str) -> str:
    return f"{kind.value}: {cause}" if kind is not None else cause
