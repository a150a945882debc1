"""Filling a directory of archives: each from the first address that still has it, verified."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import requests

from perfbisect.building.distdirs import place_of
from perfbisect.building.images import host_ca
from perfbisect.core.archives import Archive
from perfbisect.errors import TransientError
from perfbisect.ports import CancelledWork, CancelToken

#: Archives downloaded at once.
_AT_ONCE = 4
_PIECE = 1 << 16
#: Seconds to connect, and without a byte.
_PATIENCE = (20, 60)
_PARTIAL = ".partial"

#: Called whenever an archive has got further: its bytes so far.
Progress = Callable[[Archive, int], None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An address that did not have an archive."""

    url: str
    why: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of one archive."""

    archive: Archive
    #: Where it is; None: nowhere.
    path: Path | None
    #: It was there before.
    known: bool = False
    size: int = 0
    #: Address it came from; empty: it was there, or can't be had.
    source: str = ""
    #: Addresses that did not have it, in the order in which they were tried.
    dead: tuple[Attempt, ...] = ()


class ArchiveFetcher:
    """Fills one directory. What is cut off goes on where it was, the next time."""

    def __init__(
        self, distdir: Path, cancel: CancelToken | None = None, progress: Progress | None = None
    ) -> None:
        self._distdir = distdir
        self._cancel = cancel or CancelToken()
        self._progress = progress
        self._placing = threading.Lock()

    def fetch_all(
        self, archives: Sequence[Archive], done: Callable[[Fetched], None] = lambda _: None
    ) -> list[Fetched]:
        """Fetch what is missing, several at once; return what became of each, in order.

        Args:
            archives: what is wanted.
            done: called with each as soon as it is known, from any thread.

        Raises:
            TransientError: the directory can't be written.
            CancelledWork: the token asked for the end.
        """

        def one(archive: Archive) -> Fetched:
            fetched = self.fetch(archive)
            done(fetched)
            return fetched

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="archive") as pool:
            futures = [pool.submit(one, archive) for archive in archives]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._cancel.cancel()
                pool.shutdown(cancel_futures=True)
                raise

    def find(self, archive: Archive) -> Path | None:
        """Return where an archive is, verified, or None."""
        for path in self._places(archive):
            if path.is_file() and _sha256(path) == archive.sha256:
                return path
        return None

    def fetch(self, archive: Archive) -> Fetched:
        """Have one archive: from the directory, or from the first address that has it.

        Raises:
            TransientError: the directory can't be written.
            CancelledWork: the token asked for the end.
        """
        if self._cancel.cancelled:
            raise CancelledWork
        with _disk_errors(self._distdir):
            found = self.find(archive)
            if found is not None:
                self._place(archive, found)
                return Fetched(archive, found, known=True, size=found.stat().st_size)
            dead: list[Attempt] = []
            with requests.Session() as session:
                for url in archive.urls:
                    why = self._try(session, archive, url)
                    if why:
                        dead.append(Attempt(url, why))
                        continue
                    path = self._place(archive, self._part(archive))
                    return Fetched(
                        archive, path, size=path.stat().st_size, source=url, dead=tuple(dead)
                    )
        return Fetched(archive, None, dead=tuple(dead))

    def _try(self, session: requests.Session, archive: Archive, url: str) -> str:
        """Download from one address; return why that failed, or nothing."""
        part = self._part(archive)
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            why = self._download(session, archive, url, part)
        except requests.RequestException as error:
            # What came is kept: the next address has the same bytes, or the checksum tells.
            return _short(error)
        if why:
            return why
        got = _sha256(part)
        if got == archive.sha256:
            return ""
        part.unlink()
        return f"other content: its SHA-256 is {got}"

    def _download(self, session: requests.Session, archive: Archive, url: str, part: Path) -> str:
        offset = part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        ca = host_ca()
        with session.get(
            url, headers=headers, stream=True, timeout=_PATIENCE, verify=str(ca) if ca else True
        ) as answer:
            if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                # All of it is there already, or something longer: the checksum tells.
                return ""
            if not answer.ok:
                return f"HTTP {answer.status_code} {answer.reason}".strip()
            resumed = answer.status_code == HTTPStatus.PARTIAL_CONTENT
            with part.open("ab" if resumed else "wb") as file:
                self._copy(answer, file.write, archive, offset if resumed else 0)
        return ""

    def _copy(
        self,
        answer: requests.Response,
        write: Callable[[bytes], object],
        archive: Archive,
        done: int,
    ) -> None:
        for piece in answer.iter_content(_PIECE):
            if self._cancel.cancelled:
                raise CancelledWork
            write(piece)
            done += len(piece)
            if self._progress is not None:
                self._progress(archive, done)

    def _part(self, archive: Archive) -> Path:
        return self._distdir / _PARTIAL / archive.sha256

    def _places(self, archive: Archive) -> Iterator[Path]:
        for name in archive.names:
            yield from place_of(self._distdir, name, archive.sha256)

    def _place(self, archive: Archive, content: Path) -> Path:
        """Give an archive all the names that Bazel may look for; return the first."""
        placed = [self._named(archive, name, content) for name in archive.names]
        if content.parent.name == _PARTIAL:
            content.unlink()
        return placed[0]

    def _named(self, archive: Archive, name: str, content: Path) -> Path:
        plain, apart = place_of(self._distdir, name, archive.sha256)
        with self._placing:
            for path in (plain, apart):
                if path.is_file() and _sha256(path) == archive.sha256:
                    return path
            # Another archive of this name is there already, and may be somebody's: it stays.
            path = apart if plain.exists() else plain
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.link(content, path)
        # Builds read it as another user.
        path.chmod(0o644)
        return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _short(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "can't be reached"
    return f"{type(error).__name__}: {error}"[:200]


@contextlib.contextmanager
def _disk_errors(distdir: Path) -> Iterator[None]:
    try:
        yield
    except requests.RequestException:
        raise
    except OSError as error:
        raise TransientError(
            f"distdir: '{distdir}' can't be written: {error.strerror}", field="distdir"
        ) from error
