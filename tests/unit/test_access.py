"""Who may do what: tokens, scopes, sessions, limits, and the record of it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import select
from tests.helpers.command_line import call
from tests.helpers.serving import client_of, settings_in, shown_app
from tests.helpers.tokens import API, Guarded, bearer, guarded, make_token
from tests.helpers.waiting import until

from perfbisect.core.access import Anonymous, Scope, allowed, anonymous_scopes
from perfbisect.json_logs import JsonFormatter
from perfbisect.routers.access import Gate, scope_of
from perfbisect.security import CSRF_FIELD
from perfbisect.sessions import Sessions, open_sessions
from perfbisect.store.access import Caller, revoke_token
from perfbisect.store.access_tables import TokenRow
from perfbisect.store.database import now

HTML = {"Accept": "text/html"}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as opened:
        yield opened


def problem(answer: Any, status: int, slug: str) -> dict[str, Any]:
    """Check that an answer is a problem of this kind, and return it."""
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["type"] == f"urn:perfbisect:problem:{slug}"
    return body


def routes(app: FastAPI) -> list[tuple[str, str, object]]:
    """Return method, path and function of every route."""
    found: list[tuple[str, str, object]] = []
    for included in app.routes:
        nested = getattr(included, "original_router", None)
        for route in nested.routes if nested is not None else [included]:
            if isinstance(route, APIRoute):
                found += [(method, route.path, route.endpoint) for method in route.methods or ()]
    return found


def test_scopes_include_those_before_them() -> None:
    """Whoever administers may submit, whoever submits may read, and not the other way round."""
    assert allowed([Scope.ADMIN]) == set(Scope)
    assert allowed([Scope.SUBMIT]) == {Scope.READ, Scope.SUBMIT}
    assert allowed([Scope.READ]) == {Scope.READ}
    assert allowed([]) == frozenset()


@pytest.mark.parametrize(
    ("bind", "hosts", "here"),
    [
        ("127.0.0.1", [], True),
        ("::1", ["localhost"], True),
        ("0.0.0.0", [], False),
        ("127.0.0.1", ["bisect.example"], False),
        ("0.0.0.0", ["localhost"], False),
    ],
)
def test_loopback_alone_is_trusted(tmp_path: Path, bind: str, hosts: list[str], here: bool) -> None:
    """Without a token one may submit on loopback; not beyond it, nor behind a proxy."""
    settings = settings_in(tmp_path, bind=bind, allowed_hosts=hosts)
    assert settings.only_this_machine is here
    scopes = anonymous_scopes(settings.anonymous, only_this_machine=here)
    assert scopes == ({Scope.READ, Scope.SUBMIT} if here else frozenset())


def test_the_settings_open_reading_to_everybody(tmp_path: Path) -> None:
    """With `anonymous=read` everybody may look and nobody may submit without a token."""
    with guarded(tmp_path, anonymous=Anonymous.READ) as door:
        assert door.status("GET", f"{API}/bisections") == 200
        assert door.status("GET", "/") == 200
        answer = door.call("POST", f"{API}/bisections/{door.seed.id}/cancel")
        problem(answer, 401, "not-authorised")


def test_every_route_is_shut_unless_it_says_otherwise(tmp_path: Path) -> None:
    """What needs no token is this list; everything that changes something needs submit at least."""
    found = routes(shown_app(settings_in(tmp_path)))
    assert len(found) > 50
    free = {(method, path) for method, path, each in found if scope_of(each, method) is None}
    open_to_all = {
        ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/login"), ("POST", "/login"),
        ("POST", "/logout"), ("GET", "/favicon.ico"),
    }  # fmt: skip
    assert {each for each in free if "/alerts" not in each[1]} == open_to_all
    posts = [scope_of(each, method) for method, path, each in found if method == "POST"]
    assert Scope.READ not in posts


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/api/v1/bisections", Scope.READ),
        ("GET", "/metrics", Scope.READ),
        ("GET", "/points", Scope.READ),
        ("POST", "/api/v1/bisections/{id}/cancel", Scope.SUBMIT),
        ("GET", "/api/v1/audit", Scope.ADMIN),
        ("GET", "/api/v1/tokens", Scope.ADMIN),
        ("GET", "/tokens", Scope.ADMIN),
    ],
)
def test_tokens_may_what_their_scope_says(
    door: Guarded, method: str, path: str, needed: Scope
) -> None:
    """Without a token 401, with too small a one 403, with the right one an answer."""
    path = path.format(id=door.seed.id)
    answer = door.call(method, path, headers={"Accept": "application/json"})
    problem(answer, 401, "not-authorised")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for scope in Scope:
        answer = door.call(method, path, door.secrets[scope], headers={"Accept": "text/json"})
        if list(Scope).index(scope) < list(Scope).index(needed):
            assert f"'{needed}'" in problem(answer, 403, "forbidden")["detail"]
        else:
            assert answer.status_code in (200, 202, 409), answer.text


@pytest.mark.parametrize("how", ["wrong", "revoked", "expired"])
def test_bad_tokens_are_refused_with_the_reason(tmp_path: Path, how: str) -> None:
    """A token that is none, or no more, is refused even where nobody needs one."""
    with guarded(tmp_path, anonymous=Anonymous.ADMIN) as door:
        ended = now() - timedelta(seconds=1) if how == "expired" else None
        secret = make_token(door.services, "someone", Scope.READ, expires_at=ended)
        if how == "revoked":
            revoke_token(door.services.database, "someone", Caller("a test", frozenset()))
        answer = door.call("GET", f"{API}/me", secret + ("x" if how == "wrong" else ""))
        expected = "not known" if how == "wrong" else how
        assert expected in problem(answer, 401, "not-authorised")["detail"]


def test_secrets_are_not_stored(door: Guarded) -> None:
    """The database holds a digest and the beginning, and nothing that holds the secret."""
    secret = door.secrets[Scope.READ]
    with door.services.database.read() as session:
        row = session.scalar(select(TokenRow).where(TokenRow.name == "a-read"))
    assert row is not None
    assert secret.startswith(row.prefix)
    assert len(secret) > 40
    assert secret[len(row.prefix) :] not in json.dumps(
        {column.name: str(getattr(row, column.name)) for column in TokenRow.__table__.columns}
    )


def test_requested_by_is_the_tokens_name_and_use_is_noted(door: Guarded) -> None:
    """Who asks is told back, and a token remembers when it was last used."""
    me = door.call("GET", f"{API}/me", door.secrets[Scope.SUBMIT]).json()
    assert (me["name"], me["scopes"]) == ("a-submit", ["read", "submit"])
    listed = door.call("GET", f"{API}/tokens", door.secrets[Scope.ADMIN]).json()
    used = {each["name"]: each["last_used_at"] for each in listed}
    assert used["a-submit"] is not None
    assert used["a-read"] is None


def test_who_did_what_is_recorded(door: Guarded) -> None:
    """Cancelling leaves an entry with name, subject and request, which only admins may read."""
    path = f"{API}/bisections/{door.seed.id}/cancel"
    headers = {"X-Request-ID": "find-me", "Idempotency-Key": "once"}
    for _ in range(2):
        assert door.status("POST", path, door.secrets[Scope.SUBMIT], headers=headers) == 202
    admin = door.secrets[Scope.ADMIN]
    query = f"actor=a-submit&subject={door.seed.id}"
    entries = door.call("GET", f"{API}/audit?{query}", admin).json()["items"]
    # The same key acts once.
    assert [(each["action"], each["request_id"]) for each in entries] == [
        ("bisection.cancel", "find-me")
    ]
    page = door.call("GET", "/audit", admin, headers=HTML).text
    assert "bisection.cancel" in page
    other = f"{API}/tokens/a-read/revoke"
    assert door.status("POST", other, admin) == 200
    assert door.status("GET", f"{API}/me", door.secrets[Scope.READ]) == 401


def test_a_key_of_another_action_is_a_conflict(door: Guarded) -> None:
    """One idempotency key can't stand for two different actions."""
    admin, headers = door.secrets[Scope.ADMIN], {"Idempotency-Key": "k"}
    assert door.status("POST", f"{API}/tokens/a-read/revoke", admin, headers=headers) == 200
    answer = door.call("POST", f"{API}/tokens/a-submit/revoke", admin, headers=headers)
    assert problem(answer, 409, "conflict")["field"] == "Idempotency-Key"
    assert door.status("GET", f"{API}/me", door.secrets[Scope.SUBMIT]) == 200


def was_used(door: Guarded, name: str) -> bool:
    """Return whether somebody came with this token."""
    with door.services.database.read() as session:
        row = session.scalars(select(TokenRow).where(TokenRow.name == name)).one()
        return row.last_used_at is not None


@pytest.mark.parametrize("path", [f"{API}/bisections/{{}}/events", "/bisections/{}/changes"])
def test_an_open_stream_ends_with_its_token(door: Guarded, path: str) -> None:
    """Whoever follows a bisection is shut out once the token is revoked, without being asked."""
    secret = make_token(door.services, "follower", Scope.READ)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(door.call, "GET", path.format(door.seed.id), secret)
        until(lambda: was_used(door, "follower"), "the stream to be let in")
        revoke_token(door.services.database, "follower", Caller("a test", frozenset()))
        # The bisection goes on for ever: only the token can end the stream.
        answer = stream.result(timeout=60)
    assert "finished" not in answer.text
    assert door.status("GET", f"{API}/me", secret) == 401


def form_token(door: Guarded, path: str) -> str:
    """Open a page with a form; return its token."""
    page = door.client.get(path, headers=HTML)
    assert page.status_code == 200, page.text
    return page.text.partition(f'name="{CSRF_FIELD}" value="')[2].partition('"')[0]


def log_in(door: Guarded, secret: str, target: str = "/hosts") -> Any:
    """Send the form of the login."""
    data = {CSRF_FIELD: form_token(door, "/login"), "token": secret, "next": target}
    return door.client.post("/login", data=data, headers=HTML)


def test_pages_lead_to_the_login_and_back(door: Guarded) -> None:
    """A page sends a stranger to the login; a good token leads back, with a cookie for pages."""
    answer = door.client.get("/points?host=a", headers=HTML)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fpoints%3Fhost%3Da"
    refused = log_in(door, "pbt_wrong")
    assert refused.status_code == 401
    assert "not known here" in refused.text
    answer = log_in(door, door.secrets[Scope.READ], "/points?host=a")
    assert (answer.status_code, answer.headers["location"]) == (303, "/points?host=a")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert door.secrets[Scope.READ] not in cookie
    assert door.client.get("/points", headers=HTML).status_code == 200
    assert door.client.get(f"{API}/bisections").status_code == 200


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "http://["]
)
def test_the_login_leads_nowhere_else(door: Guarded, target: str) -> None:
    """A crafted link to the login can't send whoever uses it to another site."""
    assert log_in(door, door.secrets[Scope.READ], target).headers["location"] == "/"


def test_sessions_end_with_their_token_and_at_the_logout(door: Guarded) -> None:
    """Whoever logged in is out when the token is revoked, and when they say so."""
    log_in(door, door.secrets[Scope.ADMIN])
    assert door.client.get("/tokens", headers=HTML).status_code == 200
    door.client.post("/logout")
    assert door.client.get("/tokens", headers=HTML).status_code == 303
    log_in(door, door.secrets[Scope.ADMIN])
    token = form_token(door, "/tokens")
    with door.services.database.read() as session:
        row = session.scalar(select(TokenRow).where(TokenRow.name == "a-admin"))
    assert row is not None
    path = f"/tokens/{row.id}/revoke"
    assert door.client.post(path, data={CSRF_FIELD: "guess"}).status_code == 403
    assert door.client.post(path, data={CSRF_FIELD: token}).status_code == 303
    assert door.client.get("/tokens", headers=HTML).status_code == 303


def test_a_session_does_not_act_through_the_api(door: Guarded) -> None:
    """The cookie reads the API for the pages; acting needs a form's token, or a bearer token."""
    log_in(door, door.secrets[Scope.SUBMIT])
    path = f"/bisections/{door.seed.id}/cancel"
    problem(door.client.post(API + path), 401, "not-authorised")
    assert door.client.post(path, data={}).status_code == 403
    token = form_token(door, f"/bisections/{door.seed.id}")
    assert door.client.post(path, data={CSRF_FIELD: token}).status_code == 303


def test_cookies_are_signed_and_grow_old(tmp_path: Path) -> None:
    """A cookie that was changed, signed by another key, or is too old, is none."""
    sessions = Sessions("secret", 1.0)
    cookie = sessions.cookie_of("01J")
    assert sessions.token_of(cookie) == "01J"
    assert sessions.token_of(cookie[:-1]) is None
    assert sessions.token_of(None) is None
    assert Sessions("other", 1.0).token_of(cookie) is None
    old = Sessions("secret", 1.0)
    old.seconds = -1
    assert old.token_of(cookie) is None
    settings = settings_in(tmp_path)
    settings.data_dir.mkdir()
    again = open_sessions(settings).cookie_of("x")
    assert open_sessions(settings).token_of(again) == "x"
    assert (settings.data_dir / "session.key").stat().st_mode & 0o077 == 0


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    """A token over its limit gets 429 with Retry-After; others are not hindered by it."""
    with guarded(tmp_path) as door:
        eager = make_token(door.services, "eager", Scope.READ, rate_limit="2/hour")
        assert [door.status("GET", f"{API}/me", eager) for _ in range(2)] == [200, 200]
        answer = door.call("GET", f"{API}/me", eager)
        assert "2 requests within 1 hour" in problem(answer, 429, "limited")["detail"]
        assert 3500 < int(answer.headers["retry-after"]) <= 3600
        assert door.status("GET", f"{API}/me", door.secrets[Scope.READ]) == 200


def test_guessing_tokens_is_slowed_down(door: Guarded) -> None:
    """After thirty wrong tokens an address has to wait, and right ones still work."""
    statuses = [door.status("GET", f"{API}/me", f"pbt_{number}") for number in range(31)]
    assert statuses == [401] * 30 + [429]
    assert door.status("GET", f"{API}/me", door.secrets[Scope.READ]) == 200


def test_changes_have_a_limit_of_their_own(tmp_path: Path) -> None:
    """What changes something is counted apart from what looks."""
    with guarded(tmp_path, submit_rate_limit="1/hour") as door:
        submit = door.secrets[Scope.SUBMIT]
        path = f"{API}/bisections/{door.seed.id}/cancel"
        assert door.status("POST", path, submit) == 202
        problem(door.call("POST", path, submit), 429, "limited")
        assert door.status("GET", f"{API}/me", submit) == 200


def test_nobody_fills_the_queue_alone(tmp_path: Path) -> None:
    """A token with as much under way as it may have gets 429; a known key still gets its answer."""
    with guarded(tmp_path, max_unfinished=1) as door:
        other = door.seed.on(door.services)
        other.id, other.name = "01JZ0Q6W9N3V5C4S7T8R2X1Y0A", "second"
        other.submit(requested_by="a-submit")
        body = {"repository": "framework", "good": "a", "bad": "b", "recipe": "tf2-cuda10"}
        body["benchmark"] = "resnet50-train-cpu"
        answer = door.call("POST", f"{API}/bisections", door.secrets[Scope.SUBMIT], json=body)
        assert "may have 1" in problem(answer, 429, "limited")["detail"]
        assert answer.headers["retry-after"] == "60"


def test_grafanas_route_has_scopes_and_limits_too(tmp_path: Path) -> None:
    """The route that checks for itself refuses what others refuse: small scopes, and too much."""
    with guarded(tmp_path, submit_rate_limit="2/hour") as door:
        path = f"{API}/alerts/grafana"
        small = door.call("POST", path, door.secrets[Scope.READ], json={"alerts": []})
        assert "'submit'" in problem(small, 403, "forbidden")["detail"]
        submit = door.secrets[Scope.SUBMIT]
        for status in (202, 202, 429):
            answer = door.call("POST", path, submit, json={"alerts": []})
            assert answer.status_code == status, answer.text
        problem(answer, 429, "limited")


def test_the_user_of_the_machine_is_not_limited(tmp_path: Path) -> None:
    """On loopback nobody is counted: the limits are for those who share."""
    settings = settings_in(tmp_path, rate_limit="1/hour")
    with client_of(shown_app(settings)) as client:
        assert [client.get(f"{API}/me").status_code for _ in range(3)] == [200] * 3


def test_limits_count_by_token() -> None:
    """Two tokens from one address are two callers; two strangers from it are one."""
    token = Caller("a", frozenset(), token_id="1", address="10.0.0.1")
    stranger = Caller("anonymous", frozenset(), address="10.0.0.1")
    assert token.key != stranger.key
    assert stranger.key == Caller("anonymous", frozenset(), address="10.0.0.1").key
    gate = Gate.of(settings_in(Path("unused"), rate_limit="1/hour"))
    gate.count(token, "GET")
    gate.count(stranger, "GET")


def test_tokens_by_command_line(tmp_path: Path) -> None:
    """Created, listed without its secret, revoked; wrong names and times are bad input."""
    place = ["--data-dir", str(tmp_path / "data")]
    made = call(["token", "create", "ci", "--scope", "submit", "--expires", "90d", *place])
    assert made.code == 0
    secret = made.out.strip()
    assert secret.startswith("pbt_")
    listed = call(["token", "list", "--json", *place])
    assert secret not in listed.out
    assert json.loads(listed.out)["tokens"][0]["state"] == "active"
    assert call(["token", "revoke", "ci", *place]).code == 0
    assert (
        json.loads(call(["token", "list", "--json", *place]).out)["tokens"][0]["state"] == "revoked"
    )
    for wrong in (
        ["create", "ci"], ["create", "a b"], ["create", "anonymous"], ["revoke", "nobody"],
        ["create", "x", "--expires", "soon"], ["create", "x", "--expires", "2001-01-01"],
        ["create", "x", "--rate-limit", "often"],
    ):  # fmt: skip
        assert call(["token", *wrong, *place]).code == 2, wrong


def test_logs_for_machines(tmp_path: Path) -> None:
    """Each request is an object of JSON with its id, route, status and who asked."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("perfbisect.access")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with guarded(tmp_path) as door:
            secret = door.secrets[Scope.READ]
            headers = {**bearer(secret), "X-Request-ID": "find-me"}
            door.client.get(f"{API}/bisections/{door.seed.id}?q=private", headers=headers)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    told = json.loads(stream.getvalue().splitlines()[-1])
    assert told["request_id"] == "find-me"
    assert told["caller"] == "a-read"
    assert (told["route"], told["status"]) == ("/api/v1/bisections/{bisection_id}", 200)
    assert secret not in stream.getvalue()
    assert "private" not in stream.getvalue()
