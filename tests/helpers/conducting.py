"""A small repository and services with scripted builders and runners, for the conductor."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfbisect.conductor import Conductor
from perfbisect.engines.local import LocalEngine
from perfbisect.ports import (
    Builder,
    CancelToken,
    Failure,
    HostInfo,
    Runner,
    RunRequest,
    RunSuccess,
)
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.settings import Settings

PROJECT = """
[recipe.scripted]
kind = "command"
docker = false
command = "true"

[benchmark.scripted]
command = "true"
unit = "images/s"
metric = {reader = "regex", pattern = 'images/sec: ([0-9.]+)'}
"""


@dataclass(frozen=True)
class SmallRepository:
    """A linear history; position i is the i-th commit."""

    path: Path
    shas: tuple[str, ...]

    def position(self, sha: str) -> int:
        return self.shas.index(sha)


def make_repository(
    path: Path, commits: int, messages: Mapping[int, str] | None = None
) -> SmallRepository:
    """Make ``commits`` + 1 commits in one go (fast-import), each with a tree of its own."""
    path.mkdir(parents=True)
    _git(path, "init", "-q", "-b", "master")
    stream = []
    for position in range(commits + 1):
        message = (messages or {}).get(position, f"commit {position}")
        content = f"{position}\n"
        stream.append(
            f"commit refs/heads/master\nmark :{position + 1}\n"
            f"committer Tester <tester@example.invalid> {1_564_617_600 + 600 * position} +0000\n"
            f"data {len(message.encode())}\n{message}\n"
            + (f"from :{position}\n" if position else "")
            + f"M 100644 inline src/value.cc\ndata {len(content)}\n{content}\n"
        )
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=path, input="".join(stream).encode(), check=True
    )
    shas = _git(path, "rev-list", "--reverse", "master").split()
    return SmallRepository(path, tuple(shas))


def make_factor_repository(
    path: Path,
    factors: Mapping[int, float],
    commits: int,
    messages: Mapping[int, str] | None = None,
) -> SmallRepository:
    """Make a history in which commit i adds ``src/i.txt``: the factor it puts on the value.

    A revert of a commit takes its file, and so its factor, away.
    """
    path.mkdir(parents=True)
    _git(path, "init", "-q", "-b", "master")
    stream = []
    for position in range(commits + 1):
        message = (messages or {}).get(position, f"commit {position}")
        content = f"{factors.get(position, 1.0)}\n"
        stream.append(
            f"commit refs/heads/master\nmark :{position + 1}\n"
            f"committer Tester <tester@example.invalid> {1_564_617_600 + 600 * position} +0000\n"
            f"data {len(message.encode())}\n{message}\n"
            + (f"from :{position}\n" if position else "")
            + f"M 100644 inline src/{position}.txt\ndata {len(content)}\n{content}\n"
        )
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=path, input="".join(stream).encode(), check=True
    )
    return SmallRepository(path, tuple(_git(path, "rev-list", "--reverse", "master").split()))


class FactorRunner:
    """Measures a wheel by its tree: the product of all factors in it, with noise."""

    def __init__(self, services: Services, start: float = 9000.0, noise: float = 0.01) -> None:
        self._mirrors = services.settings.mirrors_dir
        self._start = start
        self._noise = noise
        self._random = np.random.default_rng(3)
        self._values: dict[str, float] = {}
        self.trees: list[str] = []

    def factor(self, names: list[str]) -> float:
        """What the commits do together, on top of their own factors."""
        return 1.0

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        tree = request.wheel.read_text().splitlines()[1]
        self.trees.append(tree)
        if tree not in self._values:
            self._values[tree] = self._value_of(tree)
        # Env switches of an arm are part of what is measured.
        value = self._values[tree] * float(request.benchmark.env.get("FACTOR", "1"))
        value *= math.exp(self._random.normal(0.0, self._noise))
        return RunSuccess(value, (value,), 0.01)

    def _value_of(self, tree: str) -> float:
        (mirror,) = self._mirrors.glob("*.git")
        names = _git(mirror, "ls-tree", "--name-only", tree, "src/").split()
        value = self._start * self.factor(names)
        for name in names:
            value *= float(_git(mirror, "cat-file", "blob", f"{tree}:{name}"))
        return value


def _git(path: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    return subprocess.run(
        ["git", *arguments], cwd=path, env=environment, check=True, capture_output=True, text=True
    ).stdout


def open_services(directory: Path) -> Services:
    """Open services in a data directory of their own, with ``perfbisect.toml`` beside it."""
    (directory / "perfbisect.toml").write_text(PROJECT)
    return Services.open(Settings(data_dir=directory / "data"))


def make_conductor(
    services: Services, builder: Builder, runner: Runner, directory: Path, **options: object
) -> Conductor:
    """Return a conductor on a local engine that shares no lock with the rest of the machine."""
    host = HostInfo("host-a", "default", {})
    engine = LocalEngine(builder, runner, host, lock_path=directory / "machine.lock")
    return Conductor(services, engine, **options)  # type: ignore[arg-type]


def request_for(repository: SmallRepository, **options: object) -> BisectionRequest:
    """Return a request over the whole history."""
    values: dict[str, object] = {
        "repository": str(repository.path),
        "good": repository.shas[0],
        "bad": repository.shas[-1],
        "recipe": "scripted",
        "benchmark": "scripted",
        "prove": False,
    }
    return BisectionRequest.model_validate(values | options)
