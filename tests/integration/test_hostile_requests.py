"""Requests of somebody who may submit and wants more: refused, and nothing of them is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.helpers.conducting import PROJECT, SmallRepository, make_repository
from tests.helpers.serving import API, client_of, settings_in, shown_app


class Door:
    """A service that knows one repository, and somebody who may submit to it."""

    def __init__(self, client: TestClient, repository: SmallRepository, proof: Path) -> None:
        self.client = client
        self.repository = repository
        self.proof = proof

    def body(self, **changes: object) -> dict[str, Any]:
        return {
            "repository": str(self.repository.path),
            "good": self.repository.shas[0],
            "bad": self.repository.shas[-1],
            "recipe": "scripted",
            "benchmark": "scripted",
        } | changes

    def stored(self) -> list[Any]:
        found: list[Any] = self.client.get(f"{API}/bisections").json()["items"]
        return found


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    root = tmp_path_factory.mktemp("door")
    repository = make_repository(root / "repository", 4)
    (root / "perfbisect.toml").write_text(PROJECT)
    settings = settings_in(root, project_dir=root, allowed_repositories=[str(repository.path)])
    with client_of(shown_app(settings)) as client:
        yield Door(client, repository, root / "run")


REPOSITORIES = [
    "ext::sh -c touch% {proof}",
    "file://{repository}",
    "{repository}/../repository",
    "{repository}/",
    "/etc",
    "--upload-pack=touch {proof}",
    "-u{proof}",
    "https://169.254.169.254/latest",
    "http://localhost:9/x.git",
    "git@localhost:x.git",
    "ssh://-oProxyCommand=touch%20{proof}/x",
    "https://host.example/\x1b[2J",
    "https://host.example/\u202egit.x",
]


@pytest.mark.parametrize("text", REPOSITORIES)
@pytest.mark.parametrize("route", ["bisections", "experiments", "estimates"])
def test_only_known_repositories_are_taken(door: Door, text: str, route: str) -> None:
    """Whatever else is named is neither fetched nor run, by any route that takes a repository."""
    named = text.format(proof=door.proof, repository=door.repository.path)
    body = door.body(repository=named)
    if route == "experiments":
        body = {key: body[key] for key in ("repository", "recipe", "benchmark")}
        body["arms"] = [{"base": "HEAD"}]
    answer = door.client.post(f"{API}/{route}", json=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert "\x1b" not in answer.text
    assert door.stored() == []
    assert not door.proof.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"good": "--output={proof}"},
        {"bad": "-c core.pager={proof}"},
        {"good": "HEAD\n--all"},
        {"good": "HEAD\x00"},
        {"bad": "\u202eHEAD"},
        {"good": "x" * 2001},
        {"paths": ["a\x1b[2J"]},
        {"paths": ["../../etc"]},
        {"paths": ["a"] * 101},
        {"paths": ["a" * 2001]},
        {"recipe": "../../etc/passwd"},
        {"recipe": "/etc/passwd.toml"},
        {"recipe": "r" * 2001},
        {"recipe": {"name": "x", "kind": "command", "command": "touch {proof}"}},
        {"benchmark": {"name": "x", "command": "touch {proof}", "unit": "s"}},
        {"benchmark": "perfbisect.toml#scripted"},
        {"carry": ["--- a/x\n+++ b/x\n"]},
        {"carry_pick": ["--output={proof}"]},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x" * 10_001}},
        {"env": {f"A{n}": "x" for n in range(101)}},
        {"package": "../x"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_values_that_want_more_than_a_value(door: Door, changes: dict[str, object]) -> None:
    """Options, paths of the server, definitions, and what is too long or too much are refused."""
    proof = str(door.proof)
    answer = door.client.post(
        f"{API}/bisections", content=json.dumps(door.body(**changes)).replace("{proof}", proof)
    )
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert door.stored() == []
    assert not door.proof.exists()


@pytest.mark.parametrize("place", ["arms", "against", "carry"])
def test_patches_are_code_of_the_requester(door: Door, place: str) -> None:
    """Where definitions are off, so are patches, wherever an experiment takes one."""
    body: dict[str, Any] = {
        name: door.body()[name] for name in ("repository", "recipe", "benchmark")
    }
    text = "--- a/x\n+++ b/x\n"
    arm: dict[str, Any] = {"base": "HEAD"}
    changed: dict[str, dict[str, Any]] = {
        "arms": {"arms": [arm, {**arm, "patch": [text]}]},
        "against": {"arms": [arm], "against": {**arm, "patch": [text]}},
        "carry": {"arms": [arm], "carry": [text]},
    }
    answer = door.client.post(f"{API}/experiments", json=body | changed[place])
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].startswith(place)
    assert "PERFBISECT_ALLOW_INLINE" in answer.text


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"good": ' + b"9" * 10_000 + b"}", b"\xff\xfe", b"null", b'{"good": NaN}'],
)
def test_bodies_that_are_made_to_break_the_reader(door: Door, content: bytes) -> None:
    """Endless brackets, numbers and no text at all get a problem, not a mistake of ours."""
    for route in ("bisections", "experiments", "alerts/alertmanager", "alerts/generic"):
        headers = {"content-type": "application/json"}
        answer = door.client.post(f"{API}/{route}", content=content, headers=headers)
        assert 400 <= answer.status_code < 500, (route, answer.status_code, answer.text[:300])


def test_a_body_without_end_is_cut_off(door: Door) -> None:
    """A body that declares no length is refused once it outgrows the limit."""

    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    answer = door.client.post(f"{API}/bisections", content=chunks())
    assert answer.status_code == 413


def test_where_containers_are_required_nothing_runs_without(tmp_path: Path) -> None:
    """A recipe of the machine itself is refused where the settings want containers."""
    repository = make_repository(tmp_path / "repository", 4)
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    settings = settings_in(
        tmp_path,
        project_dir=tmp_path,
        allowed_repositories=[str(repository.path)],
        require_containers=True,
    )
    with client_of(shown_app(settings)) as client:
        asked = Door(client, repository, tmp_path / "run")
        answer = client.post(f"{API}/bisections", json=asked.body())
        assert answer.status_code == 422
        assert "PERFBISECT_REQUIRE_CONTAINERS" in answer.json()["detail"]
        assert asked.stored() == []
