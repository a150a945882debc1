"""Who asks, which tokens there are, and who did what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from perfbisect.core.access import Scope
from perfbisect.problems import documented
from perfbisect.routers import models
from perfbisect.routers.access import Asking, act_once, needs
from perfbisect.routers.bisections import IdempotencyKey
from perfbisect.routers.deps import (
    DEFAULT_LIMIT,
    Limit,
    Opened,
    Since,
    Until,
    Words,
)
from perfbisect.store import access
from perfbisect.store.access_tables import TokenRow

router = APIRouter(tags=["access"])


class CallerView(models.Model):
    """Who asks, as the service sees it."""

    name: str = Field(examples=["release-team"])
    scopes: list[Scope]
    token_id: str | None = Field(description="null: no token was sent.")


class TokenView(models.Model):
    """A token; its secret is shown once, when it is made, and never again."""

    id: str
    name: str
    prefix: str = Field(description="How its secret begins.", examples=["pbt_Xk3f9Q"])
    scopes: list[str]
    state: str = Field(description="`active`, `revoked` or `expired`.")
    rate_limit: str | None = Field(description="null: as the settings say.")
    max_unfinished: int | None = Field(description="null: as the settings say.")
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")


class AuditEntry(models.Model):
    """Something that somebody did."""

    id: int
    at: datetime
    actor: str
    token_id: str | None
    action: str = Field(examples=["bisection.submit"])
    subject: str = Field(description="To what: an id, or a name.")
    address: str
    request_id: str
    detail: dict[str, Any]


def token_view(row: TokenRow) -> TokenView:
    """Return a token as it may be seen."""
    return TokenView(
        state=access.state_of(row),
        **{name: getattr(row, name) for name in TokenView.model_fields if name != "state"},
    )


@router.get("/me", operation_id="whoAmI", response_model=CallerView)
def who_am_i(caller: Asking) -> CallerView:
    """Return who asks, and what they may do."""
    scopes = sorted(caller.scopes, key=list(Scope).index)
    return CallerView(name=caller.name, scopes=scopes, token_id=caller.token_id)


@router.get("/tokens", operation_id="listTokens", response_model=list[TokenView])
@needs(Scope.ADMIN)
def list_tokens(services: Opened) -> list[TokenView]:
    """Return all tokens, the newest first."""
    with services.database.read() as session:
        return [token_view(row) for row in access.list_tokens(session)]


@router.post(
    "/tokens/{token_id}/revoke",
    operation_id="revokeToken",
    response_model=TokenView,
    responses=documented(404, 409, 422),
)
@needs(Scope.ADMIN)
def revoke_token(
    services: Opened,
    caller: Asking,
    token_id: Annotated[str, Path(max_length=100, pattern=r"^[^\x00]*$")],
    idempotency_key: IdempotencyKey = None,
) -> TokenView:
    """Make a token useless at once; by its id or its name."""
    with act_once(services, caller, idempotency_key, f"revoke {token_id}"):
        return token_view(access.revoke_token(services.database, token_id, caller))


@router.get(
    "/audit",
    operation_id="listAudit",
    response_model=models.Page[AuditEntry],
    responses=documented(422),
)
@needs(Scope.ADMIN)
def list_audit(
    services: Opened,
    actor: Words = None,
    action: Words = None,
    subject: Words = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[
        int | None, Query(alias="after", ge=0, lt=2**53, description="Only rows with a smaller id.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[AuditEntry]:
    """Return who did what, newest first."""
    wanted = access.AuditFilter(actor, action, subject, since, until)
    with services.database.read() as session:
        rows, more = access.list_audit(session, wanted, before=before, limit=limit)
    items = [AuditEntry.model_validate(row) for row in rows]
    return models.Page(items=items, next=str(items[-1].id) if more else None)
