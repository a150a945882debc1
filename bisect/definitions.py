"""What a request names: repository, recipe, benchmark. Checked first, stored with the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.config import (
    benchmark_from_dict,
    benchmark_to_dict,
    load_benchmark,
    load_recipe,
    recipe_from_dict,
    recipe_to_dict,
)
from perfbisect.core.recipe import Benchmark, Recipe, RecipeKind
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.git.source import parse_source
from perfbisect.isolation import require_isolation
from perfbisect.services import Services, known_repository
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BenchmarkRow, RecipeRow, RepositoryRow


@dataclass(frozen=True, slots=True)
class Measured:
    """What is measured: a benchmark that was found to be right, with its files."""

    benchmark: Benchmark
    #: The benchmark's files: name -> path on this machine.
    files: Mapping[str, Path]
    #: name -> SHA-256 of each file.
    hashes: Mapping[str, str]

    @property
    def benchmark_digest(self) -> str:
        """Identity of what is measured, scripts included."""
        return self.benchmark.digest(dict(self.hashes))

    def with_env(self, env: Mapping[str, str]) -> Self:
        """Return the same with further environment variables: another benchmark."""
        if not env:
            return self
        changed = replace(self.benchmark, env={**self.benchmark.env, **env})
        return replace(self, benchmark=changed)


@dataclass(frozen=True, slots=True)
class Definitions(Measured):
    """A repository's source, a recipe and a benchmark, all found to be right."""

    #: URL or absolute path.
    source: str
    recipe: Recipe

    def with_switches(self, switches: Mapping[str, bool]) -> Definitions:
        """Return the same with options of the recipe turned on or off: another recipe.

        Raises:
            BadInputError: the recipe has no such options, or they contradict each other.
        """
        if not switches:
            return self
        words = ", ".join(f"{name}={'on' if on else 'off'}" for name, on in switches.items())
        if self.recipe.kind is not RecipeKind.BAZEL:
            raise BadInputError(
                f"recipe_options: '{self.recipe.name}' is a {self.recipe.kind} recipe, and has no "
                f"options to turn on or off ({words}); Bazel recipes have",
                field="recipe_options",
                value=dict(switches),
            )
        chosen = {**recipe_to_dict(self.recipe), **switches}
        try:
            return replace(self, recipe=recipe_from_dict(chosen, "recipe_options"))
        except BadInputError as error:
            raise BadInputError(error.message, field="recipe_options", value=words) from error


def find_definitions(
    services: Services,
    *,
    repository: str,
    recipe: str | dict[str, Any],
    benchmark: str | dict[str, Any],
    base_dir: Path | None,
    allow_local: bool,
) -> Definitions:
    """Find and check what a request names.

    Raises:
        NotFoundError: nothing of that name.
        BadInputError: a definition can't be right.
    """
    found_recipe = (
        recipe_from_dict(recipe, "recipe")
        if isinstance(recipe, dict)
        else load_recipe(recipe, base_dir).recipe
    )
    measured = find_benchmark(benchmark, base_dir)
    require_isolation(services.settings, measured.benchmark, found_recipe)
    source = repository_source(services, repository, allow_local)
    return Definitions(
        benchmark=measured.benchmark,
        files=measured.files,
        hashes=measured.hashes,
        source=parse_source(source, allow_local=True).url,
        recipe=found_recipe,
    )


def find_benchmark(given: str | dict[str, Any], base_dir: Path | None) -> Measured:
    """Find and check a benchmark.

    Raises:
        NotFoundError: nothing of that name.
        BadInputError: it can't be right.
    """
    if isinstance(given, dict):
        benchmark = benchmark_from_dict(given, "benchmark")
        if benchmark.all_files:
            raise BadInputError(
                "a benchmark defined in the request can't name files: give the name of one that "
                "the server knows",
                field="benchmark.files",
                value=list(benchmark.all_files),
            )
        return Measured(benchmark, {}, {})
    loaded = load_benchmark(given, base_dir)
    files = {name: loaded.base_dir / name for name in loaded.files}
    return Measured(loaded.benchmark, files, dict(loaded.files))


def repository_source(
    services: Services, repository: str, allow_local: bool, field: str = "repository"
) -> str:
    """Return what to mirror: a repository known by name, one that is allowed, or any if local."""
    known = known_repository(services, repository)
    if known is not None:
        return known.url
    if allow_local or repository in services.settings.allowed_repositories:
        return repository
    with services.database.read() as session:
        names = sorted(session.scalars(select(RepositoryRow.name)))
    raise NotFoundError(
        f"repository '{repository}' is not known to this server; known: "
        f"{', '.join([*names, *services.settings.allowed_repositories]) or 'none'}",
        field=field,
        value=repository,
    )


def put_files(services: Services, definitions: Measured) -> dict[str, str]:
    """Store the benchmark's files as artifacts; return name -> key.

    Files go first: an artifact nobody refers to does no harm, a reference to nothing would.
    """
    return {name: services.artifacts.put(path) for name, path in definitions.files.items()}


def store_definitions(
    session: Session, definitions: Definitions, files: Mapping[str, str]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Store what is new of the definitions.

    Returns:
        the repository's id, and recipe and benchmark as JSON.
    """
    recipe = recipe_to_dict(definitions.recipe)
    store_recipe(session, definitions.recipe.digest, definitions.recipe.name, recipe)
    benchmark = store_benchmark(session, definitions, files)
    session.flush()
    return remember_repository(session, definitions.source), recipe, benchmark


def store_recipe(session: Session, digest: str, name: str, definition: dict[str, Any]) -> None:
    """Store what wheels are made by, or where they come from, unless it is there."""
    if session.get(RecipeRow, digest) is None:
        row = RecipeRow(digest=digest, name=name, definition=definition, created_at=now())
        session.add(row)


def store_benchmark(
    session: Session, definitions: Measured, files: Mapping[str, str]
) -> dict[str, Any]:
    """Store a benchmark unless it is there, and return it as JSON."""
    benchmark = benchmark_to_dict(definitions.benchmark)
    if session.get(BenchmarkRow, definitions.benchmark_digest) is None:
        session.add(
            BenchmarkRow(
                digest=definitions.benchmark_digest,
                name=definitions.benchmark.name,
                definition=benchmark,
                files=dict(files),
                created_at=now(),
            )
        )
    return benchmark


def remember_repository(session: Session, source: str) -> str:
    """Return the id of a repository, which is known from now on."""
    known = session.scalar(select(RepositoryRow).where(RepositoryRow.url == source))
    if known is not None:
        return known.id
    stem = parse_source(source, allow_local=True).name.rsplit("-", 1)[0]
    name, number = stem, 1
    while session.scalar(select(RepositoryRow.id).where(RepositoryRow.name == name)):
        number += 1
        name = f"{stem}-{number}"
    row = RepositoryRow(id=new_id(), name=name, url=source, created_at=now())
    session.add(row)
    session.flush()
    return row.id
