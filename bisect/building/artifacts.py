"""What a build leaves behind: one wheel, or an archive that is the same for the same files."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path

from perfbisect.units import format_size
from perfbisect.untrusted import entries_below, remove

#: Below the output directory: what the recipe's globs found.
ARTIFACTS = "artifacts"
ARCHIVE = "artifacts.tar.gz"
#: A result may hold this much at most, as runs unpack no more; sparse files count in full.
MAX_BYTES = 50 * 1024**3
MAX_FILES = 1_000_000


class NoResultError(Exception):
    """The build ended well and left nothing behind, or more than can be told apart."""


def result_of(out: Path, *, epoch: int) -> Path:
    """Return the wheel in ``out``, or an archive of everything else there.

    Args:
        out: directory that the build wrote to.
        epoch: time stamp of the archive's members, seconds since 1970.

    Raises:
        NoResultError: there is nothing, more than one wheel, or too much.
    """
    wheels = [path for path in _files(out) if path.suffix == ".whl"]
    if len(wheels) > 1:
        names = ", ".join(path.name for path in wheels)
        raise NoResultError(f"the build left {len(wheels)} wheels ({names}); one is wanted")
    if wheels:
        if wheels[0].is_symlink():
            # It may lead to what only this process may read.
            raise NoResultError(f"the build left a link in place of its wheel ({wheels[0].name})")
        return wheels[0]
    root = out / ARTIFACTS
    root = root if root.is_dir() and not root.is_symlink() else out
    members = [path for path in _files(root) if path.name != ARCHIVE]
    if not members:
        raise NoResultError("the build ended well but left neither a wheel nor artifacts")
    archive = out / ARCHIVE
    # The build may have put a link there, for us to write to where it leads.
    remove(archive)
    pack(root, members, archive, epoch=epoch)
    return archive


def _files(root: Path) -> list[Path]:
    """Return files and links below a directory by name; pipes and devices are no results.

    Raises:
        NoResultError: they are too many or too large.
    """
    found, size = [], 0
    for entry in entries_below(root):
        found.append(Path(entry.path))
        size += entry.stat(follow_symlinks=False).st_size
        if len(found) > MAX_FILES or size > MAX_BYTES:
            limit = f"{format_size(MAX_BYTES)} or {MAX_FILES} files"
            raise NoResultError(f"the build left more than {limit}")
    return sorted(found)


def pack(root: Path, members: list[Path], archive: Path, *, epoch: int) -> None:
    """Write a ``tar.gz`` whose bytes depend only on the members' names, modes and contents."""

    def normal(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = epoch
        info.mode = 0o755 if info.mode & 0o100 else 0o644
        return info

    with (
        # "x": never through a link.
        archive.open("xb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in members:
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=normal)


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
