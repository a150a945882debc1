"""Tables of nightly series: what is followed, what each night measured, which changes were seen."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.core.series_states import ChangeState, NightState
from perfbisect.core.states import Better, ChangeKind
from perfbisect.store.tables import Base, EnumText


class SeriesRow(Base):
    """One benchmark on one pool, night after night."""

    __tablename__ = "series"

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    #: Name of a benchmark that is known here; empty: points come from outside alone.
    benchmark: Mapped[str] = mapped_column(String(200), default="")
    unit: Mapped[str] = mapped_column(String(64), default="")
    better: Mapped[Better] = mapped_column(EnumText(Better, 8))
    #: Name or URL of the repository its nights are built from.
    repository: Mapped[str | None] = mapped_column(String(2000))
    #: Branch whose head is measured.
    branch: Mapped[str] = mapped_column(String(200), default="")
    #: Package of the index whose newest wheel is measured.
    package: Mapped[str | None] = mapped_column(String(200))
    #: Name of the recipe that builds the branch's head.
    recipe: Mapped[str | None] = mapped_column(String(200))
    pool: Mapped[str] = mapped_column(String(200), default="")
    #: What makes a change (see ``core.series.SeriesSettings``), as given; the rest is default.
    detection: Mapped[dict[str, Any]]
    #: What an alert does (see ``perfbisect.alerts``), as given in ``perfbisect.toml``.
    policy: Mapped[dict[str, Any]]
    #: Cron expression in UTC by which its nights are measured here; empty: not by itself.
    schedule: Mapped[str] = mapped_column(String(100), default="")
    #: ``perfbisect.toml`` or ``points``: who defined it.
    defined_by: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[datetime]
    #: Last night whose points were searched for changes, and when that was.
    searched_night: Mapped[date | None]
    searched_at: Mapped[datetime | None]


class SeriesPointRow(Base):
    """What one night's version gave on one host. Append-only."""

    __tablename__ = "series_points"
    __table_args__ = (
        UniqueConstraint("series_id", "night", "version", "host"),
        Index("ix_series_points_series_id_received_at", "series_id", "received_at"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"))
    night: Mapped[date]
    #: Version of the wheel, or whatever names the build; empty: the night names it.
    version: Mapped[str] = mapped_column(String(200), default="")
    #: Repository -> commit, for every repository that went into the build.
    commits: Mapped[dict[str, Any]]
    host: Mapped[str] = mapped_column(String(200), default="")
    #: Median of the runs, in the series' unit.
    value: Mapped[float]
    #: How many runs ``value`` stands for, and their values where they were sent.
    runs: Mapped[int]
    run_values: Mapped[list[Any]]
    #: ``api``, ``csv``, ``perfzero``, ``pytest-benchmark`` or ``own``.
    source: Mapped[str] = mapped_column(String(32))
    #: When it was measured, if told; else when it came.
    measured_at: Mapped[datetime]
    received_at: Mapped[datetime]
    #: The experiment that measured it here: its runs are in ``points``.
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"))


class SeriesNightRow(Base):
    """A night that is, or was to be, measured here."""

    __tablename__ = "series_nights"
    __table_args__ = (UniqueConstraint("series_id", "night"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"))
    night: Mapped[date]
    state: Mapped[NightState] = mapped_column(EnumText(NightState, 16), index=True)
    version: Mapped[str] = mapped_column(String(200), default="")
    commits: Mapped[dict[str, Any]]
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"))
    #: Why it was skipped or failed.
    reason: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class SeriesChangeRow(Base):
    """A change of a series, from the first suspicion to its end."""

    __tablename__ = "series_changes"
    __table_args__ = (
        UniqueConstraint("series_id", "first_bad_night", "kind"),
        Index("ix_series_changes_state", "state"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"))
    state: Mapped[ChangeState] = mapped_column(EnumText(ChangeState, 16))
    kind: Mapped[ChangeKind] = mapped_column(EnumText(ChangeKind, 16))
    #: The change lies after the first and not after the second.
    last_good_night: Mapped[date]
    first_bad_night: Mapped[date]
    #: Points of those nights: versions, commits and hosts are theirs.
    good_point_id: Mapped[str] = mapped_column(ForeignKey("series_points.id"))
    bad_point_id: Mapped[str] = mapped_column(ForeignKey("series_points.id"))
    #: Night whose points raised the suspicion.
    suspected_night: Mapped[date]
    probability: Mapped[float]
    #: Levels on both sides in the series' unit, each with its 95% interval.
    before: Mapped[float]
    before_low: Mapped[float]
    before_high: Mapped[float]
    after: Mapped[float]
    after_low: Mapped[float]
    after_high: Mapped[float]
    #: Relative change and its 95% interval.
    change: Mapped[float]
    change_low: Mapped[float]
    change_high: Mapped[float]
    #: What was seen and what became of it, in words.
    reason: Mapped[str] = mapped_column(Text, default="")
    #: Re-measurement of the two nights; null: none yet, or none possible.
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"))
    #: Why its nights can't be measured again, so that further nights decide; empty: they can.
    cant_measure: Mapped[str] = mapped_column(Text, default="")
    #: How it was confirmed: ``measured`` (interleaved, here) or ``nights`` (further nights).
    confirmed_by: Mapped[str] = mapped_column(String(16), default="")
    #: Recovery: the change that it takes back.
    recovers_id: Mapped[str | None] = mapped_column(ForeignKey("series_changes.id"))
    #: What is left of the loss (``-0.06``: still 6% below); null: nothing was lost, or all is back.
    remaining: Mapped[float | None]
    #: Whether the alert was handed on; it is repeated until it was.
    announced_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]
    refuted_at: Mapped[datetime | None]
    closed_at: Mapped[datetime | None]


class SeriesDeliveryRow(Base):
    """A delivery of points under an Idempotency-Key: sent again, it gets the same answer."""

    __tablename__ = "series_deliveries"

    idempotency_key: Mapped[str] = mapped_column(String(200), primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"), index=True)
    #: Digest of the points that were sent.
    request_digest: Mapped[str] = mapped_column(String(64))
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
