"""Reading commits out of ``git log``, in formats that no message or path can break."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from perfbisect.git.process import Git
from perfbisect.git.values import Candidate, CommitInfo, moment, one_line

_FORMAT = "%H%x00%T%x00%P%x00%ct%x00%an%x00%s"
_FIELDS = 6

#: Most paths that are remembered of one commit.
MOST_PATHS = 2000

#: Most characters of a subject or a name that are kept.
_LONGEST_LINE = 500


def read_commits(git: Git, *selection: str) -> list[CommitInfo]:
    """Return the commits that ``git log`` selects, in its order.

    Args:
        selection: options and revisions for ``git log``, all of them ours or full SHAs.
    """
    tokens = git.tokens("log", "-z", "--no-show-signature", f"--format={_FORMAT}", *selection)
    return list(_plain(tokens))


def read_candidates(git: Git, *selection: str) -> list[Candidate]:
    """Return the commits that ``git log`` selects, with the paths each changed.

    Args:
        selection: options, revisions and, after ``--``, path filters for ``git log``.
    """
    tokens = git.tokens(
        "log",
        "-z",
        "--no-show-signature",
        f"--format={_FORMAT}",
        "--diff-merges=first-parent",
        "--raw",
        "--no-renames",
        # A filter on paths chooses commits; the paths shown are still all that a commit changed.
        "--full-diff",
        *selection,
    )
    return list(_with_paths(tokens))


def _plain(tokens: Iterable[bytes]) -> Iterator[CommitInfo]:
    fields: list[bytes] = []
    for token in tokens:
        fields.append(token)
        if len(fields) == _FIELDS:
            yield CommitInfo(*_header(fields))
            fields = []


def _with_paths(tokens: Iterable[bytes]) -> Iterator[Candidate]:
    """Each commit is its six fields, then pairs of ``:modes and names`` and path.

    A header begins with a hexadecimal name, never with a colon, and a path always follows its
    colon: whatever a path or a subject contains, it can't be taken for something else.
    """
    stream = iter(tokens)
    fields: list[bytes] = []
    paths: list[str] = []
    touched = 0
    for token in stream:
        if len(fields) < _FIELDS:
            fields.append(token)
            continue
        start = token.lstrip(b"\n")
        if start.startswith(b":"):
            path = next(stream, b"")
            touched += 1
            if touched <= MOST_PATHS:
                paths.append(path.decode("utf-8", "replace"))
            continue
        if not start:
            continue
        yield Candidate(*_header(fields), paths=tuple(paths), paths_cut=touched > MOST_PATHS)
        fields, paths, touched = [start], [], 0
    if len(fields) == _FIELDS:
        yield Candidate(*_header(fields), paths=tuple(paths), paths_cut=touched > MOST_PATHS)


def _header(fields: list[bytes]) -> tuple[str, str, tuple[str, ...], str, str, datetime]:
    sha, tree, parents, seconds, author, subject = (f.decode("utf-8", "replace") for f in fields)
    return (
        sha.strip(),
        tree,
        tuple(parents.split()),
        one_line(subject)[:_LONGEST_LINE],
        one_line(author)[:_LONGEST_LINE],
        moment(seconds),
    )
