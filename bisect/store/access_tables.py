"""Tables of who may do what, and who did what."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.store.tables import Base, BigId


class TokenRow(Base):
    """A bearer token. Its secret is not here: only a digest, and enough of it to tell it apart."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    #: Whom or what it stands for: ``requested_by`` of what it submits.
    name: Mapped[str] = mapped_column(String(100), unique=True)
    #: How the secret begins.
    prefix: Mapped[str] = mapped_column(String(16))
    #: SHA-256 of the secret, which is random and long: nothing slower is needed.
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]]
    #: Requests at most, like ``100/minute``; null: as the settings say.
    rate_limit: Mapped[str | None] = mapped_column(String(100))
    #: Unfinished bisections and experiments at most; null: as the settings say.
    max_unfinished: Mapped[int | None]
    created_by: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    #: To the minute.
    last_used_at: Mapped[datetime | None]


class AuditRow(Base):
    """Something that somebody did. Append-only."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_actor_id", "actor", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    at: Mapped[datetime]
    #: Name of a token, ``anonymous``, or a user of the command line.
    actor: Mapped[str] = mapped_column(String(200))
    token_id: Mapped[str | None] = mapped_column(String(26))
    #: What was done, like ``bisection.submit``.
    action: Mapped[str] = mapped_column(String(64), index=True)
    #: To what: an id, or a name.
    subject: Mapped[str] = mapped_column(String(200))
    #: Where the request came from; empty: from the command line.
    address: Mapped[str] = mapped_column(String(64))
    request_id: Mapped[str] = mapped_column(String(64))
    detail: Mapped[dict[str, Any]]


class OnceRow(Base):
    """An ``Idempotency-Key`` of an action that creates nothing, so that it is done once."""

    __tablename__ = "once"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    #: Digest of what was asked for with it.
    digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(index=True)
