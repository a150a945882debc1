"""Alerts, their story, what was told to whom, and how often verdicts were right."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.orm import Session

from perfbisect.alerting.hands import FILLABLE, dismiss_alert, give_feedback, start_alert
from perfbisect.alerting.outbox import redeliver
from perfbisect.alerting.requests import series_of
from perfbisect.alerting.self_checks import pool_noise
from perfbisect.alerting.wording import change_line, name_of, range_line
from perfbisect.core.alert_states import ALERT_TRANSITIONS, AlertState, MessageState, NoticeResult
from perfbisect.routers import present
from perfbisect.routers.access import Asking, record
from perfbisect.routers.alerts import AlertId
from perfbisect.routers.answers import MessageId
from perfbisect.routers.bisections import BisectionId
from perfbisect.routers.deps import After, Opened
from perfbisect.security import CSRF_FIELD, new_csrf_token
from perfbisect.store import alert_queries, queries
from perfbisect.store.alert_tables import AlertRow, FindingRow, MessageRow, NoticeRow
from perfbisect.store.series_tables import SeriesChangeRow
from perfbisect.store.tables import ExperimentRow
from perfbisect.web.form_page import CsrfCookie, CsrfField, require_csrf, set_csrf_cookie
from perfbisect.web.list_pages import Text, next_link
from perfbisect.web.templating import render

router = APIRouter()

#: Rows of a page.
ROWS = 25
_MOST_NOTICES = 100

#: What colours a state.
TONES = {
    "new": "busy",
    "queued": "busy",
    "held": "unsure",
    "bisecting": "busy",
    "checking": "busy",
    "explained": "bad",
    "not_reproduced": "good",
    "unexplained": "unsure",
    "resolved": "good",
    "dismissed": "muted",
    "pending": "busy",
    "sending": "busy",
    "delivered": "good",
    "dead": "bad",
}
_STARTABLE = (AlertState.NEW, AlertState.QUEUED, AlertState.HELD, AlertState.UNEXPLAINED)

Field = Annotated[str, Form(max_length=2000)]
Comment = Annotated[str, Form(max_length=4000)]


@dataclass(frozen=True, slots=True)
class Line:
    """An alert as lists show it."""

    row: AlertRow
    name: str
    change: str
    ends: str


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that is known of an alert."""

    line: Line
    #: The change of the nightly series that raised it; None: it came from outside.
    change: SeriesChangeRow | None
    #: Whether its series has a page here.
    known_series: bool
    leader: Line | None
    group: list[Line]
    #: Verdict of its bisection, as far as it is known.
    sentence: str
    experiment: ExperimentRow | None
    finding: FindingRow | None
    messages: list[MessageRow]
    notices: list[NoticeRow]

    @property
    def startable(self) -> bool:
        """Whether a person may start it."""
        return self.line.row.state in _STARTABLE

    @property
    def dismissable(self) -> bool:
        """Whether a person may dismiss it."""
        return AlertState.DISMISSED in ALERT_TRANSITIONS[self.line.row.state]


def line_of(row: AlertRow) -> Line:
    """Return an alert as lists show it."""
    return Line(row, name_of(row), change_line(row), range_line(row))


def story_of(session: Session, alert_id: str) -> Story:
    """Return everything that is known of an alert.

    Raises:
        NotFoundError: no such alert.
    """
    row = alert_queries.get_alert(session, alert_id)
    group = alert_queries.group_of(session, row)
    leader = session.get(AlertRow, row.leader_id) if row.leader_id else None
    change = session.get(SeriesChangeRow, row.fingerprint) if row.source == "series" else None
    sentence = ""
    if row.bisection_id is not None:
        verdict = present.verdict_of(queries.get_bisection(session, row.bisection_id))
        sentence = str(verdict["sentence"])
    told_with = [row.id, *(each.id for each in group)]
    messages, _ = alert_queries.list_messages(session, None, alert_ids=told_with, limit=50)
    return Story(
        line=line_of(row),
        change=change,
        known_series=series_of(session, row) is not None,
        leader=line_of(leader) if leader is not None else None,
        group=[line_of(each) for each in group],
        sentence=sentence,
        experiment=session.get(ExperimentRow, row.experiment_id) if row.experiment_id else None,
        finding=alert_queries.finding_of(session, row),
        messages=messages,
        notices=alert_queries.notices_of(session, alert_id),
    )


@router.get("/alerts", response_class=HTMLResponse)
def list_alerts(
    request: Request,
    services: Opened,
    view: Text = "",
    source: Text = "",
    q: Text = "",
    after: After = None,
) -> HTMLResponse:
    """Show alerts, newest first."""
    chosen = alert_queries.View(view) if view in list(alert_queries.View) else None
    wanted = alert_queries.AlertFilter(view=chosen, source=source, q=q)
    with services.database.read() as session:
        rows, more = alert_queries.list_alerts(session, wanted, before=after or None, limit=ROWS)
        views = alert_queries.count_views(session)
        dead = alert_queries.count_dead(session)
        rejected, _ = alert_queries.list_notices(
            session, NoticeResult.REJECTED, before=None, limit=_MOST_NOTICES
        )
    filters = {"view": view, "source": source, "q": q}
    context = {
        "items": [line_of(row) for row in rows],
        "filters": filters,
        "filtered": any(filters.values()) or bool(after),
        "views": views,
        "dead": dead,
        "rejected": rejected,
        "tones": TONES,
        "next": next_link("/alerts", filters, rows[-1].id if more else None),
    }
    return render(request, "alerts.html", context)


@router.get("/alerts/accuracy", response_class=HTMLResponse)
def show_accuracy(request: Request, services: Opened) -> HTMLResponse:
    """Show how often verdicts were right, and what A/A runs say of each pool."""
    with services.database.read() as session:
        context = {
            "months": alert_queries.accuracy_by_month(session),
            "judged": alert_queries.judged_lately(session),
            "pools": pool_noise(session),
        }
    return render(request, "accuracy.html", context)


@router.get("/alerts/{alert_id}", response_class=HTMLResponse)
def show_alert(
    request: Request, services: Opened, alert_id: AlertId, csrf: CsrfCookie = None
) -> HTMLResponse:
    """Show an alert's story."""
    with services.database.read() as session:
        story = story_of(session, alert_id)
    token = csrf or new_csrf_token()
    context = {
        "story": story,
        "tones": TONES,
        "fillable": FILLABLE,
        "csrf_field": CSRF_FIELD,
        "csrf_token": token,
    }
    response = render(request, "alert.html", context)
    set_csrf_cookie(response, request, token)
    return response


@router.post("/alerts/{alert_id}/start")
def start(
    services: Opened,
    caller: Asking,
    alert_id: AlertId,
    repository: Field = "",
    package: Field = "",
    recipe: Field = "",
    benchmark: Field = "",
    pool: Field = "",
    good: Field = "",
    bad: Field = "",
    csrf: CsrfCookie = None,
    csrf_token: CsrfField = "",
) -> RedirectResponse:
    """Have an alert bisected, and show it again."""
    require_csrf(csrf, csrf_token)
    queries.known_id(alert_id, "alert", "alert_id")
    values = (repository, package, recipe, benchmark, pool, good, bad)
    start_alert(services, alert_id, caller.name, dict(zip(FILLABLE, values, strict=True)))
    record(services, caller, "alert.start", alert_id)
    return RedirectResponse(f"/alerts/{alert_id}", HTTPStatus.SEE_OTHER)


@router.post("/alerts/{alert_id}/dismiss")
def dismiss(
    services: Opened,
    caller: Asking,
    alert_id: AlertId,
    comment: Comment = "",
    csrf: CsrfCookie = None,
    csrf_token: CsrfField = "",
) -> RedirectResponse:
    """Close an alert, and show it again."""
    require_csrf(csrf, csrf_token)
    queries.known_id(alert_id, "alert", "alert_id")
    dismiss_alert(services, alert_id, caller.name, comment)
    record(services, caller, "alert.dismiss", alert_id)
    return RedirectResponse(f"/alerts/{alert_id}", HTTPStatus.SEE_OTHER)


@router.post("/bisections/{bisection_id}/feedback")
def feedback(
    services: Opened,
    caller: Asking,
    bisection_id: BisectionId,
    verdict: Annotated[str, Form(pattern="^(right|wrong)$")],
    comment: Comment = "",
    csrf: CsrfCookie = None,
    csrf_token: CsrfField = "",
) -> RedirectResponse:
    """Note whether a verdict is right, and show it again."""
    require_csrf(csrf, csrf_token)
    queries.known_id(bisection_id, "bisection", "bisection_id")
    give_feedback(services, bisection_id, caller.name, is_right=verdict == "right", comment=comment)
    record(services, caller, "bisection.feedback", bisection_id, right=verdict == "right")
    return RedirectResponse(f"/bisections/{bisection_id}#feedback", HTTPStatus.SEE_OTHER)


@router.get("/messages", response_class=HTMLResponse)
def list_messages(
    request: Request,
    services: Opened,
    state: Text = "",
    after: After = None,
    csrf: CsrfCookie = None,
) -> HTMLResponse:
    """Show what was told to whom; the dead letters can be sent again."""
    chosen = MessageState(state) if state in list(MessageState) else None
    with services.database.read() as session:
        rows, more = alert_queries.list_messages(session, chosen, before=after or None, limit=ROWS)
    token = csrf or new_csrf_token()
    context = {
        "items": rows,
        "filters": {"state": state},
        "states": list(MessageState),
        "tones": TONES,
        "csrf_field": CSRF_FIELD,
        "csrf_token": token,
        "next": next_link("/messages", {"state": state}, rows[-1].id if more else None),
    }
    response = render(request, "messages.html", context)
    set_csrf_cookie(response, request, token)
    return response


@router.post("/messages/{message_id}/redeliver")
def redeliver_message(
    services: Opened,
    caller: Asking,
    message_id: MessageId,
    csrf: CsrfCookie = None,
    csrf_token: CsrfField = "",
) -> RedirectResponse:
    """Have a dead letter sent again, and show the list."""
    require_csrf(csrf, csrf_token)
    redeliver(services, queries.known_id(message_id, "message", "message_id"))
    record(services, caller, "message.redeliver", message_id)
    return RedirectResponse("/messages", HTTPStatus.SEE_OTHER)
