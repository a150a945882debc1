"""Recipes and benchmarks by name or by file.

A **name** is looked for in ``perfbisect.toml`` of the current directory first, then among the
shipped ones. A **file** is anything that ends in ``.toml`` or contains a ``/``; where it holds
several, one is chosen by ``FILE#NAME``. There are three ways to write them::

    [recipe]                    [recipe.fast]               [[recipe]]
    name = "fast"               kind = "pip-wheel"          name = "fast"
    kind = "pip-wheel"                                      kind = "pip-wheel"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from perfbisect.benchmark_files import hash_files
from perfbisect.config_values import (
    NAME,
    benchmark_from_dict,
    benchmark_to_dict,
    recipe_from_dict,
    recipe_to_dict,
)
from perfbisect.core.recipe import Benchmark, Recipe
from perfbisect.errors import BadInputError, NotFoundError, did_you_mean
from perfbisect.toml_files import read_toml

__all__ = [
    "Known",
    "LoadedBenchmark",
    "LoadedRecipe",
    "benchmark_from_dict",
    "benchmark_to_dict",
    "list_known",
    "list_presets",
    "load_benchmark",
    "load_recipe",
    "recipe_from_dict",
    "recipe_to_dict",
]

#: Name of the project's own file, in the directory where perfbisect is started.
PROJECT_FILE = "perfbisect.toml"
#: Where the shipped recipes and benchmarks are.
PRESETS_DIR = Path(__file__).resolve().parent / "presets"

_KINDS = ("recipe", "benchmark")
#: Other tables of ``perfbisect.toml``, which have readers of their own.
_ELSEWHERE = ("series", "alerts", "notify", "storage")

L = TypeVar("L", "LoadedRecipe", "LoadedBenchmark")


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A recipe and where it was found."""

    recipe: Recipe
    source: Path
    #: A sentence for people; empty where there is none.
    description: str = ""


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """A benchmark, where it was found, and its files."""

    benchmark: Benchmark
    source: Path
    #: Directory that ``benchmark.files`` are relative to.
    base_dir: Path
    #: Path relative to ``base_dir`` -> SHA-256 of its content; directories are listed file by file.
    files: Mapping[str, str]
    description: str = ""

    @property
    def digest(self) -> str:
        """Identity of what is measured, scripts included."""
        return self.benchmark.digest(dict(self.files))


@dataclass(frozen=True, slots=True)
class Known:
    """What can be named."""

    recipes: tuple[LoadedRecipe, ...]
    benchmarks: tuple[LoadedBenchmark, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One recipe or benchmark of a file, not checked yet."""

    kind: str
    name: str
    table: Mapping[str, Any]
    file: Path
    description: str

    @property
    def where(self) -> str:
        return (
            f"{self.file}: {self.kind} '{self.name}'" if self.name else f"{self.file}: {self.kind}"
        )


def load_recipe(name_or_file: str, directory: Path | None = None) -> LoadedRecipe:
    """Return the recipe of this name or in this file.

    Args:
        name_or_file: see this module's docstring.
        directory: where ``perfbisect.toml`` and relative files are; None: the current directory.

    Raises:
        NotFoundError: no such name or file.
        BadInputError: the file is no TOML, or what it says can't be right.
    """
    return _recipe(_find("recipe", name_or_file, directory or Path.cwd()))


def load_benchmark(name_or_file: str, directory: Path | None = None) -> LoadedBenchmark:
    """Return the benchmark of this name or in this file, with the hashes of its files.

    Args:
        name_or_file: see this module's docstring.
        directory: where ``perfbisect.toml`` and relative files are; None: the current directory.

    Raises:
        NotFoundError: no such name or file.
        BadInputError: the file is no TOML, what it says can't be right, or a file of ``files`` is
            missing.
    """
    return _benchmark(_find("benchmark", name_or_file, directory or Path.cwd()))


def list_presets() -> Known:
    """Return the shipped recipes and benchmarks, by name."""
    return _known(_preset_entries("recipe"), _preset_entries("benchmark"))


def list_known(directory: Path | None = None) -> Known:
    """Return everything that can be named in a directory; its own hide shipped ones of that name.

    Raises:
        BadInputError: ``perfbisect.toml`` is wrong; the message names the key.
    """
    where = directory or Path.cwd()
    return _known(_named_entries("recipe", where), _named_entries("benchmark", where))


def _known(recipes: Mapping[str, _Entry], benchmarks: Mapping[str, _Entry]) -> Known:
    return Known(
        recipes=_each(_recipe, recipes),
        benchmarks=_each(_benchmark, benchmarks),
    )


def _each(load: Callable[[_Entry], L], entries: Mapping[str, _Entry]) -> tuple[L, ...]:
    return tuple(load(entries[name]) for name in sorted(entries))


def _recipe(entry: _Entry) -> LoadedRecipe:
    recipe = recipe_from_dict(entry.table, entry.where)
    return LoadedRecipe(recipe, entry.file, entry.description)


def _benchmark(entry: _Entry) -> LoadedBenchmark:
    benchmark = benchmark_from_dict(entry.table, entry.where)
    base = entry.file.parent
    files = hash_files(benchmark, base, entry.where)
    return LoadedBenchmark(benchmark, entry.file, base, files, entry.description)


def _find(kind: str, name_or_file: str, directory: Path) -> _Entry:
    path, _, chosen = name_or_file.partition("#")
    if path.endswith(".toml") or "/" in path:
        return _choose(kind, _read(directory / path), chosen, name_or_file)
    named = _named_entries(kind, directory)
    if name_or_file in named:
        return named[name_or_file]
    message = (
        f"{kind} '{name_or_file}' is neither in {PROJECT_FILE} nor shipped"
        f"{did_you_mean(name_or_file, named)}; known: {', '.join(sorted(named)) or 'none'}; "
        "a file is named by a path that ends in .toml"
    )
    raise NotFoundError(message, field=kind, value=name_or_file)


def _choose(kind: str, entries: Iterable[_Entry], name: str, asked: str) -> _Entry:
    """Return the only entry of a kind in a file, or the one of this name."""
    found = {entry.name: entry for entry in entries if entry.kind == kind}
    if name in found and name:
        return found[name]
    if len(found) == 1 and not name:
        return next(iter(found.values()))
    names = ", ".join(sorted(found))
    if not found:
        raise NotFoundError(f"{asked}: the file has no [{kind}]", field=kind, value=asked)
    if name:
        message = f"{asked}: no {kind} '{name}'{did_you_mean(name, found)}; known: {names}"
    else:
        message = f"{asked}: the file has {len(found)} {kind}s; choose one as FILE#NAME: {names}"
    raise NotFoundError(message, field=kind, value=asked)


def _named_entries(kind: str, directory: Path) -> dict[str, _Entry]:
    entries = _preset_entries(kind)
    project = directory / PROJECT_FILE
    if project.is_file():
        entries.update((e.name, e) for e in _read(project) if e.kind == kind)
    return entries


def _preset_entries(kind: str) -> dict[str, _Entry]:
    files = sorted((PRESETS_DIR / f"{kind}s").rglob("*.toml"))
    return {e.name: e for file in files for e in _read(file) if e.kind == kind}


def _read(file: Path) -> list[_Entry]:
    """Return what a file holds, names checked, values not."""
    document = _toml(file)
    description = document.pop("description", "")
    if not isinstance(description, str):
        message = f"{file}: description = {description!r} should be text in quotes"
        raise BadInputError(message, field="description", value=description)
    known = _KINDS if file.name != PROJECT_FILE else (*_KINDS, *_ELSEWHERE)
    for key in document:
        if key not in known:
            message = f"{file}: unknown table '{key}'{did_you_mean(key, known)}; known: " + (
                ", ".join(f"[{kind}]" for kind in known)
            )
            raise BadInputError(message, field=key)
    found = [
        _Entry(kind, name, table, file, description)
        for kind, value in document.items()
        if kind in _KINDS
        for name, table in _tables(file, kind, value)
    ]
    _require_distinct(found)
    return found


def _toml(file: Path) -> dict[str, Any]:
    try:
        return read_toml(file)
    except FileNotFoundError as error:
        raise NotFoundError(f"{file}: no such file", value=str(file)) from error


def _tables(file: Path, kind: str, value: object) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, table) of ``[kind]``, of ``[kind.NAME]`` or of ``[[kind]]``."""
    listed = value if isinstance(value, list) else [value]
    tables = [table for table in listed if isinstance(table, dict)]
    if len(tables) < len(listed):
        message = f"{file}: {kind} = {value!r:.80} should be a table: [{kind}]"
        raise BadInputError(message, field=kind, value=value)
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        # Every recipe and benchmark has a key that is no table, so these are names.
        return [(_name(file, kind, key), {"name": key, **inner}) for key, inner in value.items()]
    return [(_name(file, kind, table.get("name", "")), table) for table in tables]


def _name(file: Path, kind: str, name: object) -> str:
    if name == "":
        return ""  # missing: said by the check of the whole table
    if not isinstance(name, str) or not NAME.fullmatch(name):
        message = f"{file}: {kind}'s name = {name!r} should be letters, digits, '.', '_' and '-'"
        raise BadInputError(message, field="name", value=name)
    return name


def _require_distinct(entries: Iterable[_Entry]) -> None:
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        if (entry.kind, entry.name) in seen:
            message = f"{entry.file}: two {entry.kind}s are named '{entry.name}'"
            raise BadInputError(message, field="name", value=entry.name)
        seen.add((entry.kind, entry.name))
