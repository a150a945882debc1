"""States of nightly series: a change that was seen, a night that is measured here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ChangeState(StrEnum):
    """Life of a change, from the first suspicion to its end."""

    #: The posterior passed the bound that the false-alarm rate sets.
    SUSPECTED = "suspected"
    #: The last good and the first bad night are being measured again, interleaved.
    CONFIRMING = "confirming"
    #: It is real: an alert was, or is about to be, raised.
    CONFIRMED = "confirmed"
    #: It is not: the two nights do not differ, or later nights took the suspicion back.
    REFUTED = "refuted"
    #: It was real and is over: the value came back.
    CLOSED = "closed"


CHANGE_TRANSITIONS: Mapping[ChangeState, frozenset[ChangeState]] = {
    ChangeState.SUSPECTED: frozenset(
        {ChangeState.CONFIRMING, ChangeState.CONFIRMED, ChangeState.REFUTED}
    ),
    # Back to SUSPECTED when the re-measurement could not be carried out: nights decide then.
    ChangeState.CONFIRMING: frozenset(
        {ChangeState.CONFIRMED, ChangeState.REFUTED, ChangeState.SUSPECTED}
    ),
    ChangeState.CONFIRMED: frozenset({ChangeState.CLOSED}),
    ChangeState.REFUTED: frozenset(),
    ChangeState.CLOSED: frozenset(),
}


class NightState(StrEnum):
    """Life of a night that is measured here."""

    MEASURING = "measuring"
    MEASURED = "measured"
    #: There was nothing to measure: no wheel of that day, or the one of the night before.
    SKIPPED = "skipped"
    #: It could not be built or run.
    FAILED = "failed"


NIGHT_TRANSITIONS: Mapping[NightState, frozenset[NightState]] = {
    NightState.MEASURING: frozenset({NightState.MEASURED, NightState.SKIPPED, NightState.FAILED}),
    NightState.MEASURED: frozenset(),
    # Another try of the same night.
    NightState.SKIPPED: frozenset({NightState.MEASURING}),
    NightState.FAILED: frozenset({NightState.MEASURING}),
}
