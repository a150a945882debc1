"""Fixtures for tests that need a database with bisections in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.scenes import seed_finished, seed_running
from tests.helpers.seeding import Seed
from tests.helpers.serving import Site, client_of, opened, settings_in, shown_app

_HERE = Path(__file__).parent
#: The parts of the tests that work on real parts: other processes, engines, browsers.
_REAL = ("integration", "e2e")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests on real parts run one after the other, beside the others, and twice if need be.

    Two of them at a time would disturb each other's measurements and fight for ports and for the
    machine's locks. The second go is for machines whose neighbours take the processor away for
    minutes; pytest's last line tells how many tests needed one.
    """
    for item in items:
        if item.path.is_relative_to(_HERE) and item.path.relative_to(_HERE).parts[0] in _REAL:
            item.add_marker(pytest.mark.xdist_group("real"))
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
