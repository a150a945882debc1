"""Where artifacts are kept: a folder or a bucket, by fsspec; what appears there is whole."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import fsspec

from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.storage import SCHEMES

#: Seconds after which an upload that never ended is of no use to anybody.
_ABANDONED = 86_400.0
#: Why a folder can never be made; anything else may pass.
_NO_FOLDER = {
    errno.EEXIST,
    errno.ENOTDIR,
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


class Place:
    """One folder or bucket. Keys are relative paths."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        """Open a place.

        Args:
            url: as ``storage.checked_url`` accepts it, or a path.
            make: make the folder where there is none, and clear it up; False: only look.

        Raises:
            BadInputError: what speaks to it is not installed, or it can be no folder here.
            TransientError: a folder that can't be made or read for now.
        """
        #: For messages.
        self.name = url
        scheme = urlsplit(url).scheme
        # A listing that is remembered would hide what another service has stored since.
        options = {} if scheme in ("", "file") else {"use_listings_cache": False}
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url, **options)
        except ImportError as error:
            wanted = SCHEMES.get(scheme, "")
            raise BadInputError(
                f"artifacts: {scheme}:// needs a package more: pip install '{wanted}'",
                field="artifacts",
                value=url,
            ) from error
        #: The folder; None: a bucket.
        self.folder = Path(self._root) if "file" in _protocols(self._fs.protocol) else None
        if self.folder is not None and make:
            self._make(self.folder)
            with self._told("can't be used"):
                self._sweep(self.folder / "partial")

    def _make(self, folder: Path) -> None:
        with self._told("can't be used"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if error.errno not in _NO_FOLDER:
                    raise
                # Python's word for a file in its place is that it exists.
                code = errno.ENOTDIR if error.errno == errno.EEXIST else error.errno
                raise BadInputError(
                    f"artifacts (PERFBISECT_ARTIFACTS, or [storage] of perfbisect.toml): "
                    f"'{self.name}' can't be used: {os.strerror(code)}; give a folder that can "
                    "be written",
                    field="artifacts",
                    value=self.name,
                ) from error

    def put(self, path: Path, key: str) -> None:
        """Copy a file in: whole under its key, or not at all.

        Raises:
            TransientError: it can't be stored.
        """
        with self._told(f"could not take {path.name}"):
            if self.folder is None:
                # A bucket shows an object, also one sent in parts, only once all of it is there.
                self._fs.put_file(str(path), f"{self._root}/{key}")
            else:
                self._put_into_folder(path, key)

    def _put_into_folder(self, path: Path, key: str) -> None:
        partial = f"{self._root}/partial/{path.name}.{secrets.token_hex(8)}"
        target = f"{self._root}/{key}"
        try:
            for each in (partial, target):
                self._fs.makedirs(each.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(path), partial)
            self._fs.mv(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.rm(partial)
            raise

    def size(self, key: str) -> int | None:
        """Return the bytes under a key; None: there are none.

        Raises:
            TransientError: the place does not answer.
        """
        with self._told("does not answer"):
            try:
                return int(self._fs.info(f"{self._root}/{key}")["size"])
            except FileNotFoundError:
                return None

    @contextlib.contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        """Yield a file to read from its beginning.

        Raises:
            FileNotFoundError: nothing is under this key.
            TransientError: it can't be read.
        """
        with (
            self._told(f"could not give {key}", missing=False),
            self._fs.open(f"{self._root}/{key}", "rb") as file,
        ):
            yield file

    def remove(self, key: str) -> None:
        """Delete what is under a key; nothing there is no error.

        Raises:
            TransientError: it can't be deleted.
        """
        with self._told(f"could not delete {key}"), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{key}")

    @contextlib.contextmanager
    def _told(self, what: str, *, missing: bool = True) -> Iterator[None]:
        """Say where something failed.

        Args:
            missing: a file that is not there is a failure too, such as of the bucket itself.
        """
        try:
            yield
        except PerfbisectError:
            raise
        # Every client has classes of errors of its own: botocore's, aiohttp's, google.auth's.
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not missing:
                raise
            said = " ".join(str(error).split()) or type(error).__name__
            raise TransientError(f"artifact store {self.name} {what}: {said}") from error

    def _sweep(self, partial: Path) -> None:
        """Remove what uploads left that were killed."""
        for path in partial.glob("*") if partial.is_dir() else ():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()


def _protocols(protocol: str | tuple[str, ...]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else protocol
