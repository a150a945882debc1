"""Table of how hosts are: what their repeats tell, and which of them were taken out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.store.tables import Base


class HostHealthRow(Base):
    """How a host is, and whether it may measure."""

    __tablename__ = "host_health"

    host: Mapped[str] = mapped_column(ForeignKey("hosts.name"), primary_key=True)
    #: When its repeats were last looked at; null: never.
    judged_at: Mapped[datetime | None]
    #: See ``perfbisect.core.host_health.Health``; null: too few repeats.
    health: Mapped[dict[str, Any] | None]
    #: Since when it does not measure; null: it does.
    out_since: Mapped[datetime | None]
    #: ``drift``, or the user who took it out.
    out_by: Mapped[str | None] = mapped_column(String(200))
    #: Why, for people; empty: it measures.
    reason: Mapped[str] = mapped_column(Text, default="")
    #: When it was put back: what it measured before says nothing of how it is now.
    back_at: Mapped[datetime | None]
