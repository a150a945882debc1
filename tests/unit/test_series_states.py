"""The states of changes and nights are exactly those that docs/states.md draws."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from perfbisect.core.series_states import (
    CHANGE_TRANSITIONS,
    NIGHT_TRANSITIONS,
    ChangeState,
    NightState,
)

STATES = (Path(__file__).resolve().parents[2] / "docs" / "states.md").read_text(encoding="utf-8")
SECTION = STATES.partition("## A change of a nightly series")[2].partition("\n## ")[0]


@pytest.mark.parametrize("transitions", [CHANGE_TRANSITIONS, NIGHT_TRANSITIONS])
def test_every_transition_is_drawn(transitions: Mapping[StrEnum, frozenset[StrEnum]]) -> None:
    """The arrows of the document are those of the code."""
    for before, afters in transitions.items():
        match = re.search(rf"- `{before}` -> ([^\n.:]*)", SECTION)
        assert (match is None) == (not afters)
        if match is not None:
            assert set(re.findall(r"`(\w+)`", match.group(1))) == set(afters)


def test_every_state_has_its_transitions() -> None:
    """No state is missing from the tables, and the last ones lead nowhere."""
    assert set(CHANGE_TRANSITIONS) == set(ChangeState)
    assert set(NIGHT_TRANSITIONS) == set(NightState)
    last = {state for state, afters in CHANGE_TRANSITIONS.items() if not afters}
    assert last == {ChangeState.REFUTED, ChangeState.CLOSED}
