"""Alerts, messages and feedback by API and on pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.helpers.alert_scenes import NIGHT, dead, explained, held, signal
from tests.helpers.serving import API, Site, client_of, opened, settings_in, shown_app

from perfbisect.alerting.hands import give_feedback
from perfbisect.alerting.signatures import sign
from perfbisect.alerts import raise_alert, resolve_alert
from perfbisect.core.access import Anonymous
from perfbisect.store.database import new_id, now

ATTACK = "<script>alert('x')</script>"


def post(site: Site, path: str, body: Any, status: int) -> Any:
    answer = site.client.post(API + path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_deliveries_are_accounted_for(site: Site) -> None:
    """Accepted, repeated, resolved, unknown, rejected: every alert has its word, and a notice."""
    good = {"started_at": NIGHT.isoformat(), "fingerprint": "a", "benchmark": "resnet50"}
    over = {**good, "status": "resolved"}
    strange = {**over, "fingerprint": "never heard of"}
    answer = post(site, "/alerts/generic", [good, good, over, strange, {"started_at": 3}], 202)
    words = ["accepted", "repeated", "resolved", "unknown", "rejected"]
    assert [each["result"] for each in answer["alerts"]] == words
    assert {word: answer[word] for word in words} == dict.fromkeys(words, 1)
    notices = site.json("/alerts/notices")["items"]
    assert [each["result"] for each in reversed(notices)] == words
    assert notices[0]["detail"]
    assert site.json("/alerts?view=closed")["items"][0]["id"] == answer["alerts"][0]["alert"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"alerts": 3}', b"9" * 5000])
def test_what_is_no_payload_is_counted_and_refused(site: Site, body: bytes) -> None:
    """A body that can't be read is a 422, and its beginning is kept."""
    answer = site.client.post(f"{API}/alerts/alertmanager", content=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    (notice,) = site.json("/alerts/notices?result=rejected")["items"]
    assert notice["source"] == "alertmanager"


def test_alerts_are_listed_by_what_is_to_be_done(site: Site) -> None:
    """Open, held and closed are told apart; search finds words of the reason."""
    new = raise_alert(site.services, signal("new"))
    waiting = held(site.services, "waiting")
    assert [each["id"] for each in site.json("/alerts?view=open")["items"]] == [new]
    assert [each["id"] for each in site.json("/alerts?q=policy+asks")["items"]] == [waiting]
    page = site.json("/alerts?limit=1")
    assert [page["items"][0]["id"], page["next"]] == [waiting, waiting]
    assert site.json(f"/alerts?limit=1&after={page['next']}")["items"][0]["id"] == new


def test_a_held_alert_is_started_or_dismissed(site: Site) -> None:
    """By API: with what it did not say, or with why not; once each, and only what may be."""
    first, second = held(site.services, "first"), held(site.services, "second")
    started = post(site, f"/alerts/{first}/start", {"repository": "framework"}, 200)
    assert (started["state"], started["repository"]) == ("queued", "framework")
    assert started["decided_by"] == "anonymous"
    dismissed = post(site, f"/alerts/{second}/dismiss", {"comment": "a new host"}, 200)
    assert dismissed["state"] == "dismissed"
    assert "a new host" in dismissed["reason"]
    post(site, f"/alerts/{second}/start", {}, 409)
    post(site, f"/alerts/{new_id()}/start", {}, 404)
    post(site, f"/alerts/{first}/start", {"god": "x"}, 422)


def test_feedback_is_kept_and_the_newest_word_counts(site: Site) -> None:
    """Right, then wrong: both are kept, and accuracy counts the second."""
    path = f"/bisections/{site.finished.id}/feedback"
    post(site, path, {"right": True}, 201)
    post(site, path, {"right": False, "comment": "it was the driver"}, 201)
    assert [each["right"] for each in site.json(path)] == [False, True]
    (month,) = site.json("/accuracy")["months"]
    assert (month["right"], month["wrong"], month["accuracy"]) == (0, 1, 0.0)
    post(site, f"/bisections/{site.running.id}/feedback", {"right": True}, 409)
    post(site, path, {"right": "yes"}, 422)


def test_verdicts_nobody_judged_are_shown_as_such(site: Site) -> None:
    """A culprit that nobody judged does not count as right."""
    (month,) = site.json("/accuracy")["months"]
    assert (month["right"], month["unjudged"], month["accuracy"]) == (0, 1, None)


def test_dead_letters_are_listed_and_sent_again(site: Site) -> None:
    """By API: a dead message becomes pending, once."""
    message = dead(site.services, held(site.services))
    assert [each["id"] for each in site.json("/messages?state=dead")["items"]] == [message]
    assert post(site, f"/messages/{message}/redeliver", {}, 202)["state"] == "pending"
    post(site, f"/messages/{message}/redeliver", {}, 409)


def test_an_idempotency_key_acts_once(site: Site) -> None:
    """Starting with a key twice starts once, and answers alike."""
    alert = held(site.services)
    for _ in range(2):
        answer = site.client.post(
            f"{API}/alerts/{alert}/start", headers={"Idempotency-Key": "k"}, json={}
        )
        assert answer.status_code == 200
        assert answer.json()["state"] == "queued"


# ---------------------------------------------------------------------- Grafana


@pytest.fixture
def grafana(tmp_path: Path) -> Iterator[TestClient]:
    settings = settings_in(tmp_path, grafana_secret="s3cret", anonymous=Anonymous.NONE)
    with opened(settings), client_of(shown_app(settings)) as client:
        yield client


FIXTURE = Path(__file__).parents[1] / "data" / "alerts" / "grafana.json"


def signed(body: bytes, moment: datetime, secret: str = "s3cret") -> dict[str, str]:
    stamp = str(int(moment.timestamp()))
    return {
        "X-Grafana-Alerting-Signature": sign(secret, body, stamp),
        "X-Grafana-Alerting-Signature-Timestamp": stamp,
        "content-type": "application/json",
    }


def test_what_grafana_signed_is_let_in(grafana: TestClient) -> None:
    """Grafana's own payload, with its signature, needs no token."""
    body = FIXTURE.read_bytes()
    answer = grafana.post(f"{API}/alerts/grafana", content=body, headers=signed(body, now()))
    assert answer.status_code == 202, answer.text
    assert answer.json()["accepted"] == 1
    assert answer.json()["unknown"] == 1


@pytest.mark.parametrize(
    "case", ["late", "early", "other secret", "other body", "no signature", "no time"]
)
def test_what_grafana_did_not_sign_is_refused(grafana: TestClient, case: str) -> None:
    """A copy from before, a forged one, and none at all are refused, and nothing is stored."""
    body = FIXTURE.read_bytes()
    moment = now() + {"late": -1, "early": 1}.get(case, 0) * timedelta(minutes=6)
    headers = signed(body, moment, "other" if case == "other secret" else "s3cret")
    if case == "no signature":
        headers = {}
    if case == "no time":
        del headers["X-Grafana-Alerting-Signature-Timestamp"]
    sent = body + b" " if case == "other body" else body
    answer = grafana.post(f"{API}/alerts/grafana", content=sent, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["type"].endswith("not-authorised")


def test_with_a_secret_nobody_is_let_in_for_being_near(tmp_path: Path) -> None:
    """On loopback, where everybody may submit, an unsigned delivery needs a token all the same."""
    settings = settings_in(tmp_path, grafana_secret="s3cret")
    with client_of(shown_app(settings)) as client:
        assert client.post(f"{API}/alerts/grafana", json={"alerts": []}).status_code == 401
        assert client.post(f"{API}/alerts/alertmanager", json={"alerts": []}).status_code == 202


# ---------------------------------------------------------------------- pages


def token_of(site: Site, path: str) -> str:
    """Open a page for its cookie; return the token of its forms."""
    page = site.client.get(path)
    found = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
    assert found is not None
    return found.group(1)


def test_the_list_shows_what_waits_and_why(site: Site) -> None:
    """A held alert's reason, a dead letter and a malformed delivery are all in sight."""
    dead(site.services, held(site.services))
    site.client.post(f"{API}/alerts/alertmanager", content=b"{")
    page = site.client.get("/alerts").text
    assert "the policy asks before it bisects" in page
    assert "1 dead letter" in page
    assert "not JSON" in page


def test_an_alerts_page_tells_its_story(site: Site) -> None:
    """The change, the bisection's sentence, the culprit, and how to read it as JSON."""
    alert = explained(site.services, site.finished)
    page = site.client.get(f"/alerts/{alert}").text
    verdict = site.json(f"/bisections/{site.finished.id}")
    assert verdict["culprits"][0]["commits"][0][:10] in page
    assert f'href="/bisections/{site.finished.id}"' in page
    assert "9,000 → 6,200" in page
    back = site.client.get(f"/bisections/{site.finished.id}").text
    assert f'href="/alerts/{alert}"' in back


def test_forms_start_dismiss_judge_and_send_again(site: Site) -> None:
    """Without JavaScript: each form does what its button says, and leads back."""
    first, second = held(site.services, "first"), held(site.services, "second")
    message = dead(site.services, first)
    token = token_of(site, f"/alerts/{first}")
    for path, data, target in (
        (f"/alerts/{first}/start", {"good": "abc"}, f"/alerts/{first}"),
        (f"/alerts/{second}/dismiss", {"comment": "known"}, f"/alerts/{second}"),
        (f"/messages/{message}/redeliver", {}, "/messages"),
        (f"/bisections/{site.finished.id}/feedback", {"verdict": "wrong", "comment": "driver"},
         f"/bisections/{site.finished.id}#feedback"),
    ):  # fmt: skip
        answer = site.client.post(path, data={**data, "csrf_token": token})
        assert (answer.status_code, answer.headers["location"]) == (303, target)
    assert site.json(f"/alerts/{first}")["good"] == "abc"
    assert site.json(f"/alerts/{second}")["state"] == "dismissed"
    assert "driver" in site.client.get("/alerts/accuracy").text
    assert "driver" in site.client.get(f"/bisections/{site.finished.id}").text


@pytest.mark.parametrize("path", ["/alerts/{}/start", "/alerts/{}/dismiss"])
def test_forms_need_their_token(site: Site, path: str) -> None:
    """A form from elsewhere is refused, and nothing happens."""
    alert = held(site.services)
    assert site.client.post(path.format(alert), data={}).status_code == 403
    assert site.json(f"/alerts/{alert}")["state"] == "held"


def test_what_senders_write_is_text(site: Site) -> None:
    """Titles, labels, reasons and addresses of others never become markup or scripts."""
    attack = signal(
        "attack", title=ATTACK, benchmark=ATTACK, labels={ATTACK: ATTACK}, url="javascript:alert(1)"
    )
    alert = raise_alert(site.services, attack)
    resolve_alert(site.services, "generic", "attack", NIGHT, ATTACK)
    site.client.post(f"{API}/alerts/generic", json=[{"started_at": ATTACK}])
    give_feedback(site.services, site.finished.id, ATTACK, is_right=True, comment=ATTACK)
    for path in ("/alerts", f"/alerts/{alert}", "/alerts/accuracy", "/messages",
                 f"/bisections/{site.finished.id}"):  # fmt: skip
        page = site.client.get(path).text
        assert "<script>alert" not in page
        assert 'href="javascript:' not in page


def test_pages_have_one_heading_and_no_dead_links(site: Site) -> None:
    """Every page of alerts has one heading, and its links lead somewhere."""
    waiting, done = held(site.services), explained(site.services, site.finished)
    dead(site.services, waiting)
    for path in ("/alerts", f"/alerts/{waiting}", f"/alerts/{done}", "/alerts/accuracy",
                 "/messages", "/alerts?view=held&q=x"):  # fmt: skip
        page = site.client.get(path)
        assert page.status_code == 200
        assert page.text.count("<h1") == 1
        for link in set(re.findall(r'href="(/[^"#]*)', page.text)):
            assert site.client.get(link.replace("&amp;", "&")).status_code < 400, link
    assert site.client.get(f"/alerts/{new_id()}").status_code == 404


def test_the_same_alert_told_twice_is_one(site: Site) -> None:
    """One per source, fingerprint and start: another start is another alert."""
    first = raise_alert(site.services, signal())
    assert raise_alert(site.services, signal(title="again")) == first
    later = replace(signal(), started_at=NIGHT + timedelta(days=1))
    assert raise_alert(site.services, later) != first
    assert site.json(f"/alerts/{first}")["notices"] == 2


def test_a_recovery_in_part_is_said_and_closes_nothing(site: Site) -> None:
    """``still 6% below`` is shown, and the alert stays open; the end of nothing is nobody's."""
    alert = raise_alert(site.services, signal())
    resolve_alert(site.services, "generic", "resnet50", NIGHT, "still 6% below", whole=False)
    told = site.json(f"/alerts/{alert}")
    assert (told["state"], told["resolution"], told["resolved_at"]) == (
        "new", "still 6% below", None,
    )  # fmt: skip
    assert resolve_alert(site.services, "generic", "nothing", NIGHT) is None


def test_the_fixture_is_what_grafana_sends() -> None:
    """The fixture has the fields that Grafana's documentation names, one of them firing."""
    payload = json.loads(FIXTURE.read_text(encoding="utf-8"))
    assert payload["version"] == "1"
    assert {each["status"] for each in payload["alerts"]} == {"firing", "resolved"}
    assert all("dashboardURL" in each and "values" in each for each in payload["alerts"])
