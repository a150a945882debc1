"""The commit that a wheel was built from, read out of the wheel without importing it.

Builds stamp themselves: TensorFlow compiles what ``git describe`` printed into one of its
libraries, others write a SHA into a ``version.py``. Which member it is differs between versions, so
it is found by what it looks like. Members are read in pieces: memory stays bounded, and nothing is
read once a stamp was found.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from perfbisect.errors import BadInputError

#: Bytes read at once.
_PIECE = 1 << 20
#: Longest stamp.
_LONGEST = 160
#: Bytes unpacked at most: a bound against archives that are made to take forever.
_MOST = 32 << 30
#: Larger sources and texts are data.
_LARGEST_TEXT = 256 << 10

#: The end of what ``git describe`` prints; cheap to search for.
_DESCRIBED = re.compile(rb"-g[0-9a-f]{7,40}(?![0-9A-Za-z])")
#: All of it: a tag (with a number somewhere), the number of commits since, the short SHA.
_STAMP = re.compile(rb"([A-Za-z0-9][A-Za-z0-9_./+-]{0,80})-\d{1,7}-g[0-9a-f]{7,40}$")
#: ``git_version = '…'`` and its like in a source or metadata file.
_ASSIGNED = re.compile(
    rb"(?i)\b_{0,2}(?:git_?(?:version|revision|hash|sha\d*|commit)|commit_?(?:id|hash|sha)?"
    rb"|full-?revision-?id|source_?(?:commit|revision))_{0,2}[\"']?\s*[:=][^\"'\n]{0,40}"
    rb"[\"']g?([0-9a-f]{7,40})[\"']"
)
_ABOUT_VERSIONS = re.compile(r"(?i)(?<![a-z])(?:version|build_?info|git|revision)")
_LIBRARY = re.compile(r"(?i)\.(?:so(?:\.\d+)*|pyd|dll|dylib)$")
#: ``torch-2.1.0a0+git1234567``, ``x-1.2.dev3+gabc1234``.
_LOCAL = re.compile(r"^g(?:it)?\.?([0-9a-f]{7,40})(?:\.|$)")

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A git version found in a wheel."""

    #: A ``git describe`` string or a (short) SHA.
    git_version: str
    #: Member it was found in; empty: it is part of the wheel's version.
    member: str


def find_stamp(wheel: Path) -> Stamp | None:
    """Return the git version that a wheel's build left in it, or None.

    Raises:
        BadInputError: the file is no wheel, or damaged.
        OSError: it can't be read.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return find_stamp_in(archive, wheel.name)
    except _DAMAGED as error:
        raise BadInputError(
            f"{wheel.name} can't be read as a wheel: {error}", field="wheel", value=wheel.name
        ) from error


def find_stamp_in(archive: zipfile.ZipFile, filename: str, likely: str = "") -> Stamp | None:
    """Return the git version in an open archive, which may be a remote one.

    Args:
        archive: the wheel.
        filename: its file name, whose version may hold a SHA.
        likely: member where another wheel of the same project had its stamp; tried first.

    Raises:
        zipfile.BadZipFile: the archive is damaged.
    """
    unpacked = 0
    for member in _in_order(archive.infolist(), likely):
        unpacked += member.file_size
        if unpacked > _MOST:
            break
        with archive.open(member) as stream:
            found = _in_text(stream) if _is_text(member) else _in_library(stream)
        if found:
            return Stamp(found, member.filename)
    local = _local_version(filename)
    return Stamp(local, "") if local else None


def _in_order(members: Iterable[zipfile.ZipInfo], likely: str) -> Iterator[zipfile.ZipInfo]:
    """Yield the members worth reading: what names versions first, then libraries, small to large.

    Sources far down belong to what the wheel carries along, and may hold its stamps.
    """

    def order(member: zipfile.ZipInfo) -> tuple[bool, bool, int, int]:
        depth = member.filename.count("/") if _is_text(member) else 0
        return (member.filename != likely, not _is_text(member), depth, member.file_size)

    chosen = [member for member in members if _is_text(member) or _is_library(member)]
    yield from sorted(chosen, key=order)


def _is_text(member: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(member.filename)
    if path.suffix not in (".py", ".json", ".txt", "") or member.file_size > _LARGEST_TEXT:
        return False
    return bool(_ABOUT_VERSIONS.search(path.name)) or path.name == "METADATA"


def _is_library(member: zipfile.ZipInfo) -> bool:
    return bool(_LIBRARY.search(member.filename))


def _in_text(stream: IO[bytes]) -> str | None:
    text = stream.read(_LARGEST_TEXT)
    assigned = _ASSIGNED.search(text)
    # A name like ``revision`` may well be given decimal numbers.
    if assigned and not assigned[1].isdigit():
        return assigned[1].decode()
    return _described(text)


def _in_library(stream: IO[bytes]) -> str | None:
    """Search a member of any size, piece by piece."""
    rest = b""
    while piece := stream.read(_PIECE):
        data = rest + piece
        if found := _described(data, goes_on=True):
            return found
        rest = data[-_LONGEST:]
    return _described(rest)


def _described(data: bytes, *, goes_on: bool = False) -> str | None:
    """Return the first stamp; where data goes on, none that touches its end: it may be longer."""
    for end in _DESCRIBED.finditer(data):
        if goes_on and end.end() == len(data):
            continue
        before = data[max(0, end.end() - _LONGEST) : end.end()]
        # Strings in libraries end with a zero byte: what stands before belongs to another one.
        before = re.split(rb"[^\x21-\x7e]", before)[-1]
        stamp = _STAMP.search(before)
        if stamp and re.search(rb"\d", stamp[1]):
            return stamp[0].decode()
    return None


def _local_version(filename: str) -> str | None:
    try:
        version = parse_wheel_filename(filename)[1]
    except InvalidWheelFilename:
        return None
    found = _LOCAL.match(version.local or "")
    return found[1] if found else None
