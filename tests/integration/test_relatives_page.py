"""The page that says where a commit has gone, on a real repository."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select
from tests.helpers.conducting import open_services
from tests.helpers.repositories import Workshop
from tests.helpers.serving import client_of, shown_app

from perfbisect.request_models import BisectionRequest
from perfbisect.settings import Settings
from perfbisect.store.tables import CandidateRow
from perfbisect.submission import submit


def _lines(*changed: int, word: str = "new") -> str:
    return "\n".join(word if n in changed else f"line {n}" for n in range(30)) + "\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """master with a change, its revert, and a later change; copies of it on two branches."""
    made = Workshop(tmp_path_factory.mktemp("relatives") / "source")
    made.commit("Begin", {"f": _lines()})
    made.git("branch", "r1")
    made.git("branch", "r2")
    change = made.commit("Change <b>line 5</b>", {"f": _lines(5)})
    made.git("tag", "v1")
    made.commit(f'Revert "Change"\n\nThis reverts commit {change}.', {"f": _lines()})
    made.commit("Something else", {"g": "g\n"})
    made.switch("r1")
    made.commit("Release 1", {"version": "1\n"})
    made.git("cherry-pick", change)
    made.switch("r2")
    made.commit("Change <b>line 5</b>", {"f": _lines(5, word="resolved by hand")})
    made.switch("master")
    return made


@pytest.fixture(scope="module")
def client(shop: Workshop) -> Iterator[TestClient]:
    directory = shop.path.parent
    services = open_services(directory)
    request = BisectionRequest(
        repository=str(shop.path),
        good=shop.git("rev-parse", "master~3"),
        bad="master",
        recipe="scripted",
        benchmark="scripted",
    )
    submit(
        services,
        request,
        requested_by="tester",
        origin="command line",
        base_dir=directory,
        allow_local=True,
    )
    services.close()
    with client_of(shown_app(Settings(data_dir=directory / "data"))) as client:
        yield client


@pytest.fixture
def path(shop: Workshop, client: TestClient) -> str:
    """Address of the changed commit's page."""
    services = open_services(shop.path.parent)
    sha = shop.git("rev-parse", "v1")
    with services.database.read() as session:
        (row,) = session.scalars(select(CandidateRow).where(CandidateRow.sha == sha))
    services.close()
    return f"/bisections/{row.bisection_id}/commits/{row.position}"


def text_of(client: TestClient, path: str) -> str:
    answer = client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 200
    return " ".join(answer.text.split())


def test_relatives_branches_and_tags_are_told(client: TestClient, path: str) -> None:
    """Who reverted it and which branches and tags contain it; the commit's page leads there."""
    assert f'href="{path}/relatives"' in text_of(client, path)
    page = text_of(client, f"{path}/relatives")
    assert "reverted by" in page
    assert "cherry picked as" in page
    assert "<h2>1 branch with it</h2>" in page
    assert '<li class="mono">master</li>' in page
    assert '<li class="mono">v1</li>' in page
    assert "Change &lt;b&gt;line 5&lt;/b&gt;" in page
    assert "<b>line 5" not in page


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        ("r1", "The patches are equal."),
        ("r2", "Its subject is the same and it touches some of the same files"),
        ("master", "contains this very commit"),
        ("v1", "contains this very commit"),
        ("nothing-like-it", "nothing-like-it"),
        ("--output=x", "--output=x"),
    ],
)
def test_a_counterpart_is_found_on_request(
    client: TestClient, path: str, branch: str, words: str
) -> None:
    """Equal patches are certain, equal subjects likely; what is no branch is said to be none."""
    page = client.get(f"{path}/relatives", params={"branch": branch})
    assert page.status_code == 200
    assert words in " ".join(page.text.split())
    # The commit on r2 stands among the relatives in any case.
    assert page.text.count("likely</span>") == 1 + (branch == "r2")
    assert ("Problem:" in page.text) == (branch in ("nothing-like-it", "--output=x"))


def test_an_unknown_position_is_not_found(client: TestClient, path: str) -> None:
    """A position beyond the axis has no relatives: 404, not an error of ours."""
    assert client.get(f"{path.rpartition('/')[0]}/99/relatives").status_code == 404
