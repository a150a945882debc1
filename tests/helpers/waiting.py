"""Waiting for what other processes and threads do, never for ever."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

#: Seconds: many times what anything in the tests needs on a quiet machine.
PATIENCE = 120.0


def until(
    condition: Callable[[], bool],
    what: str,
    *,
    seconds: float = PATIENCE,
    pause: float = 0.02,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Look until a condition holds.

    Args:
        what: what is waited for, for the message.
        meanwhile: called between two looks.

    Raises:
        AssertionError: it did not come to hold in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for: {what}"
        if meanwhile is not None:
            meanwhile()
        time.sleep(pause)


def stopped(process: subprocess.Popen[bytes] | subprocess.Popen[str], seconds: float = 20) -> int:
    """Ask a process to end, make it end when it does not; return its exit status."""
    process.terminate()
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
