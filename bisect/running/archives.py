"""Archives of artifacts: unpacked once per content, and never outside of their directory."""

from __future__ import annotations

import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfbisect.core.states import FailureKind
from perfbisect.running.failures import failed
from perfbisect.units import format_size

#: Bytes that an archive may unpack to: a bound against archives that are made to fill disks.
MAX_UNPACKED = 50 * 1024**3
MAX_MEMBERS = 1_000_000

_DAMAGED = (
    tarfile.TarError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
)


def is_wheel(path: Path) -> bool:
    """Return whether a build's result is a wheel, and not an archive of artifacts."""
    return path.suffix == ".whl"


def unpack(archive: Path, directory: Path) -> Mapping[str, Any]:
    """Unpack a tar archive of any compression; return how many members and bytes it held.

    Absolute names, ``..``, links that lead outside and devices are refused.

    Raises:
        RunFailed: permanent: no archive, a damaged one, or one that must not be unpacked.
    """
    members = size = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                members += 1
                size += member.size
                if size > MAX_UNPACKED or members > MAX_MEMBERS:
                    limit = f"{format_size(MAX_UNPACKED)} or {MAX_MEMBERS} files"
                    raise _unfit(archive, f"it holds more than {limit}")
                _require_inside(member, directory)
                _extract(tar, member, directory)
    except _DAMAGED as error:
        raise _unfit(archive, str(error)) from error
    return {"members": members, "bytes": size}


def _require_inside(member: tarfile.TarInfo, directory: Path) -> None:
    """Refuse a member that is, or leads, outside of the directory, or is a device.

    Without ``..`` in names, without members behind a link, and with ``..`` only at the start of a
    link and never above the top, each link leads inside by what it says, whatever the others are.
    """
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise tarfile.ExtractError(f"'{member.name}' is neither a file nor a link")
    folders = _parts(member.name)[:-1]
    if member.name.startswith("/") or ".." in _parts(member.name):
        raise tarfile.ExtractError(f"'{member.name}' lies outside of the archive")
    if any(directory.joinpath(*folders[:end]).is_symlink() for end in range(1, len(folders) + 1)):
        raise tarfile.ExtractError(f"'{member.name}' lies behind a link")
    # A symbolic link counts from where it stands, a hard link from the top.
    up = len(folders) if member.issym() else 0
    target = _parts(member.linkname)
    while up and target[:1] == [".."]:
        up, target = up - 1, target[1:]
    if member.linkname.startswith("/") or ".." in target:
        raise tarfile.ExtractError(f"'{member.name}' links to '{member.linkname}', outside")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        tar.extract(member, directory, filter="data")
        return
    # Python before 3.11.4, which Debian 12 has: what the filter does besides what is checked above.
    member.mode &= 0o755
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    tar.extract(member, directory)


def _unfit(archive: Path, why: str) -> Exception:
    return failed(
        FailureKind.PERMANENT,
        f"{archive.name} can't be unpacked: {why}",
        advice="a build leaves a wheel (.whl) or a tar archive",
    )
