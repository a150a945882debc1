"""Git versions of published wheels, read over the network from a few of their members."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping
from zlib import error as ZlibError

from remotezip import RemoteIOError, RemoteZip, RemoteZipError

from perfbisect.errors import TransientError
from perfbisect.ports import CancelToken
from perfbisect.publishing.access import IndexAccess
from perfbisect.publishing.cache import WheelCache
from perfbisect.publishing.git_version import Stamp, find_stamp, find_stamp_in
from perfbisect.publishing.index import TIMEOUT, PackageIndex
from perfbisect.publishing.values import Published

#: Called with how many wheels were read, how many there are, and the last one.
StampProgress = Callable[[int, int, Published], None]


def read_stamps(
    wheels: Iterable[Published],
    access: IndexAccess,
    cache: WheelCache,
    cancel: CancelToken | None = None,
    progress: StampProgress | None = None,
) -> Mapping[str, Stamp | None]:
    """Return version -> the git version that the wheel carries, or None where it carries none.

    Only a wheel's table of contents and the member that holds its stamp are fetched. Where the
    server has no ranges, the wheel is downloaded into the cache.

    Raises:
        BadInputError: a wheel is gone, or damaged.
        TransientError: the index can't be reached.
        CancelledWork: the token asked for the end.
    """
    cancel = cancel or CancelToken()
    chosen = list(wheels)
    found: dict[str, Stamp | None] = {}
    likely = ""
    with PackageIndex(access) as index:
        in_parts = bool(chosen) and _serves_parts(index, chosen[0], cancel)
        for number, wheel in enumerate(chosen, 1):
            stamp = _read(index, wheel, cache, cancel, likely, in_parts=in_parts)
            found[wheel.version] = stamp
            likely = stamp.member if stamp else likely
            if progress:
                progress(number, len(chosen), wheel)
    return found


def _serves_parts(index: PackageIndex, wheel: Published, cancel: CancelToken) -> bool:
    """Return whether the server of the files sends parts of them."""
    for attempt in index.retrying(cancel):
        with attempt, index.opened(wheel.url, offset=1) as answer:
            return answer.status_code == 206
    raise AssertionError  # the last attempt raises


def _read(
    index: PackageIndex,
    wheel: Published,
    cache: WheelCache,
    cancel: CancelToken,
    likely: str,
    *,
    in_parts: bool,
) -> Stamp | None:
    if in_parts:
        try:
            for attempt in index.retrying(cancel):
                with attempt:
                    return _read_parts(index, wheel, likely)
        except _NotInParts:
            pass
    with cache.hold(wheel, cancel) as path:
        return find_stamp(path)


class _NotInParts(Exception):
    """This file's parts are not sent, or are not parts of a wheel."""


def _read_parts(index: PackageIndex, wheel: Published, likely: str) -> Stamp | None:
    headers = {"Accept-Encoding": "identity"}
    try:
        with RemoteZip(
            wheel.url,
            session=index.session,
            headers=headers,
            timeout=TIMEOUT,
        ) as archive:
            return find_stamp_in(archive, wheel.filename, likely)
    except RemoteIOError as error:
        raise TransientError(f"{wheel.filename} can't be read: {error}") from error
    except (RemoteZipError, zipfile.BadZipFile, ZlibError, EOFError) as error:
        raise _NotInParts from error
