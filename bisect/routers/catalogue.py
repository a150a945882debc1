"""Everything that outlives a bisection: points, wheels, hosts, repositories, names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Response

from perfbisect.config import benchmark_to_dict, list_known, recipe_to_dict
from perfbisect.problems import documented
from perfbisect.routers import models, present
from perfbisect.routers.deps import (
    DEFAULT_LIMIT,
    After,
    Limit,
    Opened,
    Since,
    Until,
    Words,
)
from perfbisect.routers.evidence import EXPORT_RESPONSE, Format, export_response
from perfbisect.routers.finite import JSONResponse
from perfbisect.services import Services
from perfbisect.store import catalogue

router = APIRouter(tags=["catalogue"])


@router.get(
    "/points",
    operation_id="listPoints",
    response_model=models.Page[models.Point],
    responses={**EXPORT_RESPONSE, **documented(422)},
)
def list_points(
    services: Opened,
    benchmark: Words = None,
    host: Words = None,
    commit: Words = None,
    bisection: Words = None,
    rejected: bool | None = None,
    since: Since = None,
    until: Until = None,
    format: Format = "json",
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Return points of all bisections, newest first. Benchmark by name or digest."""
    wanted = catalogue.PointFilter(
        benchmark=benchmark,
        host=host,
        commit=commit,
        bisection=bisection,
        rejected=rejected,
        since=since,
        until=until,
    )
    if format != "json":
        return export_response(_batches(services, wanted), format, "points")
    with services.database.read() as session:
        rows, more = catalogue.list_points(session, wanted, before=after or None, limit=limit)
    items = [present.point_of(row) for row in rows]
    page = models.Page(items=items, next=items[-1].id if more else None)
    return JSONResponse(page.model_dump(mode="json"))


def _batches(services: Services, wanted: catalogue.PointFilter) -> Iterator[list[models.Point]]:
    for batch in catalogue.export_points(services.database, wanted):
        yield [present.point_of(each) for each in batch]


@router.get(
    "/wheels",
    operation_id="listWheels",
    response_model=models.Page[models.WheelView],
    responses=documented(422),
)
def list_wheels(
    services: Opened,
    commit: Words = None,
    recipe: Words = None,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
) -> models.Page[models.WheelView]:
    """Return wheels, newest first. Recipe by name or digest."""
    with services.database.read() as session:
        rows, more = catalogue.list_wheels(
            session, commit=commit, recipe=recipe, before=after or None, limit=limit
        )
    items = [present.wheel_of(row) for row in rows]
    return models.Page(items=items, next=items[-1].id if more else None)


@router.get("/hosts", operation_id="listHosts", response_model=list[models.HostView])
def list_hosts(services: Opened) -> list[models.HostView]:
    """Return every host, what it does now, and how noisy it is."""
    with services.database.read() as session:
        return present.hosts_of(session)


@router.get(
    "/repositories", operation_id="listRepositories", response_model=list[models.RepositoryView]
)
def list_repositories(services: Opened) -> list[models.RepositoryView]:
    """Return the repositories that can be named in a request."""
    with services.database.read() as session:
        rows = catalogue.list_repositories(session)
    return [models.RepositoryView.model_validate(row) for row in rows]


@router.get("/recipes", operation_id="listRecipes", response_model=list[models.NamedDefinition])
def list_recipes(services: Opened) -> list[models.NamedDefinition]:
    """Return recipes that can be named in a request, then those that were used."""
    shipped = [
        models.NamedDefinition(
            name=known.recipe.name,
            digest=known.recipe.digest,
            definition=recipe_to_dict(known.recipe),
            description=known.description,
            shipped=True,
        )
        for known in list_known(services.settings.project_dir).recipes
    ]
    with services.database.read() as session:
        used = catalogue.list_recipes(session)
    return _with_used(shipped, [(row.name, row.digest, row.definition) for row in used])


@router.get(
    "/benchmarks", operation_id="listBenchmarks", response_model=list[models.NamedDefinition]
)
def list_benchmarks(services: Opened) -> list[models.NamedDefinition]:
    """Return benchmarks that can be named in a request, then those that were used."""
    shipped = [
        models.NamedDefinition(
            name=known.benchmark.name,
            digest=known.digest,
            definition=benchmark_to_dict(known.benchmark),
            description=known.description,
            shipped=True,
        )
        for known in list_known(services.settings.project_dir).benchmarks
    ]
    with services.database.read() as session:
        used = catalogue.list_benchmarks(session)
    return _with_used(shipped, [(row.name, row.digest, row.definition) for row in used])


def _with_used(
    named: list[models.NamedDefinition], used: list[tuple[str, str, dict[str, Any]]]
) -> list[models.NamedDefinition]:
    digests = {each.digest for each in named}
    return named + [
        models.NamedDefinition(name=name, digest=digest, definition=definition, shipped=False)
        for name, digest, definition in used
        if digest not in digests
    ]
