"""TensorFlow's summer of 2019 as a repository: its real commit graph with trees made for it.

Each commit adds a file of its own; a rollback really undoes its commit, so that reverts, relations
and equal trees behave as in the real history. The throughput follows the public discussion: 9,000
images/s until ef9f0e8, 2,900 until 96a407a, 7,600 until 53bdcf5, 3,900 until its rollback 59436c1,
8,400 afterwards.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "data" / "tensorflow-2019-commits.tsv.gz"

GOOD, BAD = "3e0ad8a004", "1ae01a07f5"
#: Original name of a commit -> throughput from it on, images/s.
STORY = {
    "ef9f0e8f2f": 2900.0,
    "96a407a918": 7600.0,
    "53bdcf55ce": 3900.0,
    "59436c19a0": 8400.0,
}
START = 9000.0
#: Share of the range's commits that touch nothing that could matter (documentation, tests, other
#: languages and platforms), as counted on the real range.
IRRELEVANT = 0.5
_IRRELEVANT_PLACES = (
    "tensorflow/docs_src/note_{}.md",
    "tensorflow/python/kernel_tests/case_{}_test.py",
    "tensorflow/go/op/wrap_{}.go",
    "tensorflow/lite/micro/example_{}.cc",
    "tensorflow/java/src/main/J{}.java",
)
_RELEVANT_PLACES: tuple[str, ...] = (
    "tensorflow/core/kernels/op_{}.cc",
    "tensorflow/core/grappler/optimizers/pass_{}.cc",
    "tensorflow/compiler/xla/service/step_{}.cc",
    "tensorflow/python/data/ops/dataset_{}.py",
)
_ROLLBACK = re.compile(r"Automated rollback of commit ([0-9a-f]{40})")


@dataclass(frozen=True)
class SeedCommit:
    """One line of the data."""

    sha: str
    parents: tuple[str, ...]
    committed_at: datetime
    subject: str


@dataclass(frozen=True)
class SeedRepository:
    """The generated repository; names of its commits by the first ten letters of the real ones."""

    path: Path
    names: dict[str, str]
    commits: dict[str, SeedCommit]

    def sha(self, original: str) -> str:
        return self.names[original[:10]]


def read_commits() -> list[SeedCommit]:
    """Return the commits, parents before children."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    return [
        SeedCommit(sha, tuple(parents.split()), datetime.fromisoformat(at), subject)
        for sha, parents, at, subject in rows
    ]


def generate(path: Path, seed: int = 1) -> SeedRepository:
    """Write the repository by one ``git fast-import``."""
    path.mkdir(parents=True)
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "init", "-q", "-b", "master", path], check=True, env=environment)
    answers, ours = os.pipe()
    commits = read_commits()
    with subprocess.Popen(
        ["git", "fast-import", "--quiet", f"--cat-blob-fd={ours}"],
        cwd=path,
        stdin=subprocess.PIPE,
        pass_fds=(ours,),
        env=environment,
    ) as process:
        os.close(ours)
        assert process.stdin is not None
        with os.fdopen(answers, "r") as reader:
            names = _write(commits, process.stdin, reader, np.random.default_rng(seed))
            process.stdin.close()
            assert process.wait() == 0
    return SeedRepository(path, names, {commit.sha[:10]: commit for commit in commits})


def _write(
    commits: list[SeedCommit], stream: IO[bytes], answers: IO[str], random: np.random.Generator
) -> dict[str, str]:
    marks = {commit.sha: number for number, commit in enumerate(commits, 1)}
    names: dict[str, str] = {}
    #: What a commit does: path -> content, or None where it deletes.
    effects: dict[str, dict[str, str | None]] = {}
    for commit in commits:
        undone = _ROLLBACK.match(commit.subject)
        subject = commit.subject or f"Change {commit.sha[:10]}"
        undo = effects.get(undone.group(1)) if undone else None
        if undone and undo is not None:
            effect = {
                path: (f"{undone.group(1)}\n" if content is None else None)
                for path, content in undo.items()
            }
            subject = f"Automated rollback of commit {names[undone.group(1)[:10]]}"
        else:
            effect = {_place(commit, random): f"{commit.sha}\n"}
        effects[commit.sha] = effect
        stream.write(_record(commit, subject, marks, effect))
        stream.write(f"get-mark :{marks[commit.sha]}\n".encode())
        stream.flush()
        names[commit.sha[:10]] = answers.readline().strip()
    stream.write(b"done\n")
    return names


def _place(commit: SeedCommit, random: np.random.Generator) -> str:
    culprit = commit.sha[:10] in STORY
    places = _RELEVANT_PLACES
    if not culprit and random.random() < IRRELEVANT:
        places = _IRRELEVANT_PLACES
    return places[int(random.integers(len(places)))].format(commit.sha[:10])


def _record(
    commit: SeedCommit, subject: str, marks: dict[str, int], effect: dict[str, str | None]
) -> bytes:
    message = f"{subject}\n\nOriginally {commit.sha}.\n".encode()
    moment = f"{int(commit.committed_at.timestamp())} {commit.committed_at:%z}"
    known = [marks[parent] for parent in commit.parents if parent in marks]
    lines = [f"commit refs/heads/master\nmark :{marks[commit.sha]}\n".encode()]
    lines.append(f"committer A developer <developer@example.invalid> {moment}\n".encode())
    lines.append(b"data %d\n%s\n" % (len(message), message))
    if known:
        lines.append(f"from :{known[0]}\n".encode())
        lines += [f"merge :{parent}\n".encode() for parent in known[1:]]
    for path, content in effect.items():
        if content is None:
            lines.append(f"D {path}\n".encode())
        else:
            lines.append(f"M 100644 inline {path}\ndata {len(content)}\n{content}\n".encode())
    lines.append(b"\n")
    return b"".join(lines)


@dataclass(frozen=True)
class SeedAxis:
    """What the story says of a list of candidates (original names, earliest first)."""

    #: Throughput of each position, images/s.
    levels: tuple[float, ...]
    #: Positions that do not build, in clumps.
    broken: frozenset[int]
    #: Positions with a nightly wheel: most days, none on the first three of August.
    nightlies: tuple[int, ...]
    #: Positions of the four steps.
    steps: tuple[int, ...]


def tell_story(repository: SeedRepository, shas: list[str], seed: int = 1) -> SeedAxis:
    """Lay the story over the candidates' (generated) names."""
    random = np.random.default_rng(seed)
    originals = {sha: original for original, sha in repository.names.items()}
    levels, steps, level = [], [], START
    for position, sha in enumerate(shas):
        if originals[sha] in STORY:
            level = STORY[originals[sha]]
            steps.append(position)
        levels.append(level)
    near = {place for step in steps for place in (step - 1, step)} | {0, len(shas) - 1}
    broken: set[int] = set()
    while len(broken) < 0.08 * len(shas):
        start, length = int(random.integers(1, len(shas) - 1)), int(random.geometric(1 / 3))
        broken |= set(range(start, min(start + length, len(shas) - 1))) - near
    return SeedAxis(
        tuple(levels), frozenset(broken), _nightlies(repository, shas, broken, random), tuple(steps)
    )


def _nightlies(
    repository: SeedRepository, shas: list[str], broken: set[int], random: np.random.Generator
) -> tuple[int, ...]:
    """Return the last commit of each day that builds; one night in eight is missing."""
    originals = {sha: original for original, sha in repository.names.items()}
    last_of_day: dict[str, int] = {}
    for position, sha in enumerate(shas):
        if position not in broken:
            day = f"{repository.commits[originals[sha]].committed_at:%Y-%m-%d}"
            last_of_day[day] = position
    missing = {"2019-08-01", "2019-08-02", "2019-08-03"}
    return tuple(
        position
        for day, position in sorted(last_of_day.items())
        if day not in missing and random.random() > 1 / 8
    )
