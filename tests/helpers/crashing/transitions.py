"""Which states there are, who changes them, and what never happens: from the tables in the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perfbisect.core.alert_states import ALERT_TRANSITIONS, MESSAGE_TRANSITIONS
from perfbisect.core.series_states import CHANGE_TRANSITIONS, NIGHT_TRANSITIONS
from perfbisect.core.states import BISECTION_TRANSITIONS, WORK_TRANSITIONS
from perfbisect.store.alert_tables import AlertRow, MessageRow
from perfbisect.store.series_tables import SeriesChangeRow, SeriesNightRow
from perfbisect.store.tables import Base, BisectionRow, BuildRow, ExperimentRow, RunRow


@dataclass(frozen=True)
class Machine:
    """A state machine, and the rows that go through it."""

    name: str
    table: type[Base]
    transitions: Mapping[Any, frozenset[Any]]


#: Every table with a state. A new one belongs here: ``test_every_state_is_watched`` says so.
MACHINES = (
    Machine("bisection", BisectionRow, BISECTION_TRANSITIONS),
    Machine("experiment", ExperimentRow, BISECTION_TRANSITIONS),
    Machine("build", BuildRow, WORK_TRANSITIONS),
    Machine("run", RunRow, WORK_TRANSITIONS),
    Machine("alert", AlertRow, ALERT_TRANSITIONS),
    Machine("message", MessageRow, MESSAGE_TRANSITIONS),
    Machine("change", SeriesChangeRow, CHANGE_TRANSITIONS),
    Machine("night", SeriesNightRow, NIGHT_TRANSITIONS),
)


@dataclass(frozen=True, order=True)
class Transition:
    """A row's way from one state to the next; from nothing when it is inserted."""

    machine: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.machine}: {self.old or 'nothing'} -> {self.new}"


#: What the tables allow and no process on one machine does, and why: seen after all, it fails the
#: test, as does an entry that no table allows any more.
NEVER: Mapping[Transition, str] = {
    Transition(machine, old, new): why
    for machines, old, news, why in (
        (
            ("bisection", "experiment"),
            "running",
            ("queued",),
            "whoever takes over a lost conductor's lease goes on with it as it is",
        ),
        (
            ("bisection", "experiment"),
            "queued",
            ("finished",),
            "a conductor takes it up and ends it when the end is asked for",
        ),
        (
            ("build", "run"),
            "queued",
            ("running", "cancelled", "lost"),
            "work is stored when it starts: what waits is a plan, and plans are not stored",
        ),
    )
    for machine in machines
    for new in news
}


def _text(state: object) -> str:
    return state.value if isinstance(state, StrEnum) else str(state)


def allowed() -> set[Transition]:
    """Return every transition of the state tables, births aside."""
    return {
        Transition(machine.name, _text(old), _text(new))
        for machine in MACHINES
        for old, news in machine.transitions.items()
        for new in news
    }
