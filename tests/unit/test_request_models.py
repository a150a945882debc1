"""Which combinations of repository, package and recipe may be asked for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from perfbisect.request_models import BisectionRequest

ENDS = {"good": "1", "bad": "2", "benchmark": "speed"}


@pytest.mark.parametrize(
    "given",
    [
        {"repository": "r", "recipe": "x"},
        {"repository": "r", "recipe": {"kind": "command"}, "paths": ["src"]},
        {"package": "p"},
        {"package": "p", "prereleases": True},
        {"package": "p", "repository": "r", "recipe": "x", "all_parents": True},
        {"package": "p", "bisect_companion": "models", "at": "1.0", "paths": ["official"]},
        {"repository": "r", "recipe": "x", "bisect_companion": "models", "at": "v1"},
        {"package": "p", "env": {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}},
    ],
)
def test_what_makes_an_axis(given: dict[str, Any]) -> None:
    """Commits, versions, and commits with nightlies; stored requests read back as they were."""
    request = BisectionRequest.model_validate({**ENDS, **given})
    assert BisectionRequest.model_validate(request.model_dump(mode="json")) == request


@pytest.mark.parametrize(
    ("given", "field", "kind"),
    [
        ({}, "repository", "missing"),
        ({"recipe": "x"}, "repository", "missing"),
        ({"repository": "r"}, "recipe", "missing"),
        ({"repository": "r", "package": "p"}, "recipe", "missing"),
        ({"package": "p", "recipe": "x"}, "recipe", "no_repository"),
        ({"package": "p", "paths": ["src"]}, "paths", "no_repository"),
        ({"package": "p", "all_parents": True}, "all_parents", "no_repository"),
        ({"repository": "r", "recipe": "x", "prereleases": False}, "prereleases", "no_package"),
        (
            {"package": "p", "repository": "r", "recipe": "x", "prereleases": True},
            "prereleases",
            "no_package",
        ),
        ({"package": ""}, "package", "string_too_short"),
        ({"package": "p", "bisect_companion": "models"}, "at", "missing"),
        ({"package": "p", "at": "1.0"}, "at", "no_companion"),
    ],
)
def test_what_does_not(given: dict[str, Any], field: str, kind: str) -> None:
    """The first error names the field that is wrong, and how."""
    with pytest.raises(ValidationError) as caught:
        BisectionRequest.model_validate({**ENDS, **given})
    first = caught.value.errors()[0]
    assert (first["loc"], first["type"]) == ((field,), kind)


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "A\n", "LD-X"])
def test_variables_are_named_like_variables(name: str) -> None:
    """What no shell would take as a variable's name is refused."""
    with pytest.raises(ValidationError):
        BisectionRequest.model_validate({**ENDS, "package": "p", "env": {name: "x"}})


@pytest.mark.parametrize("url", ["https://user:t0ken@host/x", "https://t0ken@host/x"])
def test_credentials_in_a_url_are_refused(url: str) -> None:
    """A URL with a secret is refused with what to do instead, and the secret is not repeated."""
    with pytest.raises(ValidationError) as caught:
        BisectionRequest(repository=url, good="a", bad="b", recipe="r", benchmark="m")
    told = [error["msg"] for error in caught.value.errors()]
    assert len(told) == 1
    assert "credential helper" in told[0]
    assert "t0ken" not in told[0]


def test_a_wrong_repository_is_all_that_is_said() -> None:
    """An empty repository does not make the recipe look wrong as well."""
    with pytest.raises(ValidationError) as caught:
        BisectionRequest(repository="", good="a", bad="b", recipe="r", benchmark="m")
    assert [error["loc"] for error in caught.value.errors()] == [("repository",)]
