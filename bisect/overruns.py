"""What ends work that takes too much of a machine: disks that fill up, processes without number."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfbisect.core.states import FailureKind
from perfbisect.units import format_size

#: Bytes that stay free where work writes: with less, the database and others would fail too.
KEEP_FREE = 512 * 1024**2
#: Processes of one build or run on the machine itself.
MOST_PROCESSES = 4096
#: Seconds between two looks.
_LOOK = 0.5


class Overrun(StrEnum):
    """What work took too much of."""

    DISK = "disk"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class OverrunWords:
    """What an overrun means for the work that it ended."""

    kind: FailureKind
    cause: str
    advice: str


def words_of(overrun: Overrun) -> OverrunWords:
    """Return what to say of an overrun, and whose fault it is."""
    if overrun is Overrun.DISK:
        return OverrunWords(
            FailureKind.TRANSIENT,
            "the disk is full",
            f"Less than {format_size(KEEP_FREE)} was left, so it was ended. Free space where the "
            "caches and work directories are, or see what it writes.",
        )
    return OverrunWords(
        FailureKind.PERMANENT,
        f"it started more than {MOST_PROCESSES} processes",
        "See in the log what it starts; who needs as many uses a container.",
    )


class DiskGuard:
    """Tells when the disks below some directories are about to be full."""

    def __init__(self, directories: Iterable[Path], keep_free: int = KEEP_FREE) -> None:
        """Make a guard that looks now and then, however often it is asked.

        Args:
            keep_free: bytes that must stay free; 0: it never tells anything.
        """
        self._directories = tuple(directories)
        self._keep_free = keep_free
        self._next = 0.0

    def full(self) -> bool:
        """Return whether too little is left."""
        now = time.monotonic()
        if not self._keep_free or now < self._next:
            return False
        self._next = now + _LOOK
        return any(_free(each) < self._keep_free for each in self._directories)


class CrowdGuard:
    """Tells when a process tree has too many processes, at next to no cost while it has not."""

    def __init__(self, count: Callable[[], int], most: int = MOST_PROCESSES) -> None:
        """Make a guard.

        Args:
            count: counts the processes of the tree, which takes a while.
        """
        self._count = count
        self._most = most
        self._before = _tasks()
        self._next = 0.0

    def crowded(self) -> bool:
        """Return whether there are too many."""
        tasks = _tasks()
        # Where the kernel does not tell, there is nothing to go by but to count.
        if tasks and tasks - self._before < self._most // 2:
            return False
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOOK
        return self._count() > self._most


def _free(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        # It is gone: then nothing is written there.
        return 1 << 62


def _tasks() -> int:
    """Return how many processes and threads the machine has, as the kernel counts them anyway."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(os.read(file.fileno(), 200).split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0
