"""Submitting over HTTP to a service that conducts: scripted builds and runs, a real repository."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.helpers.conducting import PROJECT, SmallRepository, make_conductor, make_repository
from tests.helpers.serving import API, client_of, settings_in

from perfbisect.api import create_app
from perfbisect.conductor import Conductor
from perfbisect.services import Services
from perfbisect.testing import ScriptedBuilder, ScriptedRunner


@dataclass
class Conducted:
    client: TestClient
    repository: SmallRepository

    def body(self, **changes: object) -> dict[str, Any]:
        """Return a request over the whole history."""
        return {
            "repository": str(self.repository.path),
            "good": self.repository.shas[0],
            "bad": self.repository.shas[-1],
            "recipe": "scripted",
            "benchmark": "scripted",
        } | changes

    def submit(self, key: str | None = None, **changes: object) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.client.post(f"{API}/bisections", json=self.body(**changes), headers=headers)

    def events(self, bisection_id: str) -> str:
        """Follow a bisection to its end."""
        return self.client.get(f"{API}/bisections/{bisection_id}/events").text


@pytest.fixture
def conducted(tmp_path: Path) -> Iterator[Conducted]:
    """A service whose runs are fast, and whose 12th commit halves the value."""
    repository = make_repository(tmp_path / "repository", 20)
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    settings = settings_in(
        tmp_path, project_dir=tmp_path, allowed_repositories=[str(repository.path)]
    )

    def value(sha: str) -> float:
        return 9000.0 if repository.position(sha) < 12 else 4500.0

    def make(services: Services) -> Conductor:
        return make_conductor(services, ScriptedBuilder(), ScriptedRunner(value), tmp_path)

    with client_of(create_app(settings, make=make)) as client:
        yield Conducted(client, repository)


def test_a_submission_runs_in_the_background_to_its_verdict(conducted: Conducted) -> None:
    """POST answers at once with where to look; events end with the verdict, which is right."""
    answer = conducted.submit()
    assert answer.status_code == 202, answer.text
    verdict = answer.json()
    assert verdict["outcome"] is None
    assert answer.headers["location"] == f"{API}/bisections/{verdict['id']}"
    events = conducted.events(verdict["id"])
    assert "event: finished" in events
    done = conducted.client.get(answer.headers["location"]).json()
    assert done["outcome"] == "culprits"
    assert [c["commits"] for c in done["culprits"]] == [[conducted.repository.shas[12]]]
    assert done["culprits"][0]["verified"]
    chart = conducted.client.get(f"{answer.headers['location']}/chart").json()
    assert len(chart["points"]["value"]) == done["points"]
    assert conducted.client.get("/readyz").json()["checks"]["conductor"] == "ok"


def test_the_same_key_gives_the_same_bisection(conducted: Conducted) -> None:
    """A repeated key with the same body starts nothing new; with another body it is a conflict."""
    first = conducted.submit("key-1").json()
    again = conducted.submit("key-1")
    assert (again.status_code, again.json()["id"]) == (202, first["id"])
    other = conducted.submit("key-1", min_effect="5%")
    assert other.status_code == 409
    assert other.json()["field"] == "Idempotency-Key"
    assert conducted.submit("key-2").json()["id"] != first["id"]


def test_the_same_key_at_the_same_time_gives_one_bisection(conducted: Conducted) -> None:
    """Two clients that send one key at once get one bisection."""
    start = threading.Barrier(4)

    def send() -> Any:
        start.wait()
        return conducted.submit("together")

    with ThreadPoolExecutor(4) as pool:
        answers = [future.result() for future in [pool.submit(send) for _ in range(4)]]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_a_rerun_is_the_same_request_with_changes(conducted: Conducted) -> None:
    """Asked for again with changes, it is a new bisection; with the same key, the same new one."""
    first = conducted.submit().json()
    path = f"{API}/bisections/{first['id']}/rerun"
    body, headers = {"changes": {"min_effect": "5%", "prove": None}}, {"Idempotency-Key": "again"}
    answers = [conducted.client.post(path, json=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    second = answers[0].json()
    assert second["id"] == answers[1].json()["id"] != first["id"]
    assert second["good"]["revision"] == first["good"]["revision"]
    assert "5%" in conducted.client.get(f"/bisections/{second['id']}").text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"good": "no-such-revision"}, "good"),
        ({"recipe": "scriptd"}, "recipe"),
        ({"benchmark": "no-such"}, "benchmark"),
        ({"threshold": "lots"}, "threshold"),
        ({"min_effect": "300%"}, "min_effect"),
        ({"max_time": "soon"}, "max_time"),
        ({"good": "--upload-pack=id"}, "good"),
    ],
)
def test_what_cannot_be_right_is_said_before_anything_runs(
    conducted: Conducted, changes: dict[str, str], field: str
) -> None:
    """Unknown revisions, names and unreadable numbers are 422 with the field; nothing is stored."""
    answer = conducted.submit(**changes)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert conducted.client.get(f"{API}/bisections").json()["items"] == []


def test_the_form_submits_too(conducted: Conducted) -> None:
    """The form leads to the page of the new bisection, which was asked for by form."""
    client = conducted.client
    client.get("/new")
    token = client.cookies["perfbisect_csrf"]
    answer = client.post("/new", data={**conducted.body(), "csrf_token": token})
    assert answer.status_code == 303, answer.text
    page = client.get(answer.headers["location"])
    assert page.status_code == 200
    bisection_id = answer.headers["location"].rpartition("/")[2]
    assert client.get(f"{API}/bisections/{bisection_id}").json()["origin"] == "form"
    conducted.events(bisection_id)
    assert "is a regression" in client.get(answer.headers["location"]).text
    commit = client.get(f"{answer.headers['location']}/commits/12").text
    assert '<span class="d-add">+12</span>' in commit
    assert f"--bad {conducted.repository.shas[12]}" in commit
