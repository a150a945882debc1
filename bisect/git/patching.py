"""Applying the text of a patch to a tree, in a throw-away index."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perfbisect.git.merging import ConflictFile
from perfbisect.git.process import Completed, Git

#: Largest patch that is taken, bytes.
LARGEST_PATCH = 16 * 1024 * 1024

_FAILED_AT = re.compile(r"^error: patch failed: (?P<path>.+):(?P<line>\d{1,9})$")
_FAILED = re.compile(
    r"^error: (?P<path>.+): (?P<why>does not exist in index|already exists in index"
    r"|patch does not apply|No such file or directory)$"
)
_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d+)? \+\d+(?:,\d+)? @@")


@dataclass(frozen=True, slots=True)
class Patched:
    """What applying a patch gave: a tree, or files where it does not fit, or why it is no patch."""

    tree: str = ""
    conflicts: tuple[ConflictFile, ...] = ()
    #: All of the patch is in the tree already.
    there: bool = False
    #: It can't be read as a patch; git's words.
    malformed: str = ""


def apply_patch(git_dir: Path, tree: str, patch: bytes) -> Patched:
    """Apply all of ``patch`` (a diff, or mails of ``git format-patch``) to ``tree``, or nothing."""
    with tempfile.TemporaryDirectory(prefix="perfbisect-patch-") as scratch:
        git = Git(git_dir, variables={"GIT_INDEX_FILE": str(Path(scratch) / "index")})
        git.run("read-tree", tree)
        done = _apply(git, patch)
        if done.returncode == 0:
            return Patched(tree=git.text("write-tree"))
        if _apply(git, patch, "--check", "--reverse").returncode == 0:
            return Patched(tree=tree, there=True)
    conflicts = _where_it_failed(done.stderr, patch.decode("utf-8", "replace"))
    if conflicts:
        return Patched(conflicts=conflicts)
    return Patched(malformed=done.stderr.strip().splitlines()[0].removeprefix("error: "))


def _apply(git: Git, patch: bytes, *options: str) -> Completed:
    arguments = ["apply", "--cached", "--whitespace=nowarn", *options, "-"]
    return git.run(*arguments, stdin=patch, ok=(0, 1, 128))


def _where_it_failed(stderr: str, patch: str) -> tuple[ConflictFile, ...]:
    hunks: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    for line in stderr.splitlines():
        if found := _FAILED_AT.match(line):
            hunks.setdefault(found["path"], []).append(
                _hunk_at(patch, found["path"], int(found["line"]))
            )
        elif found := _FAILED.match(line):
            hunks.setdefault(found["path"], [])
            kinds[found["path"]] = found["why"]
    return tuple(
        ConflictFile(path, kinds.get(path, ""), tuple(hunk for hunk in found if hunk))
        for path, found in hunks.items()
    )


def _hunk_at(patch: str, path: str, line: int) -> str:
    """Return the hunk of ``path`` in the patch whose old side begins at ``line``; empty if none."""
    current = ""
    taken: list[str] = []
    for text in patch.splitlines():
        if text.startswith(("--- ", "+++ ")) and not taken:
            current = text[4:].partition("\t")[0].partition("/")[2]
            continue
        start = _HUNK.match(text)
        if taken and (start or text.startswith(("diff ", "--- ", "-- "))):
            break
        if (start and int(start[1]) == line and current == path) or taken:
            taken.append(text)
    return "\n".join(taken)
