"""A small repository and services with scripted builders and runners, for the conductor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfbisect.conductor import Conductor
from perfbisect.engines.local import LocalEngine
from perfbisect.ports import Builder, HostInfo, Runner
from perfbisect.requests import BisectionRequest
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
    }
    return BisectionRequest.model_validate(values | options)
