"""Mirroring in the background, so that nobody's request hangs while a large history is fetched.

A request is checked against the mirror of its repository before it is accepted: revisions that do
not exist are refused, and nothing is stored. The first time, that mirror has to be made, which may
take minutes. Whoever asks waits a while and is then told to ask again; the work goes on meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perfbisect.errors import PerfbisectError, TransientError
from perfbisect.git.fetching import UNCHECKED, Fetching
from perfbisect.git.mirroring import stop_update
from perfbisect.git.source import Source, known_source
from perfbisect.history import open_mirror
from perfbisect.store.database import now
from perfbisect.units import format_duration


def _make(source: Source, mirrors_dir: Path, fetching: Fetching) -> None:
    open_mirror(source.url, mirrors_dir, fetching=fetching)


@dataclass
class _Making:
    """A mirror that is being made."""

    done: threading.Event = field(default_factory=threading.Event)
    error: PerfbisectError | None = None
    since: float = field(default_factory=lambda: now().timestamp())


class MirrorKeeper:
    """Makes mirrors, each one once however many ask for it."""

    def __init__(self, make: Callable[[Source, Path, Fetching], None] = _make) -> None:
        """Make a keeper that does nothing yet.

        Args:
            make: makes the mirror of a source in a directory, within bounds, and raises what went
                wrong.
        """
        self._make = make
        self._lock = threading.Lock()
        self._under_way: dict[Path, _Making] = {}

    def require(
        self, url: str, mirrors_dir: Path, *, wait: float, fetching: Fetching = UNCHECKED
    ) -> None:
        """Return once a repository is mirrored; the first time, within so many seconds or not.

        Args:
            url: as ``parse_source`` returned it.
            fetching: bounds of making it, and the machines that may be fetched from.

        Raises:
            TransientError: it takes longer; ask again.
            PerfbisectError: it could not be mirrored.
        """
        source = known_source(url)
        path = mirrors_dir / source.name
        with self._lock:
            making = self._under_way.get(path)
            if making is None:
                if path.exists():
                    return
                making = self._under_way[path] = _Making()
                self._start(source, path, making, fetching)
        if not making.done.wait(wait):
            took = format_duration(now().timestamp() - making.since)
            raise TransientError(
                f"repository: '{source.shown}' is being mirrored for the first time, for {took} "
                "now; send the same request again",
                field="repository",
                value=source.shown,
            )
        if making.error is not None:
            raise making.error

    def _start(self, source: Source, path: Path, making: _Making, fetching: Fetching) -> None:
        def work() -> None:
            try:
                self._make(source, path.parent, fetching)
            except PerfbisectError as error:
                making.error = error
            except Exception as error:
                making.error = TransientError(f"repository: '{source.shown}': {error}")
            finally:
                with self._lock:
                    del self._under_way[path]
                making.done.set()

        threading.Thread(target=work, name=f"mirror {path.name}", daemon=True).start()

    def stop(self) -> None:
        """End what is under way; what is half made is cleared away by whoever comes next."""
        with self._lock:
            paths = list(self._under_way)
        for path in paths:
            stop_update(path)
