"""Experiments over REST, with a conductor in the service and scripted builds and runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.helpers.conducting import (
    PROJECT,
    FactorRunner,
    SmallRepository,
    make_conductor,
    make_factor_repository,
)

from perfbisect.api import create_app
from perfbisect.settings import Settings
from perfbisect.testing import ScriptedBuilder


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    return make_factor_repository(tmp_path / "repository", {3: 0.5}, 6)


@pytest.fixture
def client(tmp_path: Path, repository: SmallRepository) -> Iterator[TestClient]:
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    settings = Settings(
        data_dir=tmp_path / "data",
        project_dir=tmp_path,
        allowed_repositories=[str(repository.path)],
    )
    app = create_app(
        settings,
        make=lambda services: make_conductor(
            services, ScriptedBuilder(), FactorRunner(services), tmp_path
        ),
    )
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def wait_for(client: TestClient, path: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        answer: dict[str, Any] = client.get(path).json()
        if answer["state"] == "finished":
            return answer
        time.sleep(0.2)
    raise AssertionError(f"{path} did not finish")


def body(repository: SmallRepository, **options: Any) -> dict[str, Any]:
    arm = {"base": repository.shas[-1], "revert": [repository.shas[3]]}
    return {
        "repository": str(repository.path),
        "recipe": "scripted",
        "benchmark": "scripted",
        "arms": [arm],
        **options,
    }


def test_an_experiment_is_submitted_and_answered(
    client: TestClient, repository: SmallRepository
) -> None:
    """POST answers 202 with a location, where the answer appears; the list knows it too."""
    posted = client.post("/api/v1/experiments", json=body(repository))
    assert posted.status_code == 202
    answer = wait_for(client, posted.headers["Location"])
    assert answer["outcome"] == "answered"
    assert answer["arms"][1]["difference"] == "better"
    listed = client.get("/api/v1/experiments").json()["items"]
    assert [item["id"] for item in listed] == [answer["id"]]
    again = client.post(f"{posted.headers['Location']}/cancel")
    assert again.status_code == 409


def test_the_same_key_gives_the_same_experiment(
    client: TestClient, repository: SmallRepository
) -> None:
    """A repeated submission is one experiment; the key with another body is a conflict."""
    headers = {"Idempotency-Key": "once"}
    first = client.post("/api/v1/experiments", json=body(repository), headers=headers)
    second = client.post("/api/v1/experiments", json=body(repository), headers=headers)
    assert first.json()["id"] == second.json()["id"]
    other = body(repository, min_effect="5%")
    clash = client.post("/api/v1/experiments", json=other, headers=headers)
    assert clash.status_code == 409


def test_bad_experiments_are_problems_that_name_the_field(
    client: TestClient, repository: SmallRepository
) -> None:
    """Unknown repositories, unknown commits and unknown ids are told as problem+json."""
    unknown = client.post("/api/v1/experiments", json={**body(repository), "repository": "nowhere"})
    assert unknown.status_code == 422
    assert "repository" in unknown.text
    wrong = body(repository, arms=[{"base": "nonsense"}])
    assert client.post("/api/v1/experiments", json=wrong).status_code == 422
    missing = client.get("/api/v1/experiments/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"


def test_a_bisection_says_what_is_measured(client: TestClient, repository: SmallRepository) -> None:
    """Its repository, recipe, benchmark and bad end; its regressions, where they are minimised."""
    ends = {"good": repository.shas[0], "bad": repository.shas[-1], "prove": False}
    asked = {key: value for key, value in body(repository).items() if key != "arms"} | ends
    posted = client.post("/api/v1/bisections", json=asked)
    assert posted.status_code == 202, posted.text
    bisection = wait_for(client, posted.headers["Location"])["id"]
    arm = {"revert": [repository.shas[3]]}
    sent = client.post("/api/v1/experiments", json={"bisection": bisection, "arms": [arm]})
    assert sent.status_code == 202, sent.text
    tried = wait_for(client, sent.headers["Location"])
    assert [each["revision"].split()[0] for each in tried["arms"]] == [repository.shas[-1]] * 2
    assert tried["arms"][1]["difference"] == "better"
    whole = {"bisection": bisection, "minimise_reverts": True}
    sent = client.post("/api/v1/experiments", json=whole)
    answer = wait_for(client, sent.headers["Location"])
    assert answer["minimal"]["commits"] == [repository.shas[3]]


def test_what_no_bisection_can_say_is_asked_for(
    client: TestClient, repository: SmallRepository
) -> None:
    """No bisection and no base, an unknown bisection, and one without anything to do: by field."""
    unbased = body(repository, arms=[{"revert": [repository.shas[3]]}])
    unknown = {"bisection": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "minimise_reverts": True}
    for wrong, field in ((unbased, "arms"), ({}, "repository"), (unknown, "bisection")):
        answer = client.post("/api/v1/experiments", json=wrong)
        assert answer.status_code == 422
        assert field in answer.text
