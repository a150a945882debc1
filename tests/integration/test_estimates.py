"""Estimates: what a request will cost, told before it is submitted, by REST and by form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.helpers.conducting import PROJECT, SmallRepository, make_repository

from perfbisect.api import create_app
from perfbisect.settings import Settings


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    return make_repository(tmp_path / "repository", 60)


@pytest.fixture
def client(tmp_path: Path, repository: SmallRepository) -> Iterator[TestClient]:
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    settings = Settings(
        data_dir=tmp_path / "data",
        project_dir=tmp_path,
        allowed_repositories=[str(repository.path)],
    )
    with TestClient(create_app(settings, conductor=False), base_url="http://localhost") as client:
        yield client


def wanted(repository: SmallRepository) -> dict[str, str]:
    return {
        "repository": str(repository.path),
        "good": repository.shas[0],
        "bad": repository.shas[-1],
        "recipe": "scripted",
        "benchmark": "scripted",
    }


def test_an_estimate_follows_from_range_noise_and_size(
    client: TestClient, repository: SmallRepository
) -> None:
    """More noise costs more runs; nothing is stored; the assumptions are told."""
    body = {"bisection": wanted(repository), "trials": 4, "noise": "1%"}
    quiet = client.post("/api/v1/estimates", json=body)
    assert quiet.status_code == 200
    loud = client.post("/api/v1/estimates", json={**body, "noise": "5%"})
    assert loud.json()["runs"]["median"] > quiet.json()["runs"]["median"]
    assert quiet.json()["assumptions"]["commits"] == 60
    assert quiet.json()["sources"]["noise"] == "given"
    assert quiet.json()["sentence"].startswith("About ")
    assert client.get("/api/v1/bisections").json()["items"] == []


def test_the_form_shows_the_estimate_and_keeps_what_was_typed(
    client: TestClient, repository: SmallRepository
) -> None:
    """The button beside 'Start' answers with the form as it was and the estimate in words."""
    page = client.get("/new")
    found = re.search(r'name="(csrf[^"]*)" value="([^"]+)"', page.text)
    assert found is not None
    form = {**wanted(repository), found.group(1): found.group(2), "estimate": "yes"}
    answer = client.post("/new", data=form)
    assert answer.status_code == 200
    assert "About " in answer.text
    assert repository.shas[0] in answer.text
    assert client.get("/api/v1/bisections").json()["items"] == []


def test_a_wrong_estimate_request_names_the_field(
    client: TestClient, repository: SmallRepository
) -> None:
    """An unreadable step and an unknown revision are told as problems."""
    steps = {"bisection": wanted(repository), "steps": ["ten"]}
    assert client.post("/api/v1/estimates", json=steps).json()["field"] == "steps"
    bad = {"bisection": {**wanted(repository), "bad": "nonsense"}}
    assert client.post("/api/v1/estimates", json=bad).status_code == 422


@pytest.mark.parametrize(
    ("better", "find", "step"),
    [
        ("higher", "all", "-10%"),
        ("lower", "all", "+10%"),
        ("higher", "fix", "+10%"),
        ("lower", "fix", "-10%"),
    ],
)
def test_the_change_that_is_assumed_is_one_that_is_looked_for(
    client: TestClient,
    repository: SmallRepository,
    tmp_path: Path,
    better: str,
    find: str,
    step: str,
) -> None:
    """Seconds get worse by rising; where a fix is looked for, the later end is the better one."""
    named_too = f'[benchmark.scripted]\nbetter = "{better}"'
    project = PROJECT.replace("[benchmark.scripted]", named_too)
    (tmp_path / "perfbisect.toml").write_text(project)
    ends = ("good", "bad") if find == "all" else ("bad", "good")
    named = dict(zip(ends, (repository.shas[0], repository.shas[-1]), strict=True))
    asked = {**wanted(repository), **named, "find": find}
    body = {"bisection": asked, "trials": 4, "noise": "1%"}
    told = client.post("/api/v1/estimates", json=body).json()
    assert f"for {step} among" in told["sentence"]
    assert told["outcomes"] == {"culprits": 4}
