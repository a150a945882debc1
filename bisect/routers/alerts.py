"""Alerts in by webhook, what became of them, and what people do with them."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from perfbisect.alerting import signatures
from perfbisect.alerting.configuration import load_alert_config
from perfbisect.alerting.hands import dismiss_alert, start_alert
from perfbisect.alerting.inbox import Receipt, counts, receive_all, reject_payload
from perfbisect.alerting.mapping import NUMBERS, TEXTS
from perfbisect.alerting.payloads import (
    Delivery,
    Firing,
    Rejected,
    read_alertmanager,
    read_generic,
    read_json,
)
from perfbisect.core.access import Scope
from perfbisect.core.alert_states import AlertState, NoticeResult
from perfbisect.errors import (
    BadInputError,
    ForbiddenError,
    NotAuthorisedError,
    did_you_mean,
)
from perfbisect.problems import documented
from perfbisect.routers import alert_models, models
from perfbisect.routers.access import Asking, Gate, act_once, public, record
from perfbisect.routers.bisections import IdempotencyKey
from perfbisect.routers.deps import DEFAULT_LIMIT, After, Limit, Opened, Words
from perfbisect.routers.finite import JSONResponse
from perfbisect.services import Services
from perfbisect.store import alert_queries
from perfbisect.store.access import DELIVERY, Caller, delivered_before, once_key
from perfbisect.store.database import now
from perfbisect.store.series_tables import SeriesRow

router = APIRouter(prefix="/alerts", tags=["alerts"])

AlertId = Annotated[str, Path(max_length=64, description="Id of an alert.")]

_ALERT: dict[str, Any] = {
    "type": "object",
    "required": ["startsAt"],
    "properties": {
        "status": {"enum": ["firing", "resolved"]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "startsAt": {"type": "string", "format": "date-time"},
        "fingerprint": {"type": "string"},
        "generatorURL": {"type": "string"},
    },
}
_TEXT = {"type": ["string", "null"]}
_NUMBER = {"type": ["number", "string", "null"]}
_GENERIC: dict[str, Any] = {
    "type": "object",
    "required": ["started_at"],
    "additionalProperties": False,
    "properties": {
        "status": {"enum": ["firing", "resolved"]},
        "fingerprint": _TEXT,
        "started_at": {"type": "string", "format": "date-time"},
        "title": {"type": "string"},
        "url": {"type": "string"},
        "resolution": {"type": "string"},
        "labels": _ALERT["properties"]["labels"],
        "annotations": _ALERT["properties"]["annotations"],
        **dict.fromkeys(
            ("series", "repository", "package", "recipe", "benchmark", "pool", "good", "bad"), _TEXT
        ),
        "kind": {"enum": ["regression", "recovery", None]},
        **dict.fromkeys(("before", "after", "change", "probability"), _NUMBER),
    },
}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the documentation of a body that is read by hand: malformed ones are counted too."""
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


_WEBHOOK = _body(
    {
        "type": "object",
        "required": ["alerts"],
        "properties": {
            "version": {"const": "4"},
            "alerts": {"type": "array", "items": _ALERT},
        },
    }
)
_ANSWERS: dict[int | str, dict[str, Any]] = documented(400, 409, 413, 422, 503)


@router.post(
    "/alertmanager", operation_id="receiveAlertmanager", status_code=HTTPStatus.ACCEPTED,
    response_model=alert_models.Deliveries, responses=_ANSWERS, openapi_extra=_WEBHOOK,
)  # fmt: skip
async def receive_alertmanager(
    services: Opened, caller: Asking, request: Request, key: IdempotencyKey = None
) -> JSONResponse:
    """Take the webhook of Alertmanager, version 4."""
    body = await request.body()
    return await to_thread.run_sync(_received, services, caller, "alertmanager", body, key)


@router.post(
    "/grafana", operation_id="receiveGrafana", status_code=HTTPStatus.ACCEPTED,
    response_model=alert_models.Deliveries, responses=_ANSWERS, openapi_extra=_WEBHOOK,
)  # fmt: skip
@public
async def receive_grafana(
    services: Opened, caller: Asking, request: Request, key: IdempotencyKey = None
) -> JSONResponse:
    """Take the webhook of Grafana: signed, or with a token."""
    body = await request.body()
    _check_signature(services, caller, request, body)
    return await to_thread.run_sync(_received, services, caller, "grafana", body, key)


@router.post(
    "/generic", operation_id="receiveAlert", status_code=HTTPStatus.ACCEPTED,
    response_model=alert_models.Deliveries, responses=_ANSWERS,
    openapi_extra=_body({"anyOf": [_GENERIC, {"type": "array", "items": _GENERIC}]}),
)  # fmt: skip
async def receive_generic(
    services: Opened, caller: Asking, request: Request, key: IdempotencyKey = None
) -> JSONResponse:
    """Take an alert, or several, of any program."""
    body = await request.body()
    return await to_thread.run_sync(_received, services, caller, "generic", body, key)


def _check_signature(services: Services, caller: Caller, request: Request, body: bytes) -> None:
    """Let in what Grafana signed, or somebody who may submit.

    Raises:
        NotAuthorisedError: neither.
        ForbiddenError: a token that may only look.
        LimitedError: too many deliveries; this route is counted here, as others are at the gate.
    """
    secret = services.settings.grafana_secret.get_secret_value()
    signature = request.headers.get(signatures.SIGNATURE_HEADER)
    gate: Gate = request.app.state.gate
    if secret and signature is not None:
        timestamp = request.headers.get(services.settings.grafana_timestamp_header, "")
        try:
            signatures.check(secret, body, signature, timestamp, now())
        except NotAuthorisedError:
            gate.count_wrong(caller.address)
            raise
        gate.count(caller, request.method)
        return
    # With a secret, somebody without a token is no longer let in just because he is near.
    gate.count(caller, request.method)
    if caller.token_id is not None and not caller.may(Scope.SUBMIT):
        raise ForbiddenError(
            f"the token '{caller.name}' has not the scope '{Scope.SUBMIT}'", field="Authorization"
        )
    if not caller.may(Scope.SUBMIT) or (secret and caller.token_id is None):
        raise NotAuthorisedError(
            f"this needs the signature of Grafana ({signatures.SIGNATURE_HEADER}), or a token with "
            "the scope 'submit'",
            field="Authorization",
        )


def _received(
    services: Services, caller: Caller, source: str, body: bytes, key: str | None
) -> JSONResponse:
    """Take a delivery, once for a key.

    Raises:
        BadInputError: nothing in it can be read; that is counted too.
        ConflictError: the key came with another delivery.
    """
    digest = hashlib.sha256(body).hexdigest()
    with act_once(services, caller, key, f"deliver {source} {digest}") as first:
        answer = None if first or key is None else _answered(services, caller, key)
        if answer is None:
            answer = _stored(services, source, body)
            if key is not None:
                record(services, caller, DELIVERY, once_key(caller, key), answer=answer)
    return JSONResponse(answer, status_code=HTTPStatus.ACCEPTED)


def _answered(services: Services, caller: Caller, key: str) -> dict[str, Any] | None:
    """Return what was answered to a delivery before; None: it did not come so far."""
    with services.database.read() as session:
        detail = delivered_before(session, caller, key)
    return None if detail is None else dict(detail["answer"])


def _stored(services: Services, source: str, body: bytes) -> dict[str, Any]:
    """Read, store and count a delivery; return what became of it."""
    rules = load_alert_config(services.settings.project_dir).alerts.rule
    try:
        payload = read_json(body)
        deliveries: list[Delivery] = (
            read_generic(payload, rules)
            if source == "generic"
            else read_alertmanager(payload, rules, source=source)
        )
    except BadInputError as error:
        reject_payload(services, source, error.message, body)
        raise
    if source == "generic":
        deliveries = [_refused_unknown(services, each) for each in deliveries]
    receipts = receive_all(services, deliveries)
    if receipts and all(each.result is NoticeResult.REJECTED for each in receipts):
        detail = receipts[0].detail
        blamed = detail.partition(":")[0]
        field = blamed if blamed in (*TEXTS, *NUMBERS) else "alerts"
        raise BadInputError(f"alerts[0]: {detail}", field=field)
    return _answer(receipts)


def _refused_unknown(services: Services, delivery: Delivery) -> Delivery:
    """Reject an alert that names a series of this service which is none, and nothing else."""
    if not isinstance(delivery, Firing):
        return delivery
    signal = delivery.signal
    # Where it says itself what is to be bisected, the series may be the sender's own.
    if not signal.series or signal.benchmark or signal.repository or signal.package:
        return delivery
    with services.database.read() as session:
        names = list(session.scalars(select(SeriesRow.name)))
    if signal.series in names:
        return delivery
    detail = (
        f"series: no series '{signal.series}' here{did_you_mean(signal.series, names)}, and "
        "neither benchmark nor repository that could be bisected without one"
    )
    return Rejected(signal.source, detail)


def _answer(receipts: list[Receipt]) -> dict[str, Any]:
    told = {result.value: number for result, number in counts(receipts).items()}
    alerts = [
        {"result": each.result, "alert": each.alert_id, "detail": each.detail} for each in receipts
    ]
    return {**told, "alerts": alerts}


@router.get(
    "", operation_id="listAlerts", response_model=models.Page[alert_models.Alert],
    responses=documented(422),
)  # fmt: skip
def list_alerts(
    services: Opened,
    view: Annotated[
        alert_queries.View | None, Query(description="Open, held or closed ones only.")
    ] = None,
    state: AlertState | None = None,
    source: Words = None,
    q: Words = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[alert_models.Alert]:
    """Return alerts, newest first."""
    wanted = alert_queries.AlertFilter(view=view, state=state, source=source, q=q)
    with services.database.read() as session:
        rows, more = alert_queries.list_alerts(session, wanted, before=after or None, limit=limit)
    items = [alert_models.Alert.model_validate(row) for row in rows]
    return models.Page(items=items, next=items[-1].id if more else None)


@router.get(
    "/notices", operation_id="listNotices", response_model=models.Page[alert_models.Notice],
    responses=documented(422),
)  # fmt: skip
def list_notices(
    services: Opened,
    result: NoticeResult | None = None,
    before: Annotated[int | None, Query(ge=1, lt=2**53)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[alert_models.Notice]:
    """Return what was delivered, newest first: each alert of each delivery, malformed ones too."""
    with services.database.read() as session:
        rows, more = alert_queries.list_notices(session, result, before=before, limit=limit)
    items = [alert_models.Notice.model_validate(row) for row in rows]
    return models.Page(items=items, next=str(items[-1].id) if more else None)


@router.get(
    "/{alert_id}", operation_id="getAlert", response_model=alert_models.Alert,
    responses=documented(404, 422),
)  # fmt: skip
def get_alert(services: Opened, alert_id: AlertId) -> alert_models.Alert:
    """Return an alert and what became of it."""
    with services.database.read() as session:
        return alert_models.Alert.model_validate(alert_queries.get_alert(session, alert_id))


class StartRequest(BaseModel):
    """What an alert did not say, or said wrongly."""

    model_config = ConfigDict(extra="forbid")

    repository: str | None = Field(default=None, max_length=2000)
    package: str | None = Field(default=None, max_length=200)
    recipe: str | None = Field(default=None, max_length=200)
    benchmark: str | None = Field(default=None, max_length=200)
    pool: str | None = Field(default=None, max_length=200)
    good: str | None = Field(default=None, max_length=2000)
    bad: str | None = Field(default=None, max_length=2000)


@router.post(
    "/{alert_id}/start", operation_id="startAlert", response_model=alert_models.Alert,
    responses=documented(400, 404, 409, 413, 422),
)  # fmt: skip
def start(
    services: Opened,
    caller: Asking,
    alert_id: AlertId,
    body: Annotated[StartRequest | None, Body()] = None,
    key: IdempotencyKey = None,
) -> alert_models.Alert:
    """Have an alert bisected now, whatever hours, budgets and cooldowns say."""
    with services.database.read() as session:
        alert_queries.get_alert(session, alert_id)
    given = body.model_dump(exclude_none=True) if body is not None else {}
    asked = ascii(f"start {alert_id} {sorted(given.items())}")
    with act_once(services, caller, key, asked) as first:
        if first:
            start_alert(services, alert_id, caller.name, given)
            record(services, caller, "alert.start", alert_id)
    return get_alert(services, alert_id)


class DismissRequest(BaseModel):
    """Why nothing is done."""

    model_config = ConfigDict(extra="forbid")

    comment: str = Field(default="", max_length=4000)


@router.post(
    "/{alert_id}/dismiss", operation_id="dismissAlert", response_model=alert_models.Alert,
    responses=documented(400, 404, 409, 413, 422),
)  # fmt: skip
def dismiss(
    services: Opened,
    caller: Asking,
    alert_id: AlertId,
    body: Annotated[DismissRequest | None, Body()] = None,
    key: IdempotencyKey = None,
) -> alert_models.Alert:
    """Close an alert: nothing is done about it."""
    with services.database.read() as session:
        alert_queries.get_alert(session, alert_id)
    comment = body.comment if body is not None else ""
    with act_once(services, caller, key, ascii(f"dismiss {alert_id} {comment}")) as first:
        if first:
            dismiss_alert(services, alert_id, caller.name, comment)
            record(services, caller, "alert.dismiss", alert_id)
    return get_alert(services, alert_id)
