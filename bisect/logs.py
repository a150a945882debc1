"""Logs of builds and runs as people may see them: by offset, plain, also while they grow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

#: Bytes of a log that one answer holds at most.
MAX_PART = 1_000_000

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    # OSC and other strings: titles, links. One that is never closed ends with its line.
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|)"
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class LogPart:
    """A piece of a log, cut between lines."""

    text: str
    offset: int
    #: Where the next piece begins, bytes from the start of the file.
    next_offset: int
    #: Nothing will follow.
    complete: bool


def log_size(path: Path) -> int:
    """Return the size in bytes; 0 while there is no file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_log(path: Path, *, offset: int, limit: int = MAX_PART, over: bool) -> LogPart:
    """Return a log from ``offset`` on, as plain text.

    Args:
        limit: bytes at most.
        over: the writer has ended; until then an unfinished last line waits for its end.
    """
    content = _content(path, offset, limit)
    end = offset + len(content)
    at_end = len(content) < limit
    if not (over and at_end):
        line_end = content.rfind(b"\n") + 1
        # A line longer than the limit is cut where it has to be.
        content = content[:line_end] if line_end or at_end else content
        end = offset + len(content)
    text = plain(content.decode("utf-8", "replace"))
    return LogPart(text, offset, end, complete=over and at_end)


def read_tail(path: Path, size: int, *, over: bool) -> LogPart:
    """Return the last ``size`` bytes of a log, from the start of a line."""
    start = max(log_size(path) - size, 0)
    if start:
        # One byte earlier: a tail that begins exactly with a line keeps that line.
        start += _content(path, start - 1, size + 1).find(b"\n")
    return read_log(path, offset=start, limit=size + 2, over=over)


def _content(path: Path, offset: int, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""


def plain(text: str) -> str:
    """Return what a terminal would show: no escapes, lines as last overwritten, no controls."""
    lines = [_overwritten(line) for line in _ESCAPES.sub("", text).split("\n")]
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", "\n".join(lines))


def _overwritten(line: str) -> str:
    """Return a line as it stands after its carriage returns: progress bars redraw themselves."""
    return line.rstrip("\r").rpartition("\r")[2]
