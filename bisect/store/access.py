"""Tokens, and who did what: reading and writing."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from perfbisect.core.access import INCLUDES, Scope, allowed
from perfbisect.core.recipe import digest_of
from perfbisect.core.states import BisectionState
from perfbisect.errors import ConflictError, NotAuthorisedError, NotFoundError
from perfbisect.store.access_tables import AuditRow, OnceRow, TokenRow
from perfbisect.store.database import Database, new_id, now
from perfbisect.store.queries import cut
from perfbisect.store.tables import BisectionRow, ExperimentRow

#: Name of somebody without a token.
ANONYMOUS = "anonymous"

#: What a delivery with a key is called in the audit, which remembers its answer.
DELIVERY = "alert.deliver"

#: How secrets begin, so that they are recognised where they should not be.
_START = "pbt_"
#: Characters of a secret that are stored and shown.
_SHOWN = len(_START) + 6
#: A token's last use is written down this often at most: reading must not become writing.
_USE_RESOLUTION = timedelta(minutes=1)
#: How long a key of an action is remembered.
_ONCE_KEPT = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    name: str
    scopes: frozenset[Scope]
    #: None: there is no token.
    token_id: str | None = None
    #: Network address, or empty.
    address: str = ""
    request_id: str = ""
    rate_limit: str | None = None
    max_unfinished: int | None = None
    #: The user of this machine, whom limits would only hinder.
    trusted: bool = False

    def may(self, scope: Scope) -> bool:
        """Return whether this is allowed."""
        return scope in self.scopes

    @property
    def key(self) -> str:
        """What requests are counted by."""
        return self.token_id or f"address:{self.address}"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to be made."""

    name: str
    scopes: Collection[Scope] = field(default_factory=lambda: (Scope.READ,))
    expires_at: datetime | None = None
    rate_limit: str | None = None
    max_unfinished: int | None = None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def create_token(database: Database, wanted: NewToken, *, created_by: str) -> tuple[TokenRow, str]:
    """Store a new token; return its row and its secret, which can't be had again.

    Raises:
        ConflictError: the name is taken.
    """
    secret = _START + secrets.token_urlsafe(32)
    row = TokenRow(
        id=new_id(),
        name=wanted.name,
        prefix=secret[:_SHOWN],
        digest=_digest(secret),
        scopes=sorted(set(wanted.scopes)),
        rate_limit=wanted.rate_limit,
        max_unfinished=wanted.max_unfinished,
        created_by=created_by,
        created_at=now(),
        expires_at=wanted.expires_at,
    )
    try:
        with database.write() as session:
            session.add(row)
            session.flush()
            record(
                session,
                Caller(created_by, frozenset()),
                "token.create",
                row.id,
                {"name": row.name, "scopes": row.scopes},
            )
    except IntegrityError as error:
        raise ConflictError(
            f"there is a token of the name '{wanted.name}' already: names stay with what was done "
            "in them; choose another",
            field="name",
            value=wanted.name,
        ) from error
    return row, secret


def find_token(session: Session, secret: str) -> TokenRow | None:
    """Return the token with this secret, whether or not it is still good."""
    # By digest: how long the comparison takes says nothing about the secret.
    return session.scalar(select(TokenRow).where(TokenRow.digest == _digest(secret)))


def is_good(row: TokenRow) -> bool:
    """Return whether a token is neither revoked nor expired."""
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now())


def check_still_good(session: Session, caller: Caller) -> None:
    """Insist that what lets a caller in is still good; who needs no token is always let in.

    Raises:
        NotAuthorisedError: the token was revoked, or expired, since.
    """
    if caller.token_id is None:
        return
    row = session.get(TokenRow, caller.token_id)
    if row is None or not is_good(row):
        raise NotAuthorisedError("the token is good no more", field="Authorization")


def state_of(row: TokenRow) -> str:
    """Return ``active``, ``revoked`` or ``expired``."""
    if row.revoked_at is not None:
        return "revoked"
    return "active" if is_good(row) else "expired"


def scopes_of(row: TokenRow) -> frozenset[Scope]:
    """Return everything that a token allows; words that are not known here allow nothing."""
    return allowed([Scope(word) for word in row.scopes if word in INCLUDES])


def note_use(database: Database, row: TokenRow) -> None:
    """Write down that a token was used now, unless it was within the last minute."""
    moment = now()
    if row.last_used_at is not None and moment - row.last_used_at < _USE_RESOLUTION:
        return
    with database.write() as session:
        session.execute(update(TokenRow).where(TokenRow.id == row.id).values(last_used_at=moment))


def any_good_token(session: Session) -> bool:
    """Return whether anybody could log in."""
    query = select(TokenRow.id).where(
        TokenRow.revoked_at.is_(None),
        or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now()),
    )
    return session.scalar(query.limit(1)) is not None


def list_tokens(session: Session) -> list[TokenRow]:
    """Return all tokens, the newest first."""
    return list(session.scalars(select(TokenRow).order_by(TokenRow.id.desc())))


def revoke_token(database: Database, name_or_id: str, caller: Caller) -> TokenRow:
    """Make a token useless from now on; one that is revoked already stays as it is.

    Raises:
        NotFoundError: no such token.
    """
    with database.write() as session:
        row = session.scalar(
            select(TokenRow).where(or_(TokenRow.id == name_or_id, TokenRow.name == name_or_id))
        )
        if row is None:
            raise NotFoundError(f"no token '{name_or_id}'", field="token", value=name_or_id)
        if row.revoked_at is None:
            row.revoked_at = now()
            record(session, caller, "token.revoke", row.id, {"name": row.name})
    return row


def record(
    session: Session,
    caller: Caller,
    action: str,
    subject: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write down who did what."""
    session.add(
        AuditRow(
            at=now(),
            actor=caller.name,
            token_id=caller.token_id,
            action=action,
            subject=subject[:200],
            address=caller.address[:64],
            request_id=caller.request_id,
            detail=dict(detail or {}),
        )
    )


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; empty fields do not filter."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_audit(
    session: Session, wanted: AuditFilter, *, before: int | None, limit: int
) -> tuple[list[AuditRow], bool]:
    """Return the newest entries with an id below ``before``, and whether there are more."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(AuditRow.id < before)
    for column, value in (
        (AuditRow.actor, wanted.actor),
        (AuditRow.action, wanted.action),
        (AuditRow.subject, wanted.subject),
    ):
        if value:
            query = query.where(column == value)
    if wanted.since is not None:
        query = query.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(AuditRow.at < wanted.until)
    return cut(session.scalars(query).all(), limit)


def count_unfinished(session: Session, requested_by: str) -> int:
    """Return how many bisections and experiments of somebody are not finished."""
    total = 0
    for table in (BisectionRow, ExperimentRow):
        query = select(func.count()).where(
            table.requested_by == requested_by,
            table.state != BisectionState.FINISHED,
            # Proofs that a bisection starts by itself are not submitted by anybody.
            table.origin != "bisection",
        )
        total += session.scalar(query) or 0
    return total


def is_known_key(session: Session, key: str) -> bool:
    """Return whether something was submitted with this idempotency key."""
    return any(
        session.scalar(select(table.id).where(table.idempotency_key == key)) is not None
        for table in (BisectionRow, ExperimentRow)
    )


def own_key(caller: Caller, key: str | None) -> str | None:
    """Return an idempotency key as it is stored: two tokens may use the same word."""
    if key is None or caller.token_id is None:
        return key
    return digest_of([caller.token_id, key])


def done_before(session: Session, caller: Caller, key: str | None, asked: str) -> bool:
    """Remember the key of an action; return whether the action was done with it before.

    Args:
        asked: what is to be done, and to what.

    Raises:
        ConflictError: the key was used for something else.
    """
    if key is None:
        return False
    session.execute(delete(OnceRow).where(OnceRow.created_at < now() - _ONCE_KEPT))
    stored = once_key(caller, key)
    digest = digest_of(asked)
    row = session.get(OnceRow, stored)
    if row is None:
        session.add(OnceRow(key=stored, digest=digest, created_at=now()))
        return False
    if row.digest != digest:
        raise ConflictError(
            "this Idempotency-Key was used for another request; send a new key",
            field="Idempotency-Key",
            value=key,
        )
    return True


def once_key(caller: Caller, key: str) -> str:
    """Return the key of an action as it is stored."""
    return digest_of([caller.token_id or ANONYMOUS, key])


def forget_key(session: Session, caller: Caller, key: str) -> None:
    """Forget the key of an action that was not done after all."""
    session.execute(delete(OnceRow).where(OnceRow.key == once_key(caller, key)))


def delivered_before(session: Session, caller: Caller, key: str) -> dict[str, Any] | None:
    """Return what was answered to a delivery with this key; None: it was not answered."""
    query = (
        select(AuditRow.detail)
        .where(AuditRow.action == DELIVERY, AuditRow.subject == once_key(caller, key))
        .order_by(AuditRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)
