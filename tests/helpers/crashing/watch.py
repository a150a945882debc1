"""Sees each state change as it is committed, and kills the process before or after the commit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, event, select
from sqlalchemy.orm import Session
from tests.helpers.crashing.transitions import MACHINES, Transition, _text

from perfbisect.store.database import Database
from perfbisect.store.tables import Base

#: When, relative to the commit.
BEFORE, AFTER = "before", "after"


DieAt = Callable[[Sequence[Transition], str], bool]


class Watch:
    """Looks at what every commit changes. One per process."""

    def __init__(self, database: Database, die_at: DieAt) -> None:
        """Watch a database.

        Args:
            die_at: told what a commit changes, and whether it is made (``after``) or about to be
                (``before``); True: the process ends there.
        """
        self._die_at = die_at
        #: What this thread's transaction set: steps in between are not in the database.
        self._own = threading.local()
        self._states: dict[tuple[str, str], str] = {}
        with database.read() as session:
            self._states = self._read(session.connection())
        for machine in MACHINES:
            event.listen(machine.table.state, "set", self._note, active_history=True)  # type: ignore[attr-defined]
        event.listen(database.engine, "begin", self._begun)
        event.listen(database.engine, "commit", self._before)
        event.listen(Session, "after_commit", self._after)

    def _read(self, connection: Connection) -> dict[tuple[str, str], str]:
        return {
            (machine.name, row.id): _text(row.state)
            for machine in MACHINES
            for row in connection.execute(select(machine.table.id, machine.table.state))  # type: ignore[attr-defined]
        }

    def _begun(self, connection: Connection) -> None:
        if not connection.get_execution_options().get("perfbisect_read_only"):
            self._own.steps = []
            self._own.reached = []

    def _note(self, row: Base, value: Any, old: Any, _: Any) -> None:
        steps: list[tuple[str, str, str]] = getattr(self._own, "steps", [])
        name = next(each.name for each in MACHINES if isinstance(row, each.table))
        # An object that is being made has no state yet, and no id.
        if isinstance(old, str) and getattr(row, "id", None):
            steps.append((f"{name}/{row.id}", _text(old), _text(value)))  # type: ignore[attr-defined]

    def _before(self, connection: Connection) -> None:
        if connection.get_execution_options().get("perfbisect_read_only"):
            return
        # The write lock is held: nobody else changes a state between this and the commit.
        found = self._read(connection)
        reached: list[Transition] = []
        for key, new in found.items():
            old = self._states.get(key, "")
            if old != new:
                reached += self._way(key, old, new)
        self._own.reached = reached
        self._die(BEFORE)
        self._states = found

    def _way(self, key: tuple[str, str], old: str, new: str) -> list[Transition]:
        """Return each step of a row whose state was set more than once."""
        name, row_id = key
        steps = [each for each in self._own.steps if each[0] == f"{name}/{row_id}"]
        way = [Transition(name, *each[1:]) for each in steps if each[1] != each[2]]
        if not way or way[0].old != old or way[-1].new != new:
            # By a statement instead of an object, or a birth.
            return [Transition(name, old, new)]
        return way

    def _after(self, session: Session) -> None:
        self._die(AFTER)
        self._own.reached = []

    def _die(self, when: str) -> None:
        reached = getattr(self._own, "reached", [])
        if reached and self._die_at(reached, when):
            os.kill(os.getpid(), signal.SIGKILL)
