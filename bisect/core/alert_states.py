"""States of alerts and of messages. Both machines are drawn in docs/states.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class AlertState(StrEnum):
    """Life of an alert."""

    #: Received; nothing is decided yet.
    NEW = "new"
    #: Its bisection starts by itself once the policy allows (``held_until``, ``reason``).
    QUEUED = "queued"
    #: A person has to start or dismiss it; ``reason`` says why.
    HELD = "held"
    #: Its own bisection, or that of the alert it is grouped with, goes on.
    BISECTING = "bisecting"
    #: A culprit was found for the alert it is grouped with, and is measured on its own benchmark.
    CHECKING = "checking"
    #: A verified culprit explains it; open until the value is back.
    EXPLAINED = "explained"
    #: The two ends do not differ.
    NOT_REPRODUCED = "not_reproduced"
    #: The bisection ended without a culprit.
    UNEXPLAINED = "unexplained"
    #: Its sender says that it is over.
    RESOLVED = "resolved"
    #: A person, or the policy, wants nothing to be done.
    DISMISSED = "dismissed"


_ANY_END = frozenset({AlertState.RESOLVED, AlertState.DISMISSED})

ALERT_TRANSITIONS: Mapping[AlertState, frozenset[AlertState]] = {
    AlertState.NEW: _ANY_END | {AlertState.QUEUED, AlertState.HELD},
    AlertState.QUEUED: _ANY_END | {AlertState.HELD, AlertState.BISECTING},
    AlertState.HELD: _ANY_END | {AlertState.QUEUED},
    # An alert that is over while its bisection goes on keeps its state until the answer is there.
    AlertState.BISECTING: frozenset(
        {
            AlertState.CHECKING,
            AlertState.EXPLAINED,
            AlertState.NOT_REPRODUCED,
            AlertState.UNEXPLAINED,
            # Grouped with another alert whose bisection gave nothing for it.
            AlertState.QUEUED,
        }
    ),
    AlertState.CHECKING: frozenset(
        {
            AlertState.EXPLAINED,
            # The culprit is not its own: it gets a bisection of its own.
            AlertState.QUEUED,
        }
    ),
    AlertState.EXPLAINED: _ANY_END,
    AlertState.NOT_REPRODUCED: _ANY_END,
    # A person may have it tried once more.
    AlertState.UNEXPLAINED: _ANY_END | {AlertState.QUEUED},
    AlertState.RESOLVED: frozenset(),
    AlertState.DISMISSED: frozenset(),
}

#: What waits for nobody's decision and is not over.
OPEN_STATES = frozenset(
    {
        AlertState.NEW,
        AlertState.QUEUED,
        AlertState.BISECTING,
        AlertState.CHECKING,
        AlertState.EXPLAINED,
        AlertState.UNEXPLAINED,
    }
)
CLOSED_STATES = frozenset({AlertState.NOT_REPRODUCED, AlertState.RESOLVED, AlertState.DISMISSED})


class NoticeResult(StrEnum):
    """What became of one delivery of an alert."""

    #: A new alert.
    ACCEPTED = "accepted"
    #: The alert was known already.
    REPEATED = "repeated"
    #: It ended a known alert.
    RESOLVED = "resolved"
    #: It says that something is over which was never heard of.
    UNKNOWN = "unknown"
    #: It could not be read.
    REJECTED = "rejected"


class MessageEvent(StrEnum):
    """What messages tell."""

    OPENED = "opened"
    FOUND = "found"
    PROVEN = "proven"
    NOT_REPRODUCED = "not_reproduced"
    FIXED = "fixed"


class MessageState(StrEnum):
    """Life of a message to one target."""

    #: To be sent at ``next_attempt_at``.
    PENDING = "pending"
    #: A process is sending it.
    SENDING = "sending"
    DELIVERED = "delivered"
    #: Given up: a dead letter, until a person has it sent again.
    DEAD = "dead"


MESSAGE_TRANSITIONS: Mapping[MessageState, frozenset[MessageState]] = {
    MessageState.PENDING: frozenset({MessageState.SENDING}),
    # Back to PENDING: it failed, or the process that sent it is gone.
    MessageState.SENDING: frozenset(
        {MessageState.DELIVERED, MessageState.PENDING, MessageState.DEAD}
    ),
    MessageState.DELIVERED: frozenset(),
    MessageState.DEAD: frozenset({MessageState.PENDING}),
}
