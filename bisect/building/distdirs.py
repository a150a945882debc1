"""Directories of archives that builds need not download: Bazel looks there by name and checksum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfbisect.building.place import Directories

#: Digits of the checksum that name the directory of an archive whose name is taken.
DIGITS = 16


def place_of(distdir: Path, name: str, sha256: str) -> tuple[Path, Path]:
    """Return where an archive goes: by its name alone, or apart where another one has that name.

    Bazel knows an archive by the last part of its address, and many are called ``v1.0.tar.gz``.
    """
    return distdir / name, distdir / sha256[:DIGITS] / name


def distdirs(directories: Directories) -> Iterator[Path]:
    """Yield the directories that Bazel is to look into."""
    yield directories.distdir
    if directories.distdir.is_dir():
        yield from sorted(path for path in directories.distdir.iterdir() if path.is_dir())
