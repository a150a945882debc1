"""Where the output of a process goes: a bounded log file, a sink, and a tail in memory."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

#: Bytes of output kept in a log file before the rest is dropped.
LOG_LIMIT = 64 * 1024 * 1024
#: Bytes of output kept in memory for the tail.
TAIL_LIMIT = 64 * 1024
#: Seconds between two looks at whether a program must end.
POLL_SECONDS = 0.1

_CHUNK = 64 * 1024
_CHUNKS = 64


class ProcessOutput:
    """Takes output as it comes; a log file that can't be written never stops the program."""

    def __init__(
        self, log_path: Path | None, sink: Callable[[bytes], None] | None, limit: int
    ) -> None:
        #: Why the log file is not whole; empty: it is.
        self.error = ""
        self._ended = False
        self._sink = sink
        self._left = limit
        self._tail = bytearray()
        self._file: IO[bytes] | None = None
        if log_path is not None:
            try:
                self._file = log_path.open("ab", buffering=0)
            except OSError as error:
                self.error = str(error)

    @property
    def tail(self) -> str:
        """The last ``TAIL_LIMIT`` bytes, decoded."""
        return bytes(self._tail[-TAIL_LIMIT:]).decode(errors="replace")

    def write(self, chunk: bytes) -> None:
        """Pass a chunk on to all three places."""
        self._tail += chunk
        if len(self._tail) > 2 * TAIL_LIMIT:
            del self._tail[:-TAIL_LIMIT]
        if self._sink is not None:
            self._sink(chunk)
        if self._file is None:
            return
        try:
            self._file.write(chunk[: self._left])
            self._left -= len(chunk)
            if self._left < 0:
                self._file.write(b"\n[log truncated here: the limit of its size is reached]\n")
                self.close()
        except OSError as error:
            # A full disk must not block the program on a pipe that nobody reads.
            self.error = str(error)
            self.close()

    def drain_from(self, process: subprocess.Popen[bytes]) -> Callable[[float], None]:
        """Return a function that copies what is there, waiting up to so many seconds for some."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        os.set_blocking(descriptor, False)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)

        def drain(seconds: float) -> None:
            if not poller.poll(seconds * 1000):
                return
            # Bounded, so that a program that never stops printing can still be cancelled.
            for _ in range(_CHUNKS):
                if not (chunk := self._read(descriptor)):
                    break
                self.write(chunk)
            if process.poll() is None and self._ended:
                # Output closed but still running: poll() would return at once, again and again.
                time.sleep(min(seconds, POLL_SECONDS))

        return drain

    def _read(self, descriptor: int) -> bytes:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        self._ended = not chunk
        return chunk

    def close(self) -> None:
        """Close the log file."""
        if self._file is not None:
            self._file.close()
            self._file = None
