"""Writes the demo repository: the same commits, with the same ids, wherever it is done.

The repository has the outer form of TensorFlow (a Bazel workspace, a target that builds a program
that writes a wheel, C++ kernels below a Python package) and a short history with performance
changes in it whose places are known.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from perfbisect.core.recipe import digest_of
from perfbisect.core.states import ChangeKind
from perfbisect.demo.history import DEMO_DIR, DemoCommit, Tree, load_history, load_source
from perfbisect.errors import BadInputError, InternalError

#: Recipes and the benchmark, as files for ``--recipe`` and ``--benchmark``.
RECIPE_LOCAL = DEMO_DIR / "files" / "demo-local.toml"
RECIPE_BAZEL = DEMO_DIR / "files" / "demo-bazel.toml"
BENCHMARK = DEMO_DIR / "files" / "resnet-demo.toml"

BRANCH = "master"
AUTHOR = "perfbisect demo <demo@example.invalid>"
#: 2019-07-01 09:00 in the zone below; commits follow each other by a few hours.
FIRST_COMMIT_AT = 1_561_996_800
ZONE = "-0700"

#: Kept below .git: what was written, so that it need not be written twice.
_RECORD = "perfbisect-demo.json"


@dataclass(frozen=True, slots=True)
class KnownStep:
    """A commit that is known to change the benchmark's value."""

    commit: str
    parent: str
    subject: str
    kind: ChangeKind
    #: Relative change, roughly: how large it is depends on the processor.
    change: float


@dataclass(frozen=True, slots=True)
class DemoRepository:
    """The demo repository on disk. Commits are full ids."""

    path: Path
    good: str
    bad: str
    #: Every step between good and bad, oldest first.
    truth: tuple[KnownStep, ...]
    #: Commits between good and bad that do not compile, oldest first.
    unbuildable: tuple[str, ...]
    #: Every commit, oldest first; ``good`` is among the first, ``bad`` is the last.
    commits: tuple[str, ...]


def generate(dest: Path) -> DemoRepository:
    """Write the demo repository to ``dest``, whole or not at all, and check out its newest commit.

    Where ``dest`` already is the same demo repository, it is left as it is.

    Args:
        dest: a directory that does not exist yet, or is empty.

    Raises:
        BadInputError: ``dest`` is something else, or git is not installed.
        InternalError: git refused.
    """
    dest = dest.absolute()
    history, source = load_history(), load_source()
    digest = digest_of([source, [asdict(commit) for commit in history]])
    present = _read_record(dest, digest)
    if present is not None:
        return present
    if dest.exists() and not (dest.is_dir() and not any(dest.iterdir())):
        message = f"{dest}: is there already and is not this demo repository; name another place"
        raise BadInputError(message, field="dest", value=str(dest))
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as scratch:
        work = Path(scratch) / "repository"
        repository = _write(work, dest, history, source)
        record = json.dumps({"digest": digest, **asdict(repository), "path": ""}, indent=1)
        (work / ".git" / _RECORD).write_text(record, encoding="utf-8")
        if dest.exists():
            dest.rmdir()
        work.rename(dest)
    return repository


def _read_record(dest: Path, digest: str) -> DemoRepository | None:
    """Return what an earlier call wrote to ``dest``; None if it was no call, or another version."""
    try:
        record: dict[str, Any] = json.loads((dest / ".git" / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if record.get("digest") != digest:
        return None
    truth = (KnownStep(**{**step, "kind": ChangeKind(step["kind"])}) for step in record["truth"])
    return DemoRepository(
        path=dest,
        good=record["good"],
        bad=record["bad"],
        truth=tuple(truth),
        unbuildable=tuple(record["unbuildable"]),
        commits=tuple(record["commits"]),
    )


def _write(work: Path, dest: Path, history: tuple[DemoCommit, ...], tree: Tree) -> DemoRepository:
    if shutil.which("git") is None:
        raise BadInputError("git is not installed; the demo repository is written with it")
    template = work.parent / "template"
    template.mkdir()
    _git(work.parent, "init", "--quiet", f"--initial-branch={BRANCH}", "--object-format=sha1",
         f"--template={template}", str(work))  # fmt: skip
    commits = _import(work, history, tree)
    _git(work, "reset", "--quiet", "--hard", BRANCH)
    return _describe(dest, history, commits)


def _describe(
    dest: Path, history: tuple[DemoCommit, ...], commits: tuple[str, ...]
) -> DemoRepository:
    tagged = [index for index, commit in enumerate(history) if commit.tag]
    first, last = tagged[0], tagged[-1]
    within = range(first + 1, last + 1)
    steps = ((i, history[i].step) for i in within)
    truth = tuple(
        KnownStep(
            commit=commits[i],
            parent=commits[i - 1],
            subject=_fill(history[i].subject, history, commits, i),
            kind=kind,
            change=history[i].change,
        )
        for i, kind in steps
        if kind is not None
    )
    unbuildable = tuple(commits[i] for i in within if not history[i].builds)
    return DemoRepository(dest, commits[first], commits[last], truth, unbuildable, commits)


def _fill(
    text: str, history: tuple[DemoCommit, ...], commits: tuple[str, ...] | list[str], index: int
) -> str:
    """Return a message with ``{sha}`` replaced by the id of the commit that is rolled back."""
    name = history[index].rolls_back
    if not name:
        return text
    place = next(i for i, commit in enumerate(history) if commit.name == name)
    return text.replace("{sha}", commits[place])


def _import(work: Path, history: tuple[DemoCommit, ...], tree: Tree) -> tuple[str, ...]:
    """Stream all commits into git, one id read back after each; return the ids."""
    process = subprocess.Popen(
        ["git", "fast-import", "--quiet", "--date-format=raw"],
        cwd=work,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    commits: list[str] = []
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for index, commit in enumerate(history):
                before = dict(tree) if index else {}
                for edit in commit.edits:
                    edit.apply(tree)
                _send_commit(process.stdin, history, commits, index, _changed(before, tree))
                commits.append(process.stdout.readline().decode().strip())
        except BrokenPipeError:
            pass  # git says why on its standard error
        except BaseException:
            process.kill()
            raise
        _, errors = process.communicate()
    if process.returncode or not all(commits):
        raise InternalError(f"git fast-import: {errors.decode(errors='replace').strip()}")
    return tuple(commits)


def _changed(before: Tree, after: Tree) -> Tree:
    return {path: text for path, text in sorted(after.items()) if before.get(path) != text}


def _send_commit(
    stream: IO[bytes],
    history: tuple[DemoCommit, ...],
    commits: list[str],
    index: int,
    changed: Tree,
) -> None:
    """Send one commit, its files and its tag, and ask for its id."""
    commit = history[index]
    body = _fill(commit.body.strip(), history, commits, index)
    subject = _fill(commit.subject, history, commits, index)
    message = f"{subject}\n\n{body}\n" if body else f"{subject}\n"
    # Uneven steps of 2 to 9 hours, so that dates look lived in and never repeat.
    moment = FIRST_COMMIT_AT + sum(7200 + 3571 * (i * 37 % 8) for i in range(index))
    stream.write(f"commit refs/heads/{BRANCH}\nmark :{index + 1}\n".encode())
    for role in ("author", "committer"):
        stream.write(f"{role} {AUTHOR} {moment} {ZONE}\n".encode())
    stream.write(_data(message))
    if index:
        stream.write(f"from :{index}\n".encode())
    for path, text in changed.items():
        mode = "100755" if path.endswith(".sh") else "100644"
        stream.write(f"M {mode} inline {path}\n".encode() + _data(text))
    if commit.tag:
        stream.write(f"tag {commit.tag}\nfrom :{index + 1}\n".encode())
        stream.write(f"tagger {AUTHOR} {moment} {ZONE}\n".encode() + _data(f"{subject}\n"))
    stream.write(f"get-mark :{index + 1}\n".encode())
    stream.flush()


def _data(text: str) -> bytes:
    raw = text.encode()
    return b"data %d\n%s\n" % (len(raw), raw)


def _environment() -> Mapping[str, str]:
    """Return an environment in which no setting of the user's changes what git writes."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }


def _git(directory: Path, *arguments: str) -> None:
    result = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=_environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        raise InternalError(f"git {arguments[0]}: {result.stderr.strip()}")
