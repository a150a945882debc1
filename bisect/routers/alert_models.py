"""What the API answers about alerts and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from perfbisect.core.alert_states import AlertState, MessageEvent, MessageState, NoticeResult
from perfbisect.core.states import ChangeKind
from perfbisect.routers.models import Model


class Alert(Model):
    """An alert and what became of it."""

    id: str
    source: str
    fingerprint: str
    started_at: datetime
    state: AlertState
    reason: str = Field(description="Why it is in that state.")
    held_by: str = Field(description="Which rule holds it; empty: none.")
    held_until: datetime | None = Field(description="When it is looked at again by itself.")
    title: str
    kind: ChangeKind
    series: str | None
    repository: str | None
    package: str | None
    recipe: str | None
    benchmark: str | None
    pool: str | None
    good: str | None
    bad: str | None
    before: float | None
    after: float | None
    change: float | None
    probability: float | None
    labels: dict[str, Any]
    url: str
    leader_id: str | None = Field(description="Alert whose bisection stands for this one too.")
    bisection_id: str | None
    experiment_id: str | None = Field(
        description="Experiment that measures the group's culprit on its benchmark."
    )
    finding_id: str | None = Field(description="Culprit that explains it.")
    notices: int = Field(description="Times it was told.")
    created_at: datetime
    last_notice_at: datetime
    resolved_at: datetime | None
    resolution: str
    closed_at: datetime | None
    decided_by: str


class Notice(Model):
    """One delivery of one alert."""

    id: int
    source: str
    at: datetime
    result: NoticeResult
    alert_id: str | None
    detail: str
    excerpt: str


class Delivered(Model):
    """What became of one alert of a delivery."""

    result: NoticeResult
    alert: str | None = Field(default=None, description="Id of the alert.")
    detail: str = Field(default="", description="What was wrong with it.")


class Deliveries(Model):
    """What became of a delivery: every alert in it is accounted for."""

    accepted: int
    repeated: int
    resolved: int
    unknown: int
    rejected: int
    alerts: list[Delivered]


class Message(Model):
    """A message to one target."""

    id: str
    target: str
    event: MessageEvent
    alert_id: str | None
    bisection_id: str | None
    subject: str
    body: str = Field(description="Markdown.")
    state: MessageState
    attempts: int
    next_attempt_at: datetime
    error: str
    created_at: datetime
    delivered_at: datetime | None


class Feedback(Model):
    """A person's word on a verdict."""

    id: int
    bisection_id: str
    right: bool = Field(validation_alias="is_right")
    comment: str
    by: str
    at: datetime


class AccuracyMonth(Model):
    """What people thought of the verdicts of one month."""

    month: str
    right: int
    wrong: int
    unjudged: int
    accuracy: float | None


class Noise(Model):
    """What A/A runs say of a pool."""

    pool: str
    noise: float | None = Field(description="Relative standard deviation of one run.")
    runs: int
    answered: int = Field(description="A/A runs that came to an answer.")
    false_alarms: int = Field(description="Those that claimed a difference.")
    false_alarm_rate: float | None
    last_at: datetime | None


class Accuracy(Model):
    """How often verdicts were right, and what is noise."""

    months: list[AccuracyMonth]
    pools: list[Noise]
