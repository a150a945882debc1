"""Content-addressed files on any fsspec file system, verified by SHA-256 on every read."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from pathlib import Path

import fsspec

from perfbisect.errors import NotFoundError, TransientError

_BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the SHA-256 hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FsspecArtifactStore:
    """Artifacts below one URL (``file://``, ``s3://``, ``gs://``, or a plain path)."""

    def __init__(self, url: str, local_dir: Path) -> None:
        """Open a store.

        Args:
            url: where the artifacts are.
            local_dir: copies of remote artifacts are kept here.
        """
        self._fs, self._root = fsspec.core.url_to_fs(url)
        self._is_local = "file" in _protocols(self._fs.protocol)
        self._local_dir = local_dir
        #: (path, size, mtime) of files verified by this process: a wheel of 500 MB is not hashed
        #: again before each run.
        self._verified: set[tuple[str, int, int]] = set()
        self._fs.makedirs(self._root, exist_ok=True)

    def put(self, path: Path) -> str:
        """Copy a file in, whole or not at all; return its key (``sha256/ab/cdef…``)."""
        digest = sha256_of(path)
        key = f"sha256/{digest[:2]}/{digest[2:]}"
        if self.exists(key):
            return key
        target = f"{self._root}/{key}"
        partial = f"{self._root}/partial/{digest}.{secrets.token_hex(4)}"
        try:
            self._fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self._fs.makedirs(partial.rsplit("/", 1)[0], exist_ok=True)
            self._fs.put_file(str(path), partial)
            self._fs.mv(partial, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._fs.rm(partial)
            raise TransientError(f"artifact {path.name} could not be stored: {error}") from error
        return key

    def exists(self, key: str) -> bool:
        """Return whether the content is there."""
        return bool(self._fs.exists(f"{self._root}/{key}"))

    def fetch(self, key: str) -> Path:
        """Return a local path of the content, verified.

        Raises:
            NotFoundError: no such key.
            TransientError: the content does not match its key or can't be read.
        """
        if not self.exists(key):
            raise NotFoundError(f"artifact {key} is not there", field="artifact", value=key)
        path = Path(self._root) / key if self._is_local else self._download(key)
        stat = path.stat()
        seen = (str(path), stat.st_size, stat.st_mtime_ns)
        if seen not in self._verified:
            if key.replace("/", "") != f"sha256{sha256_of(path)}":
                raise TransientError(f"artifact {key} is damaged: its content has another digest")
            self._verified.add(seen)
        return path

    def remove(self, key: str) -> None:
        """Delete the content; a missing one is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(f"{self._root}/{key}")

    def _download(self, key: str) -> Path:
        target = self._local_dir / key
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
        try:
            with self._fs.open(f"{self._root}/{key}", "rb") as source, partial.open("wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK)
            partial.replace(target)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise TransientError(f"artifact {key} could not be read: {error}") from error
        return target


def _protocols(protocol: str | tuple[str, ...]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else protocol
