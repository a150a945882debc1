"""Archives of artifacts: unpacked once per content, and never outside of their directory."""

from __future__ import annotations

import gzip
import lzma
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
                tar.extract(member, directory, filter="data")
    except _DAMAGED as error:
        raise _unfit(archive, str(error)) from error
    return {"members": members, "bytes": size}


def _unfit(archive: Path, why: str) -> Exception:
    return failed(
        FailureKind.PERMANENT,
        f"{archive.name} can't be unpacked: {why}",
        advice="a build leaves a wheel (.whl) or a tar archive",
    )
