"""Whether what a request names may run here: anywhere, or in containers only."""

from __future__ import annotations

from perfbisect.core.recipe import Benchmark, Recipe
from perfbisect.errors import BadInputError
from perfbisect.settings import Settings


def require_isolation(settings: Settings, benchmark: Benchmark, recipe: Recipe | None) -> None:
    """Return if the settings let these run.

    Args:
        recipe: None: nothing is built.

    Raises:
        BadInputError: one of them would run on the machine itself, and only containers are allowed.
    """
    if not settings.require_containers:
        return
    for field, value in (("recipe", recipe), ("benchmark", benchmark)):
        if value is not None and not value.docker:
            raise BadInputError(
                f"{field}: '{value.name}' runs on the machine itself (docker = false), and here "
                "only containers are allowed (PERFBISECT_REQUIRE_CONTAINERS)",
                field=field,
                value=value.name,
            )
