"""Tables of alerts, of the messages about them, and of what people think of verdicts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.core.alert_states import AlertState, MessageEvent, MessageState, NoticeResult
from perfbisect.core.states import ChangeKind
from perfbisect.store.tables import Base, BigId, EnumText


class AlertRow(Base):
    """A message that a series got worse, and what became of it."""

    __tablename__ = "alerts"
    __table_args__ = (
        # The same alert may be told many times; it is one.
        UniqueConstraint("source", "fingerprint", "started_at"),
        Index("ix_alerts_state_created_at", "state", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    #: ``series``, ``alertmanager``, ``grafana`` or ``generic`` (any program, the command line).
    source: Mapped[str] = mapped_column(String(32))
    #: What the sender calls it.
    fingerprint: Mapped[str] = mapped_column(String(200))
    #: Since when the sender sees it.
    started_at: Mapped[datetime]
    state: Mapped[AlertState] = mapped_column(EnumText(AlertState, 16))
    #: Why it is in that state, in words.
    reason: Mapped[str] = mapped_column(Text, default="")
    #: Which rule of the policy holds it (``hours``, ``budget``, ``cooldown``, ...); empty: none.
    held_by: Mapped[str] = mapped_column(String(16), default="")
    #: When a queued one is looked at again; null: at once.
    held_until: Mapped[datetime | None]
    title: Mapped[str] = mapped_column(Text, default="")
    #: Name of the nightly series; null: none is named.
    series: Mapped[str | None] = mapped_column(String(200), index=True)
    repository: Mapped[str | None] = mapped_column(String(2000))
    package: Mapped[str | None] = mapped_column(String(200))
    recipe: Mapped[str | None] = mapped_column(String(200))
    benchmark: Mapped[str | None] = mapped_column(String(200))
    pool: Mapped[str | None] = mapped_column(String(200))
    kind: Mapped[ChangeKind] = mapped_column(EnumText(ChangeKind, 16))
    #: Ends of the range: revisions, versions or nights; of a recovery, the good one is the later.
    good: Mapped[str | None] = mapped_column(String(2000))
    bad: Mapped[str | None] = mapped_column(String(2000))
    #: Levels in the benchmark's unit, relative change, and probability, as far as told.
    before: Mapped[float | None]
    after: Mapped[float | None]
    change: Mapped[float | None]
    probability: Mapped[float | None]
    labels: Mapped[dict[str, Any]]
    #: Page of the sender.
    url: Mapped[str] = mapped_column(Text, default="")
    #: Same for alerts that one bisection can explain; null: not known what range it is about.
    group_key: Mapped[str | None] = mapped_column(String(64), index=True)
    #: The alert whose bisection stands for this one too; null: its own, or none.
    leader_id: Mapped[str | None] = mapped_column(ForeignKey("alerts.id"), index=True)
    #: It needs a bisection of its own: its group's answer was not its.
    alone: Mapped[bool] = mapped_column(default=False)
    #: Started by hand: the policy's limits do not count.
    by_hand: Mapped[bool] = mapped_column(default=False)
    #: How often its bisection was asked for.
    tries: Mapped[int] = mapped_column(default=0)
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"), index=True)
    #: Under way: measures the group's culprit on this alert's benchmark.
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    #: The culprit that explains it.
    finding_id: Mapped[str | None] = mapped_column(ForeignKey("findings.id"), index=True)
    #: Times it was told.
    notices: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime]
    last_notice_at: Mapped[datetime]
    #: When its bisection was started, which budgets and cooldowns count.
    bisected_at: Mapped[datetime | None] = mapped_column(index=True)
    #: When the sender said that it is over, and in which words (``still 6% below``).
    resolved_at: Mapped[datetime | None]
    resolution: Mapped[str] = mapped_column(Text, default="")
    closed_at: Mapped[datetime | None]
    #: Who started or dismissed it by hand.
    decided_by: Mapped[str] = mapped_column(String(200), default="")


class NoticeRow(Base):
    """One delivery of one alert: every one is accounted for. Append-only."""

    __tablename__ = "notices"
    __table_args__ = (Index("ix_notices_alert_id_id", "alert_id", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    source: Mapped[str] = mapped_column(String(32))
    at: Mapped[datetime] = mapped_column(index=True)
    result: Mapped[NoticeResult] = mapped_column(EnumText(NoticeResult, 16))
    alert_id: Mapped[str | None] = mapped_column(ForeignKey("alerts.id"))
    #: What was wrong with a rejected one.
    detail: Mapped[str] = mapped_column(Text, default="")
    #: The beginning of a rejected one.
    excerpt: Mapped[str] = mapped_column(Text, default="")


class FindingRow(Base):
    """A culprit that was found for an alert: found again, it is linked, not announced again."""

    __tablename__ = "findings"
    __table_args__ = (UniqueConstraint("origin", "commits_digest"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    #: URL of the repository, or the package, that the commits are of.
    origin: Mapped[str] = mapped_column(String(2000))
    commits_digest: Mapped[str] = mapped_column(String(64))
    #: SHAs, or versions, earliest first.
    commits: Mapped[list[Any]]
    subject: Mapped[str] = mapped_column(Text, default="")
    #: Where it was found first.
    bisection_id: Mapped[str] = mapped_column(ForeignKey("bisections.id"), index=True)
    found_at: Mapped[datetime]
    proven_at: Mapped[datetime | None]


class AnnouncementRow(Base):
    """Something worth telling, written in the transaction that it tells of."""

    __tablename__ = "announcements"
    __table_args__ = (UniqueConstraint("alert_id", "key"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    event: Mapped[MessageEvent] = mapped_column(EnumText(MessageEvent, 16))
    #: The same for what is told once only: ``found:`` and the finding, for instance.
    key: Mapped[str] = mapped_column(String(200))
    alert_id: Mapped[str] = mapped_column(ForeignKey("alerts.id"))
    at: Mapped[datetime]
    #: When its messages were written, one for each target; null: not yet.
    spread_at: Mapped[datetime | None] = mapped_column(index=True)


class MessageRow(Base):
    """One message to one target, sent until it is delivered or given up."""

    __tablename__ = "messages"
    __table_args__ = (
        # At most one message per event and target.
        UniqueConstraint("target", "dedupe_key"),
        Index("ix_messages_state_next_attempt_at", "state", "next_attempt_at"),
    )

    #: Goes with every attempt (``webhook-id``), so that a receiver knows a repetition.
    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    #: Name of the target in ``perfbisect.toml``.
    target: Mapped[str] = mapped_column(String(100))
    event: Mapped[MessageEvent] = mapped_column(EnumText(MessageEvent, 16))
    #: Key of its announcement.
    dedupe_key: Mapped[str] = mapped_column(String(200))
    alert_id: Mapped[str | None] = mapped_column(ForeignKey("alerts.id"), index=True)
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"))
    subject: Mapped[str] = mapped_column(Text)
    #: Markdown.
    body: Mapped[str] = mapped_column(Text)
    #: What webhooks carry besides.
    data: Mapped[dict[str, Any]]
    state: Mapped[MessageState] = mapped_column(EnumText(MessageState, 16))
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime]
    #: Process that sends it, and until when it may be believed alive.
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_expires_at: Mapped[datetime | None]
    #: Why the last attempt failed.
    error: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime]
    delivered_at: Mapped[datetime | None]


class FeedbackRow(Base):
    """Whether a person thinks that a verdict is right. Append-only; the newest word counts."""

    __tablename__ = "feedback"
    __table_args__ = (Index("ix_feedback_bisection_id_id", "bisection_id", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    bisection_id: Mapped[str] = mapped_column(ForeignKey("bisections.id"))
    is_right: Mapped[bool]
    comment: Mapped[str] = mapped_column(Text, default="")
    by: Mapped[str] = mapped_column(String(200))
    at: Mapped[datetime] = mapped_column(index=True)
