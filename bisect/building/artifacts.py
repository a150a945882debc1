"""What a build leaves behind: one wheel, or an archive that is the same for the same files."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path

#: Below the output directory: what the recipe's globs found.
ARTIFACTS = "artifacts"
ARCHIVE = "artifacts.tar.gz"


class NoResultError(Exception):
    """The build ended well and left nothing behind, or more than can be told apart."""


def result_of(out: Path, *, epoch: int) -> Path:
    """Return the wheel in ``out``, or an archive of everything else there.

    Args:
        out: directory that the build wrote to.
        epoch: time stamp of the archive's members, seconds since 1970.

    Raises:
        NoResultError: there is nothing, or more than one wheel.
    """
    wheels = sorted(out.rglob("*.whl"))
    if len(wheels) > 1:
        names = ", ".join(path.name for path in wheels)
        raise NoResultError(f"the build left {len(wheels)} wheels ({names}); one is wanted")
    if wheels:
        return wheels[0]
    root = out / ARTIFACTS if (out / ARTIFACTS).is_dir() else out
    members = sorted(path for path in root.rglob("*") if path.name != ARCHIVE and not path.is_dir())
    if not members:
        raise NoResultError("the build ended well but left neither a wheel nor artifacts")
    archive = out / ARCHIVE
    pack(root, members, archive, epoch=epoch)
    return archive


def pack(root: Path, members: list[Path], archive: Path, *, epoch: int) -> None:
    """Write a ``tar.gz`` whose bytes depend only on the members' names, modes and contents."""

    def normal(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = epoch
        info.mode = 0o755 if info.mode & 0o100 else 0o644
        return info

    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in members:
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=normal)


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
