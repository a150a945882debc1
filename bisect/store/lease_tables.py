"""The table of leases: who may do what only one process may do at a time."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.store.tables import Base


class LeaseRow(Base):
    """A right that one process holds until it expires, or until another takes it over."""

    __tablename__ = "leases"

    #: ``conductor``: conducts what the servers of this database were asked for;
    #: ``process:OWNER``: may write as this owner.
    name: Mapped[str] = mapped_column(String(250), primary_key=True)
    #: Process that holds it (see ``database.process_owner``).
    holder: Mapped[str] = mapped_column(String(200))
    #: Fencing token: grows whenever the lease changes hands. Who has an older one may not write.
    token: Mapped[int] = mapped_column(BigInteger)
    taken_at: Mapped[datetime]
    expires_at: Mapped[datetime]
