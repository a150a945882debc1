"""What was made for one reader and serves the next: bounded, and never older than it says."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated

from cachetools import TTLCache
from fastapi import Depends, Request
from sqlalchemy.orm import Session

from perfbisect.store.page_queries import Identity, Version, version_of

#: Bytes of text that a process keeps at most.
MOST_BYTES = 32 * 1024 * 1024
#: Seconds after which a text is made anew whatever its version: it tells how long ago things were,
#: and some rows change without an event (files collected, a repository renamed).
MOST_AGE = 60.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A text made from the rows of a bisection."""

    identity: Identity
    #: Read before the rows it was made from.
    version: Version
    text: str
    title: str = ""


class KeptTexts:
    """Texts by what they show and for whom. Safe for several threads."""

    def __init__(
        self,
        *,
        most_bytes: int = MOST_BYTES,
        most_age: float = MOST_AGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._texts: TTLCache[Hashable, Kept] = TTLCache(
            most_bytes, most_age, timer=clock, getsizeof=lambda kept: sys.getsizeof(kept.text)
        )
        self._lock = threading.Lock()

    def find(self, session: Session, key: Hashable) -> Kept | None:
        """Return a text that is kept and still true: other processes write to the database too."""
        with self._lock:
            found = self._texts.get(key)
        if found is None:
            return None
        version = found.version
        same = version_of(session, found.identity, version.since) == version
        return found if same else None

    def put(self, key: Hashable, kept: Kept) -> None:
        """Keep a text; those that were not asked for longest make room. Too large ones are not."""
        with self._lock:
            if sys.getsizeof(kept.text) <= self._texts.maxsize:
                self._texts[key] = kept

    def forget(self) -> None:
        """Keep nothing of what was kept so far."""
        with self._lock:
            self._texts.clear()

    @property
    def size(self) -> int:
        """Bytes of the texts that are kept."""
        with self._lock:
            return int(self._texts.currsize)


def kept_texts(request: Request) -> KeptTexts:
    """Return the texts that this process keeps."""
    texts: KeptTexts = request.app.state.kept
    return texts


Texts = Annotated[KeptTexts, Depends(kept_texts)]
