"""The page of a bisection without what is the reader's own; of finished ones, kept for the next."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from markupsafe import Markup, escape
from sqlalchemy.orm import Session

from perfbisect.build_watch import progress_of
from perfbisect.core.states import BisectionState
from perfbisect.routers.kept import Kept, KeptTexts
from perfbisect.security import CSRF_FIELD
from perfbisect.services import Services
from perfbisect.store import alert_queries
from perfbisect.store.page_queries import identity_of, version_of
from perfbisect.store.tables import BuildRow
from perfbisect.web.alert_pages import line_of
from perfbisect.web.templating import rendered
from perfbisect.web.views import BisectionView, bisection_view

#: Stands where forms have the reader's token. Nobody outside gets to see it, so that nobody can
#: write it into a commit message.
_TOKEN = f"token-{secrets.token_hex(16)}"

#: Characters of a verdict in a title.
_TITLE = 70


@dataclass(frozen=True, slots=True)
class Article:
    """What a page shows of a bisection, the same for all who may do the same."""

    title: str
    #: Number of the event after which it changes; None: it is finished.
    live_after: int | None
    text: str

    def for_reader(self, csrf_token: str) -> Markup:
        """Return it with the reader's token in its forms."""
        return Markup(self.text.replace(_TOKEN, escape(csrf_token)))  # noqa: S704 - escaped


def article_of(
    services: Services, texts: KeptTexts, bisection_id: str, *, may_submit: bool
) -> Article:
    """Return the article of a bisection for those who may or may not submit.

    Raises:
        NotFoundError: no such bisection.
    """
    key = ("article", bisection_id, may_submit)
    with services.database.read() as session:
        kept = texts.find(session, key)
        if kept is not None:
            return Article(kept.title, None, kept.text)
        identity = identity_of(session, bisection_id)
        version = version_of(session, identity)
        view = bisection_view(session, bisection_id)
        text = _written(services, session, view, may_submit)
    finished = view.state is BisectionState.FINISHED
    article = Article(_title(view), None if finished else view.last_event_id, text)
    # A build of others under way has a clock that ticks.
    if finished and not view.now:
        texts.put(key, Kept(identity, version, article.text, article.title))
    return article


def _written(services: Services, session: Session, view: BisectionView, may_submit: bool) -> str:
    bisection_id = view.verdict["id"]
    builds = [session.get(BuildRow, each.id) for each in view.now if each.kind == "build"]
    return rendered(
        "_bisection.html",
        {
            "view": view,
            "alerts": [
                line_of(row) for row in alert_queries.alerts_of_bisection(session, bisection_id)
            ],
            "words": alert_queries.feedback_on(session, bisection_id),
            "progress": {row.id: progress_of(services, row) for row in builds if row is not None},
            "may_submit": may_submit,
            "csrf_field": CSRF_FIELD,
            "csrf_token": _TOKEN,
        },
    )


def _title(view: BisectionView) -> str:
    sentence = str(view.verdict["sentence"])
    return sentence if len(sentence) <= _TITLE else sentence[: _TITLE - 1] + "…"
