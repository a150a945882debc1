"""What a run leaves besides its value: the files that its benchmark asks to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfbisect.untrusted import glob_files

#: Files and bytes that are kept of one run at most: graph dumps can be many and large.
MAX_FILES = 500
MAX_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The files that are kept of a run."""

    #: Path relative to where the benchmark ran -> the file.
    files: Mapping[str, Path] = field(default_factory=dict)
    #: Files that fit but would have been too many or too large.
    left_out: int = 0


def collect(
    globs: Sequence[str],
    directory: Path,
    *,
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
) -> Leftovers:
    """Return the files below a directory that any of the globs fits, by name.

    Links are not followed: one may lead to what only this process may read. What is more than
    ``max_files`` or ``max_bytes`` is left out, the first by name stay.

    Raises:
        OSError: the directory can't be read.
    """
    root = directory.resolve()
    found = {path for glob in globs for path in glob_files(root, glob)}
    kept: dict[str, Path] = {}
    size = 0
    for path in sorted(found):
        grown = size + path.stat().st_size
        if len(kept) < max_files and grown <= max_bytes:
            kept[str(path.relative_to(root))] = path
            size = grown
    return Leftovers(kept, len(found) - len(kept))
