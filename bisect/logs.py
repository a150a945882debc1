"""Logs of builds and runs as people may see them: by offset, plain, also while they grow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

#: Bytes of a log that one answer holds at most.
MAX_PART = 1_000_000

#: Bytes of a log that one search reads at most.
MOST_SEARCHED = 256 * 1024 * 1024

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    # OSC and other strings: titles, links. One that is never closed ends with its line.
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|)"
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
#: Colours and emphasis: the only escapes that say how text looks and do nothing else.
_COLOURS = re.compile(r"(\x1b\[[0-9;:]*m)")
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


def read_log(
    path: Path, *, offset: int, limit: int = MAX_PART, over: bool, colours: bool = False
) -> LogPart:
    """Return a log from ``offset`` on, as plain text.

    Args:
        limit: bytes at most.
        over: the writer has ended; until then an unfinished last line waits for its end.
        colours: keep the escapes that say how text looks.
    """
    content = _content(path, offset, limit)
    end = offset + len(content)
    at_end = len(content) < limit
    if not (over and at_end):
        line_end = content.rfind(b"\n") + 1
        # A line longer than the limit is cut where it has to be.
        content = content[:line_end] if line_end or at_end else content
        end = offset + len(content)
    decoded = content.decode("utf-8", "replace")
    text = coloured(decoded) if colours else plain(decoded)
    return LogPart(text, offset, end, complete=over and at_end)


def read_tail(path: Path, size: int, *, over: bool, colours: bool = False) -> LogPart:
    """Return the last ``size`` bytes of a log, from the start of a line."""
    start = max(log_size(path) - size, 0)
    if start:
        # One byte earlier: a tail that begins exactly with a line keeps that line.
        start += _content(path, start - 1, size + 1).find(b"\n")
    return read_log(path, offset=start, limit=size + 2, over=over, colours=colours)


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


def coloured(text: str) -> str:
    """Return the same as ``plain``, but with the escapes that say how text looks."""
    kept = _ESCAPES.sub(lambda found: found[0] if _COLOURS.fullmatch(found[0]) else "", text)
    lines = "\n".join(_overwritten(line) for line in kept.split("\n"))
    parts = _COLOURS.split(lines)
    # Every second part is an escape.
    parts[::2] = [_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", part) for part in parts[::2]]
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Match:
    """A line of a log that holds what was looked for."""

    #: Counted from 1.
    number: int
    #: Where it begins, bytes from the start of the file.
    offset: int
    text: str


def search_log(
    path: Path, words: str, *, most: int = 200, reach: int = MOST_SEARCHED
) -> tuple[list[Match], bool]:
    """Return the first lines that hold some text, whatever its case; and whether that is all.

    Lines are read one by one: a log may be larger than memory.

    Args:
        most: lines.
        reach: bytes that are looked at.
    """
    found: list[Match] = []
    offset, wanted = 0, words.casefold()
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(MAX_PART), b""), start=1):
                text = plain(raw.decode("utf-8", "replace").rstrip("\n"))
                if wanted in text.casefold():
                    if len(found) == most:
                        return found, False
                    found.append(Match(number, offset, text[:1000]))
                offset += len(raw)
                if offset > reach:
                    return found, False
    except FileNotFoundError:
        pass
    return found, True


def _overwritten(line: str) -> str:
    """Return a line as it stands after its carriage returns: progress bars redraw themselves."""
    return line.rstrip("\r").rpartition("\r")[2]
