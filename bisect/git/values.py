"""What git tells about commits, as plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

#: Seconds since the epoch of the last moment that ``datetime`` can hold.
_LAST_MOMENT = 253402300799


@dataclass(frozen=True, slots=True)
class BareCommit:
    """What a merge needs to know of a commit."""

    #: Full hexadecimal name.
    sha: str
    #: Full hexadecimal name of its tree: the identity of what gets built.
    tree: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitInfo(BareCommit):
    """One commit, for people too."""

    #: First paragraph of the message on one line, without control characters.
    subject: str
    #: The author's name, without control characters.
    author: str
    #: When it was committed, in UTC.
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Candidate(CommitInfo):
    """A commit on the axis of a bisection."""

    #: Paths that differ from the first parent's tree; all of them unless ``paths_cut``.
    paths: tuple[str, ...] = ()
    #: More paths changed than are listed.
    paths_cut: bool = False


@dataclass(frozen=True, slots=True)
class DiffText:
    """A patch for reading."""

    text: str
    #: The patch goes on after ``text``.
    cut: bool


def one_line(text: str) -> str:
    """Return ``text`` with every control character replaced: safe on a terminal and in a table."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if _is_control(letter) else letter for letter in text
    )


def many_lines(text: str) -> str:
    """Return ``text`` with every control character but newline and tab replaced."""
    return "".join(letter if letter in "\n\t" else one_line(letter) for letter in text)


def moment(seconds: str) -> datetime:
    """Return the moment of a commit's date; dates that can't be (a hostile commit) are clamped."""
    try:
        value = int(seconds)
    except ValueError:
        value = 0
    return datetime.fromtimestamp(min(max(value, 0), _LAST_MOMENT), UTC)


def _is_control(letter: str) -> bool:
    # C0, DEL, C1, and the marks that turn the direction of text round.
    code = ord(letter)
    return code < 32 or 127 <= code < 160 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
