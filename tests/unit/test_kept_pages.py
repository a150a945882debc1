"""Pages of finished bisections are kept for the next reader: never stale, never another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select
from tests.helpers.alert_scenes import explained
from tests.helpers.seeding import Seed
from tests.helpers.serving import API, Site
from tests.helpers.tokens import bearer, guarded

from perfbisect.core.access import Scope
from perfbisect.core.states import BisectionState, Outcome, Purpose
from perfbisect.routers.kept import Kept, KeptTexts
from perfbisect.security import CSRF_COOKIE
from perfbisect.store.alert_tables import FeedbackRow
from perfbisect.store.database import new_id, now
from perfbisect.store.page_queries import Identity, identity_of, version_of
from perfbisect.store.tables import (
    BisectionRow,
    EventRow,
    ExperimentRow,
    PointRow,
    RecipeRow,
    RunRow,
)

#: Queries of a page that is kept; one that is not kept takes more than twice as many.
FEW = 6


@contextmanager
def counting(site: Site) -> Iterator[list[str]]:
    """Yield a list that gets the queries of the service."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    engine = site.client.app.state.services.database.engine  # type: ignore[attr-defined]
    event.listen(engine, "before_cursor_execute", note)
    yield said
    event.remove(engine, "before_cursor_execute", note)


def page(site: Site) -> str:
    """Return the page of the finished bisection."""
    answer = site.client.get(f"/bisections/{site.finished.id}")
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("path", ["/bisections/{}", f"{API}/bisections/{{}}/chart"])
def test_what_is_kept_is_served_again_and_recognised(site: Site, path: str) -> None:
    """The second reader gets the same without its queries, and nothing if it has it already."""
    address = path.format(site.finished.id)
    # The first answer gives the cookie that is part of the page.
    site.client.get("/new")
    first = site.client.get(address)
    with counting(site) as queries:
        second = site.client.get(address)
    assert second.text == first.text
    assert len(queries) <= FEW
    known = {"If-None-Match": first.headers["etag"]}
    assert site.client.get(address, headers=known).status_code == 304


def test_a_running_bisection_is_not_kept(site: Site) -> None:
    """What changes without an event, like the state of a log, is read for every reader."""
    address = f"/bisections/{site.running.id}"
    site.client.get(address)
    with counting(site) as queries:
        site.client.get(address)
    assert len(queries) > FEW


def measured_by_another(site: Site) -> str:
    """Let the other bisection measure a tree of the finished one; return what the page shows."""
    tree = site.finished.tree(24)
    with site.services.database.write() as session:
        run = session.get_one(RunRow, site.running.run(24))
        point = session.scalars(select(PointRow).where(PointRow.run_id == run.id)).one()
        point.tree, point.benchmark_digest = tree, site.finished.benchmark_digest
    return '<td class="number">3</td>'


def proven(site: Site) -> str:
    """End an experiment that proves a culprit; return what the page shows."""
    experiment_id = new_id()
    with site.services.database.write() as session:
        row = session.get_one(BisectionRow, site.finished.id)
        common = ("repository_id", "recipe", "benchmark", "policy", "benchmark_digest")
        session.add(
            ExperimentRow(
                id=experiment_id,
                kind="prove",
                bisection_id=row.id,
                state=BisectionState.FINISHED,
                outcome=Outcome.ANSWERED,
                request={},
                request_digest="",
                recipe_digest=row.recipe_digest,
                plan={},
                requested_by="release-team",
                origin="bisection",
                created_at=now(),
                active_seconds=1.0,
                **{name: getattr(row, name) for name in common},
            )
        )
        row.verdict = {**(row.verdict or {}), "proof": {"experiment": experiment_id, "state": "x"}}
        session.flush()
        session.add(EventRow(experiment_id=experiment_id, kind="finished", data={}, at=now()))
    return experiment_id


def judged(site: Site) -> str:
    """Let somebody judge the verdict, without any event; return what the page shows."""
    with site.services.database.write() as session:
        words = FeedbackRow(
            bisection_id=site.finished.id, is_right=False, comment="it was me", by="ann", at=now()
        )
        session.add(words)
    return "it was me"


def linked(site: Site) -> str:
    """Let an alert be explained by it; return what the page shows."""
    return f"/alerts/{explained(site.services, site.finished)}"


@pytest.mark.parametrize("change", [measured_by_another, proven, judged, linked])
def test_what_another_process_writes_is_shown_at_once(
    site: Site, change: Callable[[Site], str]
) -> None:
    """Points of others, proofs, words of people and alerts: the kept page is not shown again."""
    before = page(site)
    expected = change(site)
    after = page(site)
    assert after.count(expected) > before.count(expected)


def test_a_late_commit_below_the_newest_event_is_shown(site: Site) -> None:
    """Numbers of events are given before they are committed: the newest one alone tells little."""
    with site.services.database.write() as session:
        newest = session.scalar(select(func.max(EventRow.id))) or 0
        gone = EventRow(
            id=newest + 2, bisection_id=site.running.id, kind="belief", data={}, at=now()
        )
        session.add(gone)
    before = page(site)
    with site.services.database.write() as session:
        row = session.get_one(BisectionRow, site.finished.id)
        row.verdict = {**(row.verdict or {}), "sentence": "Said later."}
        late = EventRow(id=newest + 1, bisection_id=row.id, kind="finished", data={}, at=now())
        session.add(late)
    assert "Said later." not in before
    assert "Said later." in page(site)


def test_what_others_do_with_other_recipes_leaves_it_kept(site: Site) -> None:
    """A busy service does not make every page anew: only what can have changed it counts."""
    other = Seed(site.services, n=4, name="elsewhere")
    other.submit()
    with site.services.database.write() as session:
        row = session.get_one(BisectionRow, other.id)
        row.recipe_digest = copied_recipe(session, row.recipe_digest)
    page(site)
    other.run(0, purpose=Purpose.ANCHOR)
    with counting(site) as queries:
        page(site)
    assert len(queries) <= FEW


def copied_recipe(session: Any, digest: str) -> str:
    """Insert the same recipe under another digest; return that."""
    row = session.get_one(RecipeRow, digest)
    other = "f" * 64
    session.add(RecipeRow(digest=other, name=row.name, definition=row.definition, created_at=now()))
    session.flush()
    return other


def test_readers_get_their_own_rights_and_tokens(tmp_path: Path) -> None:
    """What was made for one reader shows another neither forms nor the first one's token."""
    with guarded(tmp_path) as site:
        for position in (0, 2, 3, 6):
            site.seed.run(position)
        site.seed.finish(Outcome.CULPRITS, [(2, 3)])
        path = f"/bisections/{site.seed.id}"

        def got(scope: Scope, token: str) -> Any:
            headers = {**bearer(site.secrets[scope]), "Cookie": f"{CSRF_COOKIE}={token}"}
            return site.client.get(path, headers=headers)

        writer, other = got(Scope.SUBMIT, "first-one"), got(Scope.SUBMIT, "second-one")
        reader = got(Scope.READ, "third-one")
        assert "first-one" in writer.text
        assert "second-one" in other.text
        assert "first-one" not in other.text + reader.text
        assert "Is this verdict right?" in writer.text
        assert "<form" not in reader.text.partition('<main id="main">')[2]
        assert len({answer.headers["etag"] for answer in (writer, other, reader)}) == 3
        assert writer.headers["cache-control"] == "private, no-cache"
        known = {**bearer(site.secrets[Scope.READ]), "If-None-Match": writer.headers["etag"]}
        assert site.client.get(path, headers=known).status_code == 200
        assert site.client.get(path).status_code in (303, 401)


def test_a_forged_cookie_is_text(site: Site) -> None:
    """The token that goes into a kept page comes from the browser, and is escaped there."""
    page(site)
    forged = {"Cookie": f"{CSRF_COOKIE}=\"'><b>bold</b>"}
    answer = site.client.get(f"/bisections/{site.finished.id}", headers=forged)
    assert answer.status_code == 200
    assert "<b>bold" not in answer.text


def test_texts_are_bounded_and_age(site: Site) -> None:
    """The oldest texts make room, one that is too large is not kept, and none gets old."""
    clock = [0.0]
    texts = KeptTexts(most_bytes=25_000, most_age=60.0, clock=lambda: clock[0])
    with site.services.database.read() as session:
        identity: Identity = identity_of(session, site.finished.id)
        version = version_of(session, identity)
        for number in range(5):
            texts.put(number, Kept(identity, version, "x" * 10_000))
        texts.put("large", Kept(identity, version, "x" * 30_000))
        assert texts.size <= 25_000
        found = [texts.find(session, key) is not None for key in (0, 3, 4, "large")]
        assert found == [False, True, True, False]
        clock[0] = 61.0
        assert texts.find(session, 4) is None
