"""Answers out, and back: messages, what people think of verdicts, and how often they were right."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, ConfigDict, Field

from perfbisect.alerting.hands import give_feedback
from perfbisect.alerting.outbox import redeliver
from perfbisect.alerting.self_checks import pool_noise
from perfbisect.core.alert_states import MessageState
from perfbisect.errors import ConflictError
from perfbisect.problems import documented
from perfbisect.routers import alert_models, models
from perfbisect.routers.access import Asking, act_once, record
from perfbisect.routers.bisections import BisectionId, IdempotencyKey
from perfbisect.routers.deps import DEFAULT_LIMIT, After, Limit, Opened
from perfbisect.routers.finite import JSONResponse
from perfbisect.store import alert_queries, queries

router = APIRouter(tags=["alerts"])

MessageId = Annotated[str, Path(max_length=64, description="Id of a message.")]


@router.get(
    "/messages", operation_id="listMessages", response_model=models.Page[alert_models.Message],
    responses=documented(422),
)  # fmt: skip
def list_messages(
    services: Opened,
    state: MessageState | None = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[alert_models.Message]:
    """Return messages, newest first; the dead ones were given up."""
    with services.database.read() as session:
        rows, more = alert_queries.list_messages(session, state, before=after or None, limit=limit)
    items = [alert_models.Message.model_validate(row) for row in rows]
    return models.Page(items=items, next=items[-1].id if more else None)


@router.post(
    "/messages/{message_id}/redeliver", operation_id="redeliverMessage",
    status_code=HTTPStatus.ACCEPTED, response_model=alert_models.Message,
    responses=documented(404, 409, 422),
)  # fmt: skip
def redeliver_message(
    services: Opened, caller: Asking, message_id: MessageId, key: IdempotencyKey = None
) -> alert_models.Message:
    """Have a dead letter sent again, with the same id."""
    with services.database.read() as session:
        alert_queries.get_message(session, message_id)
    with act_once(services, caller, key, f"redeliver {message_id}") as first:
        if first:
            redeliver(services, message_id)
            record(services, caller, "message.redeliver", message_id)
    with services.database.read() as session:
        row = alert_queries.get_message(session, message_id)
    return alert_models.Message.model_validate(row)


class FeedbackRequest(BaseModel):
    """A person's word on a verdict."""

    model_config = ConfigDict(extra="forbid")

    right: bool = Field(strict=True, description="Whether the verdict is right.")
    comment: str = Field(default="", max_length=4000)


@router.post(
    "/bisections/{bisection_id}/feedback", operation_id="giveFeedback",
    status_code=HTTPStatus.CREATED, response_model=alert_models.Feedback,
    responses=documented(400, 404, 409, 413, 422),
)  # fmt: skip
def feedback(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    body: Annotated[FeedbackRequest, Body()],
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Say whether a verdict is right; the newest word counts."""
    with services.database.read() as session:
        queries.get_bisection(session, bisection_id)
    comment = body.comment.strip()
    asked = f"feedback {bisection_id} {body.right} {body.comment!a}"
    with act_once(services, caller, key, asked) as first:
        if first:
            give_feedback(
                services, bisection_id, caller.name, is_right=body.right, comment=body.comment
            )
            record(services, caller, "bisection.feedback", bisection_id, right=body.right)
    with services.database.read() as session:
        rows = alert_queries.feedback_on(session, bisection_id)
    # With a key that was sent before: the word that was given with it, not one that came later.
    word = (body.right, comment, caller.name)
    mine = [row for row in rows if (row.is_right, row.comment, row.by) == word]
    if not mine:
        raise ConflictError("what this Idempotency-Key was sent with is under way: ask again")
    told = alert_models.Feedback.model_validate(mine[0])
    return JSONResponse(told.model_dump(mode="json"), status_code=HTTPStatus.CREATED)


@router.get(
    "/bisections/{bisection_id}/feedback", operation_id="listFeedback",
    response_model=list[alert_models.Feedback], responses=documented(404, 422),
)  # fmt: skip
def list_feedback(services: Opened, bisection_id: BisectionId) -> JSONResponse:
    """Return what people think of a verdict, newest first."""
    with services.database.read() as session:
        queries.get_bisection(session, bisection_id)
        rows = alert_queries.feedback_on(session, bisection_id)
    told = [alert_models.Feedback.model_validate(row) for row in rows]
    return JSONResponse([each.model_dump(mode="json") for each in told])


@router.get("/accuracy", operation_id="getAccuracy", response_model=alert_models.Accuracy)
def accuracy(services: Opened) -> alert_models.Accuracy:
    """Return how often verdicts were right, by month, and what A/A runs say of each pool."""
    with services.database.read() as session:
        months = alert_queries.accuracy_by_month(session)
        pools = pool_noise(session)
    return alert_models.Accuracy(
        months=[alert_models.AccuracyMonth.model_validate(month) for month in months],
        pools=[alert_models.Noise.model_validate(pool) for pool in pools],
    )
