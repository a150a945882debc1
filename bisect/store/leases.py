"""Leases with fencing tokens: a process that was taken for dead can't write any more.

Each conductor holds a lease on itself, ``process:OWNER``. Whoever takes over something of it
*revokes* that lease in the same transaction, and every transaction of a conductor begins by reading
its own: so the two can't both be right, whatever their clocks say.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from perfbisect.store.database import now, owner_is_dead
from perfbisect.store.lease_tables import LeaseRow

#: Name of the lease of the one server that conducts.
CONDUCTOR = "conductor"
#: Leases of processes are forgotten this long after they ended.
_FORGET = timedelta(days=7)


class FencedError(Exception):
    """Somebody else took over: this process must write nothing and drop what it does."""


def process_lease(owner: str) -> str:
    """Return the name of the lease that a process holds on itself."""
    return f"process:{owner}"


def take(session: Session, name: str, holder: str, seconds: float) -> int | None:
    """Take or renew a lease.

    Args:
        seconds: until it expires.

    Returns:
        its token; None: somebody else holds it.
    """
    until = now() + timedelta(seconds=seconds)
    row = session.get(LeaseRow, name, with_for_update=True)
    if row is None:
        new = LeaseRow(name=name, holder=holder, token=1, taken_at=now(), expires_at=until)
        try:
            with session.begin_nested():
                session.add(new)
        except IntegrityError:
            return None
        return 1
    if row.holder != holder:
        if row.expires_at > now() and not is_gone(session, row.holder):
            return None
        revoke(session, [row.holder])
        row.holder, row.taken_at = holder, now()
        row.token += 1
    row.expires_at = until
    return row.token


def renew(session: Session, name: str, token: int, seconds: float) -> None:
    """Extend a lease that this process holds.

    Raises:
        FencedError: somebody else took it over.
    """
    row = session.get(LeaseRow, name, with_for_update=True)
    if row is None or row.token != token:
        raise FencedError(name)
    row.expires_at = now() + timedelta(seconds=seconds)


def check(session: Session, name: str, token: int) -> None:
    """Make sure, until the end of the transaction, that nobody took a lease over.

    Raises:
        FencedError: somebody did.
    """
    found = session.scalar(
        select(LeaseRow.token).where(LeaseRow.name == name).with_for_update(read=True)
    )
    if found != token:
        raise FencedError(name)


def release(session: Session, name: str, token: int) -> None:
    """Give a lease up, so that it is free at once; one that was taken over is left alone."""
    row = session.get(LeaseRow, name, with_for_update=True)
    if row is not None and row.token == token:
        row.expires_at = now()
        row.token += 1


def revoke(session: Session, owners: Iterable[str]) -> None:
    """Take from processes the right to write: what they held is about to be taken over."""
    for owner in sorted(set(owners)):
        row = session.get(LeaseRow, process_lease(owner), with_for_update=True)
        if row is not None:
            row.token += 1
            row.expires_at = min(row.expires_at, now())


def is_gone(session: Session, owner: str, otherwise: datetime | None = None) -> bool:
    """Return whether a process is gone, or silent for so long that it counts as gone.

    Args:
        otherwise: moment from which a process without a lease counts as gone; None: never.
    """
    if owner_is_dead(owner):
        return True
    expires = session.scalar(
        select(LeaseRow.expires_at).where(LeaseRow.name == process_lease(owner))
    )
    if expires is None:
        expires = otherwise
    return expires is not None and expires <= now()


def forget_old(session: Session) -> None:
    """Remove the leases of processes that ended long ago."""
    session.execute(
        delete(LeaseRow).where(
            LeaseRow.name.startswith("process:"), LeaseRow.expires_at < now() - _FORGET
        )
    )
