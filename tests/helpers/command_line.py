"""A project on disk that builds and runs in milliseconds, and the command line on it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfbisect.cli import main

#: Prints the value that the built artifact holds, with a little noise, as real benchmarks have.
BENCH = """
import pathlib, random, sys, time
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
value = float(pathlib.Path(sys.argv[1], "value.txt").read_text())
print(f"images/sec: {value * random.gauss(1, 0.004):.3f}")
"""

CONFIG = """
[recipe.copy]
kind = "command"
docker = false
command = "{build}"
timeout = "30s"

[benchmark.read]
command = "{{python}} bench.py {{artifact}} {run_seconds}"
files = ["bench.py"]
metric = {{reader = "regex", pattern = 'images/sec: ([0-9.]+)'}}
unit = "images/s"
better = "higher"
timeout = "20s"
"""


@dataclass(frozen=True)
class Project:
    """A repository, and a directory with ``perfbisect.toml`` and the benchmark beside it."""

    directory: Path
    repository: Path
    #: By position.
    shas: tuple[str, ...]

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def arguments(self) -> list[str]:
        """The command that asks about the whole history, without proofs, which take their time."""
        return [*self.proving, "--no-prove"]

    @property
    def proving(self) -> list[str]:
        """The same command, as people type it."""
        return [
            "bisect",
            f"--repo={self.repository}",
            f"--good={self.shas[0]}",
            f"--bad={self.shas[-1]}",
            "--recipe=copy",
            "--benchmark=read",
            f"--data-dir={self.data_dir}",
        ]

    def write_config(self, *, build_seconds: float = 0, run_seconds: float = 0) -> None:
        """Write ``perfbisect.toml``; builds and runs sleep this long on top of their work."""
        build = f"sleep {build_seconds} && sh build.sh {{out}}"
        text = CONFIG.format(build=build, run_seconds=run_seconds)
        (self.directory / "perfbisect.toml").write_text(text)
        (self.directory / "bench.py").write_text(BENCH)


def make_project(directory: Path, values: Sequence[float], broken: Collection[int] = ()) -> Project:
    """Make a repository whose commit i gives ``values[i]``, or does not build."""
    repository = directory / "repository"
    repository.mkdir(parents=True)
    _git(repository, "init", "-q", "-b", "main")
    stream = []
    for position, value in enumerate(values):
        script = "cp value.txt $1/" if position not in broken else "echo 'error: no' >&2; exit 1"
        message = f"Commit {position}"
        files = {"value.txt": f"{value}\n", "build.sh": script, f"notes/{position}": "."}
        stream.append(
            f"commit refs/heads/main\nmark :{position + 1}\n"
            f"committer Tester <tester@example.invalid> {1_564_617_600 + 600 * position} +0000\n"
            f"data {len(message)}\n{message}\n" + (f"from :{position}\n" if position else "")
        )
        stream += [
            f"M 100644 inline {name}\ndata {len(content)}\n{content}\n"
            for name, content in files.items()
        ]
    subprocess.run(
        ["git", "fast-import", "--quiet"],
        cwd=repository,
        input="".join(stream).encode(),
        check=True,
    )
    shas = tuple(_git(repository, "rev-list", "--reverse", "main").split())
    project = Project(directory, repository, shas)
    project.write_config()
    return project


def _git(directory: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def call(arguments: Sequence[str], directory: Path | None = None) -> Ended:
    """Run the command line in this process, as if started in ``directory``."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(directory or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(arguments)
            code: object = 0
        except SystemExit as ended:
            code = ended.code
    assert code is None or isinstance(code, int)
    return Ended(code or 0, out.getvalue(), err.getvalue())


def start(arguments: Sequence[str], directory: Path) -> subprocess.Popen[str]:
    """Start the command line as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "perfbisect", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
