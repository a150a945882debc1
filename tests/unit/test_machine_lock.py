"""The machine's lock: builds share it, a run has it alone and is not kept waiting for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perfbisect.engines.local import machine_lock
from perfbisect.ports import CancelledWork, CancelToken


def hold(
    path: Path, exclusive: bool, entered: list[str], name: str, leave: threading.Event
) -> None:
    with machine_lock(path, CancelToken(), exclusive=exclusive):
        entered.append(name)
        leave.wait(10)


def test_builds_share_the_machine_and_a_run_waits_for_them(tmp_path: Path) -> None:
    """Two builds go on together; a run enters once both have left."""
    path, entered = tmp_path / "lock", list[str]()
    leave = [threading.Event() for _ in range(3)]
    threads = [
        threading.Thread(target=hold, args=(path, kind, entered, name, leave[index]))
        for index, (name, kind) in enumerate(
            (("build 1", False), ("build 2", False), ("run", True))
        )
    ]
    for thread in threads[:2]:
        thread.start()
    wait_for(lambda: len(entered) == 2)
    threads[2].start()
    threads[2].join(0.4)
    assert "run" not in entered
    leave[0].set()
    leave[1].set()
    wait_for(lambda: "run" in entered)
    leave[2].set()
    for thread in threads:
        thread.join(10)


def test_a_build_that_comes_later_does_not_pass_a_waiting_run(tmp_path: Path) -> None:
    """While a run waits for a build to end, a further build waits behind it."""
    path, entered = tmp_path / "lock", list[str]()
    leave = {name: threading.Event() for name in ("first", "run", "second")}
    threads = {
        name: threading.Thread(target=hold, args=(path, name == "run", entered, name, leave[name]))
        for name in leave
    }
    threads["first"].start()
    wait_for(lambda: entered == ["first"])
    threads["run"].start()
    threads["run"].join(0.4)
    threads["second"].start()
    threads["second"].join(0.4)
    assert entered == ["first"]
    leave["first"].set()
    wait_for(lambda: len(entered) == 2)
    assert entered[1] == "run"
    leave["run"].set()
    wait_for(lambda: len(entered) == 3)
    leave["second"].set()
    for thread in threads.values():
        thread.join(10)


def test_who_waits_can_be_cancelled(tmp_path: Path) -> None:
    """A cancelled wait ends, and leaves nothing locked."""
    path = tmp_path / "lock"
    token = CancelToken()
    token.cancel()
    with (
        machine_lock(path, CancelToken(), exclusive=True),
        pytest.raises(CancelledWork),
        machine_lock(path, token, exclusive=True),
    ):
        raise AssertionError("the lock was given twice")
    with machine_lock(path, CancelToken(), exclusive=True):
        pass


def wait_for(condition: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(200):
        if condition():
            return
        waited.wait(0.05)
    raise AssertionError("it did not happen within ten seconds")
