"""One file of an index, downloaded whole or not at all, going on where it was cut off."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import requests

from perfbisect.errors import BadInputError, TransientError
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.publishing.index import TRIES, PackageIndex, translated
from perfbisect.publishing.values import Published

#: Bytes read at once: so many are lost when a connection breaks.
_PIECE = 1 << 14
#: Downloads whose content was wrong before we believe that the index is.
_WRONG = 2

#: Called with the bytes that are there and the bytes of the whole.
Progress = Callable[[int, int], None]


def download(
    index: PackageIndex,
    wheel: Published,
    part: Path,
    admit: Callable[[int], None],
    cancel: CancelToken,
    progress: Progress | None = None,
) -> None:
    """Fill ``part`` with the wheel's content and verify its SHA-256.

    What is in ``part`` already is kept if the server can go on from there. When this raises,
    ``part`` holds what came, for the next time.

    Args:
        index: session to the index.
        wheel: what to get.
        part: file to fill; its directory is there.
        admit: called with the bytes of the whole before anything is written; raises to refuse.
        cancel: ends it.
        progress: told about every piece.

    Raises:
        BadInputError: the file is gone, or is not what the index says it is.
        TransientError: it can't be had or kept now.
        CancelledWork: the token asked for the end.
    """
    for _wrong in range(_WRONG):
        _fill(index, wheel, part, admit, cancel, progress)
        if _sha256(part) == wheel.sha256:
            return
        # Most likely the beginning was another file's, or damaged on its way: from scratch.
        part.unlink()
    raise BadInputError(
        f"{wheel.filename} is not what the index says it is: its SHA-256 is not {wheel.sha256}",
        field="sha256",
        value=wheel.sha256,
    )


def _fill(
    index: PackageIndex,
    wheel: Published,
    part: Path,
    admit: Callable[[int], None],
    cancel: CancelToken,
    progress: Progress | None,
) -> None:
    """Get the rest of the file; every try that brought something earns new ones."""
    while True:
        before = _size(part)
        try:
            for attempt in index.retrying(cancel, TRIES):
                with attempt:
                    _try(index, wheel, part, admit, cancel, progress)
            return
        except TransientError:
            if _size(part) <= before:
                raise


def _try(
    index: PackageIndex,
    wheel: Published,
    part: Path,
    admit: Callable[[int], None],
    cancel: CancelToken,
    progress: Progress | None,
) -> None:
    offset = _size(part)
    if wheel.size is not None and offset == wheel.size:
        return
    if wheel.size is not None and offset > wheel.size:
        offset = 0
    with index.opened(wheel.url, offset) as answer:
        if answer.status_code == 416:  # longer than the file, or complete where no size is known
            if wheel.size is None and _told_size(answer) == offset:
                return
            part.unlink(missing_ok=True)
            raise TransientError(f"{wheel.filename}: the server can't go on at byte {offset}")
        start = _start(answer, offset)
        total = _total(wheel, answer, start)
        admit(total)
        with _disk_errors(part), translated(wheel.url):
            _write(answer, part, start, total, cancel, progress)
    if _size(part) < total:
        raise TransientError(
            f"{wheel.filename}: the connection ended after {_size(part)} of {total} bytes"
        )


def _write(
    answer: requests.Response,
    part: Path,
    start: int,
    total: int,
    cancel: CancelToken,
    progress: Progress | None,
) -> None:
    done = start
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        for piece in answer.iter_content(_PIECE):
            if cancel.cancelled:
                raise CancelledWork
            if done + len(piece) > total:
                raise BadInputError(
                    f"{answer.url} is larger than the {total} bytes that it should have",
                    field="size",
                    value=total,
                )
            file.write(piece)
            done += len(piece)
            if progress:
                progress(done, total)


def _start(answer: requests.Response, offset: int) -> int:
    """Return the byte that an answer begins with: not every server can go on in the middle."""
    told = re.match(r"bytes (\d{1,18})-", answer.headers.get("Content-Range", ""))
    if answer.status_code == 206 and told and int(told[1]) <= offset:
        return int(told[1])
    if answer.status_code == 206:
        raise BadInputError(
            f"{answer.url} answers a request from byte {offset} with another part of the file",
            field="url",
            value=answer.url,
        )
    return 0


def _total(wheel: Published, answer: requests.Response, start: int) -> int:
    """Return the size of the whole file, as the index or the server tells it."""
    if wheel.size is not None:
        return wheel.size
    length = answer.headers.get("Content-Length", "")
    if not length.isdigit():
        raise BadInputError(
            f"neither the index nor the server tells the size of {wheel.filename}",
            field="url",
            value=wheel.url,
        )
    return start + int(length)


def _told_size(answer: requests.Response) -> int | None:
    told = re.fullmatch(r"bytes \*/(\d{1,18})", answer.headers.get("Content-Range", ""))
    return int(told[1]) if told else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _disk_errors(part: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransientError(f"{part.name} can't be written: {error.strerror}") from error
