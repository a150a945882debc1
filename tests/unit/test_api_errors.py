"""Errors look alike everywhere, and the doors are shut to foreign pages and large bodies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.helpers.serving import API, Site, client_of, settings_in, shown_app

from perfbisect.core.states import Outcome
from perfbisect.security import allowed_hosts

ID = "01JZ0Q6W9N3V5C4S7T8R2X1Y0A"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A service with an empty database."""
    with client_of(shown_app(settings_in(tmp_path))) as client:
        yield client


def problem(answer: Any, status: int) -> dict[str, Any]:
    """Check that an answer is a problem of this status, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["type"].startswith("urn:perfbisect:problem:")
    assert body["title"]
    assert body["detail"]
    return body


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"/bisections/{ID}", "bisection_id"),
        ("/bisections/nonsense", "bisection_id"),
        (f"/bisections/{ID}/points", "bisection_id"),
        (f"/bisections/{ID}/chart", "bisection_id"),
        (f"/bisections/{ID}/decisions", "bisection_id"),
        (f"/bisections/{ID}/events", "bisection_id"),
        (f"/bisections/{ID}/report", "bisection_id"),
        (f"/builds/{ID}/log", "build_id"),
        (f"/runs/{ID}/log", "run_id"),
        ("/builds/..%2f..%2fetc%2fpasswd/log", None),
    ],
)
def test_what_is_not_there_is_a_problem_with_its_field(
    client: TestClient, path: str, field: str | None
) -> None:
    """Unknown ids give 404 and name the field; nothing is read from the disk by a made-up id."""
    body = problem(client.get(API + path), 404)
    assert body.get("field") == field


def test_wrong_methods_say_which_are_right(client: TestClient) -> None:
    """A wrong method is a problem, and the answer says what is allowed."""
    answer = client.delete(f"{API}/bisections")
    problem(answer, 405)
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=asleep", "query.state"),
        ("limit=0", "query.limit"),
        ("limit=many", "query.limit"),
        ("after=%00", "query.after"),
        ("q=%00", "query.q"),
    ],
)
def test_wrong_parameters_are_named(client: TestClient, query: str, field: str) -> None:
    """A parameter that can't be right is named in the problem."""
    body = problem(client.get(f"{API}/bisections?{query}"), 422)
    assert body["field"] == field
    assert [each["field"] for each in body["errors"]] == [field]


@pytest.mark.parametrize("path", ["/bisections", "/experiments", "/points"])
@pytest.mark.parametrize("bound", ["since", "until"])
@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00"])
def test_moments_that_utc_has_not_are_named(
    client: TestClient, path: str, bound: str, moment: str
) -> None:
    """A moment that only another time zone has is refused, also before an export begins."""
    body = problem(client.get(f"{API}{path}?{bound}={moment}"), 422)
    assert body["field"] == f"query.{bound}"
    if path == "/points":
        problem(client.get(f"{API}{path}?{bound}={moment}&format=csv"), 422)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"good": None}, "good"),
        ({"unheard": 1}, "unheard"),
        ({"confidence": 2}, "confidence"),
        ({"good": "a\x00b"}, "good"),
        ({"repository": "/etc"}, "repository"),
        ({"repository": "https://example.org/unknown.git"}, "repository"),
        ({"recipe": {"name": "x", "kind": "command", "command": "id"}}, "recipe"),
        ({"benchmark": "../../etc/passwd.toml"}, "benchmark"),
        ({"recipe": "evil.toml#x"}, "recipe"),
    ],
)
def test_submissions_that_cannot_be_right_are_refused(
    site: Site, changes: dict[str, Any], field: str
) -> None:
    """A wrong or forbidden field of a submission is named, and nothing is stored."""
    body = {
        "repository": "framework",
        "good": "a",
        "bad": "b",
        "recipe": "tf2-cuda10",
        "benchmark": "resnet50-train-cpu",
    }
    sent = {key: value for key, value in (body | changes).items() if value is not None}
    answer = problem(site.client.post(f"{API}/bisections", json=sent), 422)
    assert answer["field"] == field
    assert len(site.json("/bisections")["items"]) == 2


def test_bodies_that_are_no_json_are_refused(client: TestClient) -> None:
    """Broken JSON is a problem, and so is a form where JSON is wanted."""
    headers = {"content-type": "application/json"}
    problem(client.post(f"{API}/bisections", content=b"{", headers=headers), 422)
    problem(client.post(f"{API}/bisections", data={"good": "a"}), 422)


def chunks() -> Iterator[bytes]:
    """Yield 2 MB without saying so beforehand."""
    for _ in range(20):
        yield b" " * 100_000


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies_are_refused(client: TestClient, declared: bool) -> None:
    """A body beyond the limit is refused, whether its length is declared or not."""
    content = b"".join(chunks()) if declared else chunks()
    headers = {"content-type": "application/json"}
    problem(client.post(f"{API}/bisections", content=content, headers=headers), 413)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_sites_cannot_act(site: Site, headers: dict[str, str]) -> None:
    """A page of another site can neither cancel nor submit through a visitor's browser."""
    path = f"{API}/bisections/{site.running.id}/cancel"
    problem(site.client.post(path, headers=headers), 403)
    assert site.json(f"/bisections/{site.running.id}")["cancel_requested_at"] is None


def test_foreign_host_names_are_refused(client: TestClient) -> None:
    """A service on loopback does not answer to names that were pointed at it."""
    problem(client.get(f"{API}/bisections", headers={"Host": "rebound.example:8080"}), 421)
    assert client.get(f"{API}/bisections", headers={"Host": "127.0.0.1:8080"}).status_code == 200


def test_hosts_follow_the_settings() -> None:
    """Loopback answers to loopback names, other addresses to any name, settings rule both."""
    assert "localhost" in (allowed_hosts("127.0.0.1", []) or ())
    assert allowed_hosts("0.0.0.0", []) is None
    assert allowed_hosts("0.0.0.0", ["Bisect.example"]) == frozenset({"bisect.example"})


def test_every_answer_has_its_headers(site: Site) -> None:
    """Pages, API, files and errors alike forbid inline scripts and framing, and carry an id."""
    for path in ("/", f"{API}/bisections", "/static/style.css", "/nowhere", f"{API}/nowhere"):
        answer = site.client.get(path, headers={"X-Request-ID": "mine-1"})
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"] == "mine-1"


def failing_app(tmp_path: Path) -> FastAPI:
    """Return a service with a route that has a mistake."""
    app = shown_app(settings_in(tmp_path))

    @app.get("/api/v1/mistake")
    @app.get("/mistake")
    def mistake() -> None:
        raise RuntimeError("secret detail")

    return app


def test_mistakes_of_ours_tell_nothing_but_where_to_look(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen error is a 500 with the request's id; its cause is in the log only."""
    with client_of(failing_app(tmp_path)) as client:
        answer = client.get(f"{API}/mistake", headers={"X-Request-ID": "find-me"})
        body = problem(answer, 500)
        assert "find-me" in body["detail"]
        assert "secret" not in answer.text
        page = client.get("/mistake", headers={"Accept": "text/html"})
        assert page.status_code == 500
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["content-security-policy"]
    assert "secret detail" in caplog.text
    assert "find-me" in caplog.text


def test_people_get_pages_and_programs_get_problems(client: TestClient) -> None:
    """The same mistake is a page for a browser and a problem for a program."""
    page = client.get(f"/bisections/{ID}", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "no bisection" in page.text
    problem(client.get(f"/bisections/{ID}", headers={"Accept": "application/json"}), 404)


def test_every_outcome_is_a_filter(client: TestClient) -> None:
    """Each outcome there is can be filtered by."""
    for outcome in Outcome:
        assert client.get(f"{API}/bisections?outcome={outcome}").json()["items"] == []
