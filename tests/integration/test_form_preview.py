"""The form says what revisions are before anything is submitted, and its switches are checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fastapi.testclient import TestClient
from tests.helpers.conducting import PROJECT, SmallRepository, make_repository
from tests.helpers.serving import API, client_of, opened, settings_in, shown_app

from perfbisect.definitions import remember_repository
from perfbisect.history import open_mirror
from perfbisect.web.form_values import form_address

BAZEL = '\n[recipe.tree]\nkind = "bazel"\ndocker = false\n'


@dataclass
class Form:
    client: TestClient
    repository: SmallRepository

    def typed(self, **changes: str) -> dict[str, str]:
        """Return the form over the whole history."""
        shas = self.repository.shas
        return {
            "repository": str(self.repository.path / ".git"),
            "good": shas[0],
            "bad": shas[-1],
            "recipe": "tree",
            "benchmark": "scripted",
            "find": "all",
        } | changes

    def preview(self, **changes: str) -> str:
        return self.client.get("/new/range", params=self.typed(**changes)).text


@pytest.fixture(scope="module")
def form(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Form]:
    """A service that knows a repository of ten commits after the first."""
    place = tmp_path_factory.mktemp("form")
    repository = make_repository(place / "repository", 10)
    (place / "perfbisect.toml").write_text(PROJECT + BAZEL)
    settings = settings_in(place, project_dir=place)
    with opened(settings) as services:
        source = str(repository.path / ".git")
        open_mirror(source, settings.mirrors_dir)
        with services.database.write() as session:
            remember_repository(session, source)
        with client_of(shown_app(settings)) as client:
            yield Form(client, repository)


def test_the_range_is_counted(form: Form) -> None:
    """Both ends are shown with their subjects, and how many commits lie between them."""
    text = form.preview()
    assert f"<strong>{len(form.repository.shas) - 1} commits</strong> between them" in text
    assert form.repository.shas[0][:10] in text
    assert "commit 1" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"good": "no-such"}, "no-such"),
        ({"good": "HEAD", "bad": "HEAD~3"}, "does not lie before"),
        ({"good": "HEAD"}, "same commit"),
        ({"good": "HEAD", "bad": "HEAD~3", "find": "fix"}, "3 commits"),
        ({"repository": "elsewhere"}, "does not know that repository"),
        ({"good": "--upload-pack=id"}, "--upload-pack=id"),
    ],
)
def test_what_is_typed_is_judged(form: Form, changes: dict[str, str], said: str) -> None:
    """Unknown revisions, ends the wrong way round and unknown repositories are said at once."""
    assert said in form.preview(**changes)


@pytest.mark.parametrize(
    ("options", "recipe", "said"),
    [
        ({"tensorrt": True}, "tree", "TensorRT needs CUDA"),
        ({"cuda": True}, "scripted", "no options to turn on or off"),
        ({"speed": True}, "tree", "recipe_options"),
        ({"cuda": "maybe"}, "tree", "recipe_options.cuda"),
    ],
)
def test_nonsense_of_switches_is_refused(
    form: Form, options: dict[str, object], recipe: str, said: str
) -> None:
    """Options that a recipe has not, or that contradict each other, are 422 with their field."""
    body = {**form.typed(recipe=recipe), "recipe_options": options}
    answer = form.client.post(f"{API}/bisections", json=body)
    assert answer.status_code == 422
    assert said in answer.text
    assert answer.json()["field"].startswith("recipe_options")


def test_switches_make_another_recipe(form: Form) -> None:
    """A switch by form is part of what is asked, and leads back into the form for a rerun."""
    form.client.get("/new")
    token = {"csrf_token": form.client.cookies["perfbisect_csrf"]}
    typed = form.typed(option_xla="on", option_cuda="off")
    answer = form.client.post("/new", data={**typed, **token})
    assert answer.status_code == 303, answer.text
    wrong = form.client.post("/new", data={**typed, **token, "option_tensorrt": "on"})
    assert wrong.status_code == 422
    assert "TensorRT needs CUDA" in wrong.text
    again = form_address({**typed, "recipe_options": {"xla": True, "cuda": False}, "prove": False})
    filled = form.client.get(again).text
    assert 'name="option_xla" value="on" checked' in filled
    assert 'name="option_cuda" value="off" checked' in filled
    assert 'id="f-prove" name="prove" value="yes">' in filled
    assert (
        "--recipe-option xla=on"
        in form.client.get(f"{API}{answer.headers['location']}/report?format=md").text
    )
