"""What is changed of GPUs for a run, noted on disk first, so that it is undone whatever happens."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perfbisect.running.gpus import Gpu, GpuDriver, GpuError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """What is about to be changed of one GPU."""

    uuid: str
    #: Its clock is held.
    clock: bool
    #: Its persistence mode is switched on, and was off.
    persistence: bool


class GpuChanges:
    """Makes changes, and takes them back: at the end, or at the next start after a crash."""

    def __init__(self, note: Path) -> None:
        """Keep the note in a file, which is there as long as something is changed."""
        self._note = note

    @property
    def pending(self) -> bool:
        """Whether something is changed, by this process or by one that is gone."""
        return self._note.exists()

    @contextlib.contextmanager
    def made(
        self, driver: GpuDriver, gpus: Sequence[Gpu], *, clock: int, persistence: bool
    ) -> Iterator[None]:
        """Hold GPUs as wanted while the block lasts.

        Args:
            clock: MHz that their clocks are held at; 0: they are left alone.
            persistence: switch their persistence mode on.

        Raises:
            GpuError: the driver refuses; what was changed before is undone.
            OSError: the note can't be written: nothing is changed then.
        """
        wanted = [
            Change(gpu.uuid, bool(clock), persistence and not driver.persistence(gpu.index))
            for gpu in gpus
        ]
        changes = [each for each in wanted if each.clock or each.persistence]
        if not changes:
            yield
            return
        self._write([*self._read(), *changes])
        try:
            for gpu, change in zip(gpus, wanted, strict=True):
                if change.persistence:
                    driver.set_persistence(gpu.index, True)
                if change.clock:
                    driver.lock_clock(gpu.index, clock)
            yield
        finally:
            self.undo(driver)

    def undo(self, driver: GpuDriver) -> list[str]:
        """Take back what the note tells, and remove it; return what could not be undone.

        The driver forgets locked clocks by itself when it is loaded anew: a GPU that is gone, or
        was never locked, is no reason to keep the note. That this user may not is one.
        """
        problems: list[str] = []
        kept: list[Change] = []
        changes = self._read()
        try:
            indices = {gpu.uuid: gpu.index for gpu in driver.gpus()} if changes else {}
        except GpuError as error:
            return [str(error)]
        for change in changes:
            index = indices.get(change.uuid)
            if index is None:
                continue
            try:
                if change.clock:
                    driver.unlock_clock(index)
                if change.persistence:
                    driver.set_persistence(index, False)
            except GpuError as error:
                problems.append(f"GPU {index}: {error}")
                kept += [change] if error.forbidden else []
        for problem in problems:
            log.warning("what was set for a run could not be set back: %s", problem)
        if kept:
            self._write(kept)
        else:
            self._note.unlink(missing_ok=True)
        return problems

    def _write(self, changes: Sequence[Change]) -> None:
        self._note.parent.mkdir(parents=True, exist_ok=True)
        partial = self._note.with_name(f"{self._note.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            json.dump([asdict(each) for each in changes], file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._note)

    def _read(self) -> list[Change]:
        try:
            listed = json.loads(self._note.read_text(encoding="utf-8"))
            return [Change(**each) for each in listed]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            log.warning("the note of changed GPUs can't be read: %s", error)
            return []
