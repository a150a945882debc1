"""Content-addressed files in a folder or a bucket, verified by SHA-256 when they are read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from perfbisect.errors import DamagedError, NotFoundError, TransientError
from perfbisect.store.artifact_cache import ArtifactCache
from perfbisect.store.artifact_places import Place

_BLOCK = 1 << 20
#: Bytes up to which what is stored already is compared, rather than its size alone.
_COMPARED = 1 << 20
#: Bytes of copies of what is elsewhere.
_CACHE_BYTES = 20 * 1024**3


def sha256_of(path: Path) -> str:
    """Return the SHA-256 hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key_of(digest: str) -> str:
    """Return the key of content with this SHA-256 digest: ``sha256/ab/cdef…``."""
    return f"sha256/{digest[:2]}/{digest[2:]}"


class FsspecArtifactStore:
    """Artifacts below one URL (``file://``, ``s3://``, ``gs://``) or path.

    Implements ``ports.ArtifactStore``. A path is this machine's own: its files are given out as
    they are. What is behind a URL may be slow or gone at any time: copies are kept here.
    """

    def __init__(
        self, url: str, local_dir: Path, *, cache_bytes: int = _CACHE_BYTES, make: bool = True
    ) -> None:
        """Open a store.

        Args:
            url: where the artifacts are.
            local_dir: copies of artifacts behind a URL are kept here.
            cache_bytes: of all copies together.
            make: make a folder that is not there; False: only look.

        Raises:
            BadInputError: what speaks to it is not installed, or it can be no folder.
            TransientError: a folder that can't be used for now.
        """
        self._place = Place(url, make=make)
        self._cache = None if "://" not in url else ArtifactCache(local_dir, cache_bytes)
        #: (path, size, mtime) of files verified by this process: a wheel of 500 MB is not hashed
        #: again before each run.
        self._verified: set[tuple[str, int, int]] = set()

    @property
    def shared(self) -> bool:
        """Whether other machines may use the same artifacts."""
        return self._cache is not None

    def put(self, path: Path, *, keep_copy: bool = True) -> str:
        """Copy a file in, whole or not at all; return its key (``sha256/ab/cdef…``).

        Args:
            keep_copy: it will soon be wanted here, so that one is kept of what is elsewhere.

        Raises:
            TransientError: it can't be read or stored.
        """
        try:
            digest = sha256_of(path)
            size = path.stat().st_size
        except OSError as error:
            raise TransientError(f"artifact {path.name} can't be read: {error}") from error
        key = key_of(digest)
        if not self._has(key, digest, size):
            self._place.put(path, key)
        if self._cache is not None and keep_copy and self._cache.find(key) is None:
            self._cache.add(key, path)
        return key

    def exists(self, key: str) -> bool:
        """Return whether the content is there."""
        return self._place.size(key) is not None

    def fetch(self, key: str) -> Path:
        """Return a local path of the content, verified.

        Raises:
            NotFoundError: no such key.
            DamagedError: the content does not match its key.
            TransientError: it can't be read.
        """
        if self._cache is not None:
            return self._fetch_copy(self._cache, key)
        assert self._place.folder is not None
        path = self._place.folder / key
        if not path.is_file():
            raise self._missing(key)
        self._verify(path, key)
        return path

    def remove(self, key: str) -> None:
        """Delete the content and its copy here; a missing one is no error."""
        if self._cache is not None:
            self._cache.drop(key)
        self._place.remove(key)

    def _has(self, key: str, digest: str, size: int) -> bool:
        """Whether the content is there, as far as can be told cheaply: else it is stored anew."""
        if self._place.size(key) != size:
            return False
        if self._place.folder is None and size > _COMPARED:
            return True
        stored = hashlib.sha256()
        with self._place.open(key) as file:
            while block := file.read(_BLOCK):
                stored.update(block)
        return stored.hexdigest() == digest

    def _fetch_copy(self, cache: ArtifactCache, key: str) -> Path:
        """Return a copy, fetched again when the one that was here, or on its way, is damaged."""
        for last in (False, False, True):
            try:
                path = cache.find(key) or self._download(cache, key)
                self._verify(path, key)
            except DamagedError:
                cache.drop(key)
                if last:
                    raise
            else:
                return path
        raise AssertionError("the last try returns or raises")

    def _download(self, cache: ArtifactCache, key: str) -> Path:
        digest = hashlib.sha256()
        try:
            with self._place.open(key) as source, cache.adding(key) as sink:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    _write(sink, block, key)
                if key_of(digest.hexdigest()) != key:
                    raise self._damaged(key)
        except FileNotFoundError as error:
            raise self._missing(key) from error
        except OSError as error:
            raise _uncopied(key, error) from error
        path = cache.find(key)
        if path is None:
            raise TransientError(f"artifact {key} went away while it was copied")
        self._verified.add(_seen(path))
        return path

    def _verify(self, path: Path, key: str) -> None:
        try:
            seen = _seen(path)
            if seen in self._verified:
                return
            if key_of(sha256_of(path)) != key:
                raise self._damaged(key)
        except OSError as error:
            raise TransientError(f"artifact {key} can't be read: {error}") from error
        self._verified.add(seen)

    def _damaged(self, key: str) -> DamagedError:
        where = f" in {self._place.name}" if self.shared else ""
        return DamagedError(f"artifact {key}{where} is damaged: its content has another digest")

    def _missing(self, key: str) -> NotFoundError:
        where = f" in {self._place.name}" if self.shared else ""
        return NotFoundError(f"artifact {key} is not there{where}", field="artifact", value=key)


def _write(sink: BinaryIO, block: bytes, key: str) -> None:
    """Write to a copy; a full disk here must not be told as the store's fault."""
    try:
        sink.write(block)
    except OSError as error:
        raise _uncopied(key, error) from error


def _uncopied(key: str, error: OSError) -> TransientError:
    return TransientError(f"artifact {key} could not be copied to this machine: {error}")


def _seen(path: Path) -> tuple[str, int, int]:
    facts = path.stat()
    return str(path), facts.st_size, facts.st_mtime_ns
