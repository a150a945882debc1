"""Trees that would be too much for a disk: a few kilobytes of git can name billions of files."""

from __future__ import annotations

from pathlib import Path

from perfbisect.errors import BadInputError
from perfbisect.git.process import Git
from perfbisect.units import format_size

#: Files and bytes that a tree may hold to be checked out.
MOST_FILES = 2_000_000
MOST_BYTES = 100 * 1024**3


def require_moderate(
    mirror: Path, tree: str, *, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES
) -> None:
    """Return if a tree, by its full name, can be written to a disk.

    Raises:
        BadInputError: it holds too much.
        InternalError: the mirror lacks it.
    """
    size = 0
    entries = Git(mirror).tokens("ls-tree", "-r", "-l", "-z", "--full-tree", tree)
    for number, entry in enumerate(entries, 1):
        # "<mode> <kind> <name> <size>\t<path>"; a submodule has "-" for a size.
        told = entry.partition(b"\t")[0].split()[-1]
        size += int(told) if told.isdigit() else 0
        if number > most_files or size > most_bytes:
            limit = f"{most_files:,} files or {format_size(most_bytes)}"
            entries.close()
            raise BadInputError(
                f"tree: {tree} can't be checked out: it holds more than {limit}",
                field="tree",
                value=tree,
            )
