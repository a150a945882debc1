"""The states of alerts and messages: the table, its picture, and the one place that moves them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from tests.helpers.serving import opened, settings_in

from perfbisect.alerting.moves import move
from perfbisect.core.alert_states import (
    ALERT_TRANSITIONS,
    CLOSED_STATES,
    MESSAGE_TRANSITIONS,
    OPEN_STATES,
    AlertState,
    MessageState,
)
from perfbisect.core.states import ChangeKind
from perfbisect.errors import ConflictError
from perfbisect.store.alert_tables import AlertRow
from perfbisect.store.database import new_id, now

STATES = (Path(__file__).parents[2] / "docs" / "states.md").read_text(encoding="utf-8")
ALERT = STATES.partition("## An alert")[2].partition("## A message")[0]
MESSAGE = STATES.partition("## A message")[2].partition("## Three kinds")[0]


def drawn(section: str, state: str) -> set[str]:
    """Return where the document lets a state go."""
    match = re.search(rf"- `{state}` -> ([^.:]*)[.:]", section)
    return set(re.findall(r"`(\w+)`", match.group(1))) if match else set()


@pytest.mark.parametrize("state", AlertState)
def test_every_transition_of_an_alert_is_drawn(state: AlertState) -> None:
    """docs/states.md and the code let an alert go to the same states."""
    assert drawn(ALERT, state) == ALERT_TRANSITIONS[state]


@pytest.mark.parametrize("state", MessageState)
def test_every_transition_of_a_message_is_drawn(state: MessageState) -> None:
    """docs/states.md and the code let a message go to the same states."""
    assert drawn(MESSAGE, state) == MESSAGE_TRANSITIONS[state]


def test_every_alert_is_in_exactly_one_list() -> None:
    """Open, held and closed are all there is, and nothing is in two of them."""
    held = {AlertState.HELD}
    assert set(AlertState) == OPEN_STATES | held | CLOSED_STATES
    assert not OPEN_STATES & CLOSED_STATES
    assert not held & (OPEN_STATES | CLOSED_STATES)


def make(state: AlertState) -> AlertRow:
    return AlertRow(
        id=new_id(),
        source="generic",
        fingerprint=state.value,
        started_at=now(),
        state=state,
        kind=ChangeKind.REGRESSION,
        labels={},
        created_at=now(),
        last_notice_at=now(),
    )


def test_alerts_move_by_the_table_only(tmp_path: Path) -> None:
    """Each pair of states: those of the table are taken, all others are refused."""
    with opened(settings_in(tmp_path)) as services, services.database.write() as session:
        for before, after in itertools.permutations(AlertState, 2):
            row = make(before)
            row.fingerprint = f"{before} {after}"
            session.add(row)
            session.flush()
            if after in ALERT_TRANSITIONS[before]:
                move(session, row, after, "because")
                assert (row.state, row.reason) == (after, "because")
                assert (row.closed_at is not None) == (after in CLOSED_STATES)
            else:
                with pytest.raises(ConflictError):
                    move(session, row, after, "because")
                assert row.state is before


def test_what_was_over_meanwhile_is_resolved_with_the_answer(tmp_path: Path) -> None:
    """An alert whose value came back during its bisection ends as soon as the answer is there."""
    with opened(settings_in(tmp_path)) as services, services.database.write() as session:
        row = make(AlertState.BISECTING)
        row.resolved_at, row.resolution = now(), "back since 09-22"
        session.add(row)
        session.flush()
        move(session, row, AlertState.EXPLAINED, "explained by abc")
        assert row.state is AlertState.RESOLVED
        assert row.reason == "explained by abc; back since 09-22"
