"""Recipes and benchmarks from plain dictionaries (TOML tables, JSON of the database) and back.

Everything that can be known to be wrong without running anything is found here.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import TypeAdapter, ValidationError

from perfbisect.core.bazel_flags import check_options
from perfbisect.core.readers import metric_problem
from perfbisect.core.recipe import Benchmark, Companion, Metric, Recipe, RecipeKind, When
from perfbisect.errors import BadInputError, did_you_mean, shown
from perfbisect.units import parse_duration, parse_size

#: What names of recipes, benchmarks and toolchains look like.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: ``{word}``, but neither a shell's ``${word}`` nor braces around anything else.
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")
#: What a benchmark's command may name.
BENCHMARK_PLACEHOLDERS = ("python", "artifact", "wheel", "jobs")

T = TypeVar("T", Recipe, Benchmark)

_RECIPE: TypeAdapter[Recipe] = TypeAdapter(Recipe)
_BENCHMARK: TypeAdapter[Benchmark] = TypeAdapter(Benchmark)

#: Key of a benchmark -> what its table, or its list of tables, holds.
_NESTED: Mapping[str, type[Any]] = {"metric": Metric, "companions": Companion, "when": When}

#: pydantic's error type -> what would be right.
_RIGHT = {
    "bool_type": "true or false",
    "string_type": 'text in quotes, e.g. "x"',
    "int_type": "a whole number",
    "float_type": "a number",
    "tuple_type": 'a list, e.g. ["x"]',
    "dict_type": "a table of keys and values",
    "dataclass_type": "a table of keys and values",
}


def recipe_from_dict(data: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """Return the recipe that a table or stored JSON describes, checked.

    Args:
        data: keys as the fields of `Recipe`; ``timeout`` may be written as a duration.
        where: what to call it in messages.

    Raises:
        BadInputError: an unknown key, a wrong type or a value that can't work.
    """
    recipe = _validated(_RECIPE, Recipe, data, where)
    _check_recipe(recipe, where)
    return recipe


def benchmark_from_dict(data: Mapping[str, Any], where: str = "benchmark") -> Benchmark:
    """Return the benchmark that a table or stored JSON describes, checked without its files.

    Args:
        data: keys as the fields of `Benchmark`; ``timeout`` may be written as a duration.
        where: what to call it in messages.

    Raises:
        BadInputError: an unknown key, a wrong type or a value that can't work.
    """
    benchmark = _validated(_BENCHMARK, Benchmark, data, where)
    _check_benchmark(benchmark, where)
    return benchmark


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """Return JSON values from which `recipe_from_dict` makes the same recipe."""
    plain: dict[str, Any] = _RECIPE.dump_python(recipe, mode="json")
    return plain


def benchmark_to_dict(benchmark: Benchmark) -> dict[str, Any]:
    """Return JSON values from which `benchmark_from_dict` makes the same benchmark."""
    plain: dict[str, Any] = _BENCHMARK.dump_python(benchmark, mode="json")
    return plain


def _validated(adapter: TypeAdapter[T], kind: type[T], data: Mapping[str, Any], where: str) -> T:
    """Return the typed value; strict, so that ``"yes"`` is no bool and ``"3"`` no number."""
    plain = dict(data)
    if "timeout" in plain:
        plain["timeout"] = parse_duration(plain["timeout"], field=f"{where}: timeout")
    try:
        # JSON's strict mode still reads lists as tuples and words as enums. Dates, which TOML
        # has and no field takes, become text that is then refused.
        return adapter.validate_json(json.dumps(plain, default=str), strict=True)
    except ValidationError as error:
        # An unknown key explains the missing one that it was meant to be: it goes first.
        problems = sorted(error.errors(), key=lambda e: e["type"] != "unexpected_keyword_argument")
        raise _explained(problems[0], kind, where) from error


def _explained(problem: Mapping[str, Any], kind: type[Any], where: str) -> BadInputError:
    """Translate one of pydantic's errors: which key, which value, what would be right."""
    path, value = problem["loc"], problem["input"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]
    if problem["type"] == "unexpected_keyword_argument":
        known = _keys_at(kind, path[:-1])
        near = did_you_mean(str(path[-1]), known) or f"; known: {', '.join(sorted(known))}"
        return BadInputError(f"{where}: unknown key '{key}'{near}", field=key, value=value)
    if problem["type"] == "missing":
        return BadInputError(f"{where}: key '{key}' is missing", field=key)
    right = _RIGHT.get(problem["type"])
    if right is None:
        expected = problem.get("ctx", {}).get("expected")
        right = f"one of {expected}{_nearest(value, expected)}" if expected else problem["msg"]
    return BadInputError(
        f"{where}: {key} = {shown(value)} should be {right}", field=key, value=value
    )


def _nearest(value: object, expected: str) -> str:
    return did_you_mean(value, re.findall(r"'([^']+)'", expected)) if isinstance(value, str) else ""


def _keys_at(kind: type[Any], path: Iterable[str | int]) -> list[str]:
    """Return the known keys of the table at ``path``."""
    inner = next((table for key, table in _NESTED.items() if key in path), kind)
    return [item.name for item in fields(inner)] if is_dataclass(inner) else []


class _Check:
    """Raises for the first rule that does not hold, naming the key and its value."""

    def __init__(self, where: str, value: object) -> None:
        self._where = where
        self._value = value

    def field(self, key: str, holds: bool, right: str) -> None:
        """Require that the field is right."""
        self.item(key, getattr(self._value, key), holds, right)

    def item(self, key: str, value: object, holds: bool, right: str) -> None:
        """Require that a value is right; ``right`` completes "… should be"."""
        if not holds:
            message = f"{self._where}: {key} = {shown(value)} should be {right}"
            raise BadInputError(message, field=key, value=value)

    def each(
        self, key: str, values: Iterable[str], rule: Callable[[str], bool], right: str
    ) -> None:
        """Require that every one of the values is right."""
        for value in values:
            self.item(key, value, rule(value), right)


def _check_common(value: Recipe | Benchmark, check: _Check) -> None:
    check.field(
        "name",
        NAME.fullmatch(value.name) is not None,
        "letters, digits, '.', '_' and '-', at most 100, starting with a letter or digit",
    )
    check.field("timeout", math.isfinite(value.timeout) and value.timeout > 0, "greater than zero")
    check.each("env", value.env, _is_variable, "named like a variable: letters, digits and '_'")
    check.each("env", value.env.values(), _no_nul, "text without a NUL character")


def _check_recipe(recipe: Recipe, where: str) -> None:
    check = _Check(where, recipe)
    _check_common(recipe, check)
    check.field(
        "toolchain", bool(NAME.fullmatch(recipe.toolchain)), "'auto' or a Dockerfile's name"
    )
    try:
        check_options(recipe)
    except BadInputError as error:
        message = f"{where}: {error.message.removeprefix('recipe: ')}"
        raise BadInputError(message, field=error.field, value=error.value) from error
    if recipe.kind is RecipeKind.COMMAND:
        check.field("command", bool(recipe.command.strip()), "the shell command that builds")
    check.field("subdirectory", _inside(recipe.subdirectory), "a directory inside the repository")
    check.each("artifacts", recipe.artifacts, _inside, "a glob inside the tree")
    check.each(
        "build_requirements",
        recipe.build_requirements,
        _is_requirement,
        'a requirement like "setuptools<70"',
    )
    check.field("cpus", math.isfinite(recipe.cpus) and recipe.cpus >= 0, "zero or more")
    if recipe.memory:
        parse_size(recipe.memory, field=f"{where}: memory")
    for glob, weight in recipe.relevance.items():
        holds = math.isfinite(weight) and weight > 0
        check.item(f"relevance.{glob}", weight, holds, "a weight greater than zero")


def _is_split(command: str) -> bool:
    """Return whether a command can be split into words, as it is before it is started."""
    try:
        return bool(shlex.split(command))
    except ValueError:
        return False


def _check_benchmark(benchmark: Benchmark, where: str) -> None:
    check = _Check(where, benchmark)
    _check_common(benchmark, check)
    _check_command(benchmark.command, check, "command")
    check.field("unit", bool(benchmark.unit.strip()), "the unit of the value, e.g. 'images/s'")
    check.field("gpus", benchmark.gpus >= 0, "zero or more")
    _check_contents(benchmark.files, benchmark.requirements, check, "")
    check.each("artifacts", benchmark.artifacts, _inside, "a glob inside the run's directory")
    _check_companions(benchmark, check)
    check.field("image", not benchmark.docker or bool(benchmark.image), "set, as docker = true")
    check.field("docker", benchmark.docker or not benchmark.image, "true, as an image is named")
    metric = _Check(where, benchmark.metric)
    metric.field("skip", benchmark.metric.skip >= 0, "zero or more")
    inside = not benchmark.metric.file or _inside(benchmark.metric.file)
    metric.field("file", inside, "a path below the run's directory")
    if problem := metric_problem(benchmark.metric):
        key, right = problem
        metric.field(key, False, right)


def _check_command(command: str, check: _Check, key: str) -> None:
    check.item(key, command, bool(command.strip()), "the command that runs the benchmark")
    closed = "with every quote closed, as in sh -c '…'"
    check.item(key, command, _is_split(command), closed)
    for word in PLACEHOLDER.findall(command):
        known = ", ".join(f"{{{name}}}" for name in BENCHMARK_PLACEHOLDERS)
        near = did_you_mean(word, BENCHMARK_PLACEHOLDERS)
        right = f"without the unknown placeholder {{{word}}}{near}; known: {known}"
        check.item(key, command, word in BENCHMARK_PLACEHOLDERS, right)


def _check_contents(
    files: Iterable[str], requirements: Iterable[str], check: _Check, prefix: str
) -> None:
    below = "a path below the benchmark's directory"
    pinned = 'a requirement like "numpy==2.1.3"'
    check.each(f"{prefix}files", files, _inside, below)
    check.each(f"{prefix}requirements", requirements, _is_requirement, pinned)


def _check_companions(benchmark: Benchmark, check: _Check) -> None:
    names: list[str] = []
    for number, companion in enumerate(benchmark.companions):
        key = f"companions[{number}]"
        fits = bool(NAME.fullmatch(companion.name))
        right = "letters, digits, '.', '_' and '-', starting with a letter or digit"
        check.item(f"{key}.name", companion.name, fits, right)
        alone = companion.name not in names
        check.item(f"{key}.name", companion.name, alone, "a name that no other companion has")
        source = bool(companion.repository.strip()) and not companion.repository.startswith("-")
        check.item(f"{key}.repository", companion.repository, source, "a repository's name or URL")
        one = bool(companion.revision) is not bool(companion.follow)
        either = "set, or else 'follow' with a branch: exactly one of them"
        check.item(f"{key}.revision", companion.revision, one, either)
        first = {PurePosixPath(name).parts[:1] for name in benchmark.all_files}
        apart = (companion.name,) not in first
        check.item(f"{key}.name", companion.name, apart, "another name than that of a file")
        names.append(companion.name)
    for number, rule in enumerate(benchmark.when):
        key = f"when[{number}]"
        check.item(f"{key}.since", rule.since, bool(rule.since.strip()), "a date or a revision")
        known = rule.companion in names or (not rule.companion and len(names) == 1)
        told = f"the name of a companion; there are: {', '.join(names) or 'none'}"
        check.item(f"{key}.companion", rule.companion, known, told)
        if rule.command is not None:
            _check_command(rule.command, check, f"{key}.command")
        _check_contents(rule.files or (), rule.requirements or (), check, f"{key}.")


def _is_variable(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None


def _no_nul(text: str) -> bool:
    return "\0" not in text


def _inside(path: str) -> bool:
    """Return whether a relative path can't lead out of its directory."""
    pure = PurePosixPath(path)
    return bool(path) and _no_nul(path) and not pure.is_absolute() and ".." not in pure.parts


def _is_requirement(text: str) -> bool:
    """Return whether it is one requirement, and so no option (``--index-url``) of an installer."""
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return text[:1] in string.ascii_letters + string.digits
