"""Fixtures for tests that need a database with bisections in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scenes import seed_finished, seed_running
from tests.helpers.seeding import Seed
from tests.helpers.serving import Site, client_of, opened, settings_in, shown_app
from xdist.scheduler import LoadScopeScheduling

#: Where the tests on real parts are: other processes, engines, browsers.
_REAL = ("tests/integration/", "tests/e2e/")
#: … of which these neither measure nor build, and disturb nobody: git, requests, databases.
_LIGHT = tuple(
    f"tests/integration/test_{name}"
    for name in ("api_schema", "history_", "hostile_git", "hostile_requests", "migrations_data")
)


class RealPartsApart(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out tests so that those on real parts run one after the other, beside the others.

    Two of them at a time would disturb each other's measurements and fight for ports and for the
    machine's locks. (pytest-xdist's own ``loadgroup`` finds no groups from pytest 9.1 on.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_LIGHT):
            return nodeid.split("::")[0]
        return "real" if nodeid.startswith(_REAL) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RealPartsApart:
    """Deal out tests in the project's own way."""
    return RealPartsApart(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests on real parts a second go.

    It is for machines whose neighbours take the processor away for minutes; pytest's last line
    tells how many tests needed one.
    """
    for item in items:
        if item.nodeid.startswith(_REAL):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seed, Seed]:
    """A data directory with a finished and a running bisection, to copy: seeding takes a second."""
    directory = tmp_path_factory.mktemp("seeded")
    with opened(settings_in(directory)) as services:
        return directory / "data", seed_finished(services), seed_running(services)


@pytest.fixture
def site(tmp_path: Path, seeded: tuple[Path, Seed, Seed]) -> Iterator[Site]:
    """A service on a database of its own that holds a finished and a running bisection."""
    data, finished, running = seeded
    settings = settings_in(tmp_path)
    shutil.copytree(data, settings.data_dir)
    with opened(settings) as services, client_of(shown_app(settings)) as client:
        yield Site(client, services, finished.on(services), running.on(services))
