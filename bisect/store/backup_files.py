"""The file that a backup is: a description of itself and the content, packed and checked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from perfbisect.errors import BadInputError, TransientError

_ABOUT, _CONTENT = "perfbisect.json", "database"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class About:
    """What a backup holds."""

    #: ``sqlite`` or ``postgresql``.
    kind: str
    #: Revision of the schema.
    schema: str
    #: SHA-256 of the content, and its bytes.
    sha256: str
    size: Annotated[int, Field(ge=0)]
    #: Of perfbisect.
    version: str
    #: When it was begun, ISO 8601.
    at: str


#: Longest description that is read, in bytes: perfbisect writes a few hundred.
_LONGEST = 1 << 16


def read_about(source: Path) -> About:
    """Return what a file says of itself.

    Raises:
        BadInputError: it is not there, is no backup, or was cut off.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            with archive.open(_ABOUT) as packed:
                told = packed.read(_LONGEST + 1)
            archive.getinfo(_CONTENT)
    except FileNotFoundError as error:
        raise BadInputError(f"there is no file {source}", field="file") from error
    except Exception as error:
        # Each way to pack has errors of its own for content that is none.
        raise damaged(source, "it is no backup, or was cut off") from error
    if len(told) > _LONGEST:
        raise damaged(source, f"its {_ABOUT} is longer than {_LONGEST} bytes")
    try:
        return TypeAdapter(About).validate_json(told, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise damaged(source, f"it is no backup: {_ABOUT}: {why}") from error


def damaged(source: Path, why: str) -> BadInputError:
    """Return the error for a backup that can't be used."""
    return BadInputError(f"{source} can't be used: {why}", field="file", value=str(source))


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Yield a directory on the same file system, so that a file is moved and not copied.

    Raises:
        BadInputError: nothing can be written there.
        TransientError: the disk is full.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.resolve().parent
        ) as made:
            yield Path(made)
    except PermissionError as error:
        raise BadInputError(f"{target}: {error.strerror}", field="file") from error
    except OSError as error:
        raise TransientError(f"{target}: {error.strerror or error}") from error


def pack(about: About, content: Path, target: Path) -> None:
    """Write a backup, and have it on the disk."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_ABOUT, json.dumps(asdict(about), indent=2) + "\n")
        archive.write(content, _CONTENT)
    sync(target)


def unpack(source: Path, about: About, target: Path) -> None:
    """Write the content of a backup to a file.

    Raises:
        BadInputError: the content is not what the backup says, or can't be unpacked.
        TransientError: the backup can't be read, or the disk is full.
    """
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(source) as archive, archive.open(_CONTENT) as packed:
            _copy(packed, target, digest, about.size)
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise damaged(source, str(error)) from error
    except OSError as error:
        raise TransientError(f"{source} can't be read: {error}") from error
    except Exception as error:
        # zlib and others have errors of their own for content that is none.
        raise damaged(source, str(error)) from error
    if digest.hexdigest() != about.sha256:
        raise damaged(source, "its content has another SHA-256 than it says")


def _copy(packed: IO[bytes], target: Path, digest: Any, size: int) -> None:
    left = size
    with target.open("wb") as file:
        while block := packed.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise ValueError("it holds more than it says")
            digest.update(block)
            file.write(block)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Have a file, or a directory's entries, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
