from __future__ import annotations

import json
from typing import Any

import pytest

from perfbisect.config_values import (
    benchmark_from_dict,
    benchmark_to_dict,
    recipe_from_dict,
    recipe_to_dict,
)
from perfbisect.core.recipe import Benchmark, Metric, ReaderKind, Recipe, RecipeKind, Take
from perfbisect.core.states import Better
from perfbisect.errors import BadInputError

RECIPE: dict[str, Any] = {"name": "r", "kind": "bazel"}
BENCHMARK: dict[str, Any] = {
    "name": "b",
    "command": "{python} b.py",
    "metric": {"pattern": "v=(.*)"},
    "unit": "s",
}


def test_recipe_round_trip_through_json() -> None:
    """A recipe survives JSON unchanged, so its digest does too."""
    recipe = Recipe(
        name="r",
        kind=RecipeKind.COMMAND,
        command="make {out}",
        copt=("-O2", "-g"),
        env={"A": "1"},
        tf_api_version=2,
        relevance={"docs/**": 0.1},
        timeout=12.5,
    )
    again = recipe_from_dict(json.loads(json.dumps(recipe_to_dict(recipe))))
    assert again == recipe
    assert again.digest == recipe.digest


def test_benchmark_round_trip_through_json() -> None:
    """A benchmark survives JSON unchanged, its metric included."""
    benchmark = Benchmark(
        name="b",
        command="{python} b.py",
        metric=Metric(reader=ReaderKind.JSON, path="a.0", take=Take.MIN, skip=2, file="o.json"),
        unit="s",
        better=Better.LOWER,
        files=("b.py",),
        docker=True,
        image="debian:12",
        gpus=2,
    )
    again = benchmark_from_dict(json.loads(json.dumps(benchmark_to_dict(benchmark))))
    assert again == benchmark
    assert again.digest({"b.py": "0"}) == benchmark.digest({"b.py": "0"})


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"marsh": "x"}, "marsh", "unknown key 'marsh' (did you mean 'march'?)"),
        ({"zzz": 1}, "zzz", "unknown key 'zzz'; known: action_env, artifacts"),
        (
            {"kind": "bazl"},
            "kind",
            "one of 'bazel', 'pip-wheel' or 'command' (did you mean 'bazel'?)",
        ),
        ({"cuda": "yes"}, "cuda", "cuda = 'yes' should be true or false"),
        ({"copt": "-O2"}, "copt", "copt = '-O2' should be a list"),
        ({"copt": ["-O2", 3]}, "copt[1]", "copt[1] = 3 should be text"),
        ({"env": {"A": 1}}, "env.A", "env.A = 1 should be text"),
        ({"env": {"A B": "1"}}, "env", "named like a variable"),
        ({"env": {"A": "1\0"}}, "env", "NUL"),
        ({"tf_api_version": 2.5}, "tf_api_version", "a whole number"),
        ({"as_of": "later"}, "as_of", "one of 'commit' or 'now'"),
        ({"timeout": "soon"}, "timeout", "timeout: 'soon' is not a duration"),
        ({"timeout": 0}, "timeout", "timeout: 0 is not a duration"),
        ({"kind": "command"}, "command", "the shell command that builds"),
        ({"subdirectory": "../up"}, "subdirectory", "inside the repository"),
        ({"artifacts": ["/etc/*"]}, "artifacts", "inside the tree"),
        ({"toolchain": "../x"}, "toolchain", "a Dockerfile's name"),
        ({"build_requirements": ["--index-url=x"]}, "build_requirements", "a requirement like"),
        ({"march": "x y"}, "march", "march"),
        ({"memory": "lots"}, "memory", "a size like"),
        ({"cpus": -1.0}, "cpus", "zero or more"),
        ({"relevance": {"docs/**": 0.0}}, "relevance.docs/**", "greater than zero"),
        ({"name": "a/b"}, "name", "letters, digits"),
    ],
)
def test_wrong_recipes(change: dict[str, Any], key: str, says: str) -> None:
    """Each mistake is answered with the key, its value and what would be right."""
    with pytest.raises(BadInputError) as caught:
        recipe_from_dict({**RECIPE, **change}, "r.toml: recipe 'r'")
    assert says in caught.value.message
    assert key in caught.value.field
    assert caught.value.message.startswith("r.toml: recipe 'r'")


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"comand": "x"}, "comand", "did you mean 'command'?"),
        ({"metric": {"patern": "(x)"}}, "metric.patern", "did you mean 'pattern'?"),
        ({"metric": {"reader": "regx"}}, "metric.reader", "did you mean 'regex'?"),
        ({"metric": "fast"}, "metric", "a table of keys and values"),
        ({"metric": {"pattern": "(x)", "skip": -1}}, "skip", "zero or more"),
        ({"metric": {"pattern": "(x"}}, "pattern", "a valid regular expression"),
        ({"metric": {"pattern": "x"}}, "pattern", "with one group"),
        ({"metric": {"pattern": "(x)(y)"}}, "pattern", "with one group"),
        ({"metric": {}}, "pattern", "a regular expression with one group"),
        ({"metric": {"reader": "json"}}, "path", "the dotted path"),
        ({"metric": {"reader": "json", "path": "a", "pattern": "(x)"}}, "pattern", "left out"),
        ({"metric": {"pattern": "(x)", "path": "a"}}, "path", "left out"),
        ({"metric": {"reader": "pytest-benchmark"}}, "file", "--benchmark-json"),
        ({"metric": {"pattern": "(x)", "file": "../x"}}, "file", "below the run's directory"),
        ({"command": "  "}, "command", "the command that runs"),
        ({"command": "{pyhton} b.py"}, "command", "{pyhton} (did you mean 'python'?)"),
        ({"unit": ""}, "unit", "the unit of the value"),
        ({"gpus": -1}, "gpus", "zero or more"),
        ({"better": "up"}, "better", "one of 'higher' or 'lower'"),
        ({"files": ["../x"]}, "files", "below the benchmark's directory"),
        ({"requirements": ["-r x"]}, "requirements", "a requirement like"),
        ({"requirements": ["numpy=="]}, "requirements", "a requirement like"),
        ({"docker": True}, "image", "set, as docker = true"),
        ({"image": "debian"}, "docker", "true, as an image is named"),
        ({"unit": None}, "unit", "text in quotes"),
    ],
)
def test_wrong_benchmarks(change: dict[str, Any], key: str, says: str) -> None:
    """Each mistake is answered with the key, its value and what would be right."""
    with pytest.raises(BadInputError) as caught:
        benchmark_from_dict({**BENCHMARK, **change})
    assert says in caught.value.message
    assert key in caught.value.field


def test_an_unknown_key_explains_the_missing_one() -> None:
    """Where a required key is misspelt, the misspelling is named rather than the absence."""
    with pytest.raises(BadInputError, match=r"unknown key 'unti' \(did you mean 'unit'\?\)"):
        benchmark_from_dict({k: v for k, v in BENCHMARK.items() if k != "unit"} | {"unti": "s"})


def test_braces_of_a_shell_and_of_json_are_no_placeholders() -> None:
    """Only {word} is a placeholder: ${word} and JSON stay as they are."""
    command = """sh -c 'echo ${HOME} {"a": 1}' {jobs}"""
    assert benchmark_from_dict({**BENCHMARK, "command": command}).command == command


def test_a_named_group_may_stand_beside_others() -> None:
    """A pattern with several groups is fine when one is named ``value``."""
    metric = {"pattern": r"(step \d+) (?P<value>\d+)"}
    assert benchmark_from_dict({**BENCHMARK, "metric": metric}).metric.pattern == metric["pattern"]


def test_backslashes_are_shown_as_they_were_written() -> None:
    """A pattern stands in the message as in the file, not with its backslashes doubled."""
    with pytest.raises(BadInputError) as caught:
        benchmark_from_dict({**BENCHMARK, "metric": {"pattern": r"\S+"}})
    assert r"pattern = '\S+' should be" in caught.value.message


def test_a_command_with_an_open_quote_is_refused() -> None:
    """What can't be split into words is told before anything is built."""
    with pytest.raises(BadInputError, match="every quote closed") as caught:
        benchmark_from_dict({**BENCHMARK, "command": "sh -c 'echo"})
    assert "command" in caught.value.field
