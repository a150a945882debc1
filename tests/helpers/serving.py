"""The service in this process, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.helpers.seeding import Seed

from perfbisect.api import create_app
from perfbisect.services import Services
from perfbisect.settings import Settings

API = "/api/v1"


@dataclass
class Site:
    """A service with bisections in its database, and hands on both."""

    client: TestClient
    #: Services of their own on the same database, as another process would have.
    services: Services
    finished: Seed
    running: Seed

    def json(self, path: str, status: int = 200) -> Any:
        """Return what the API answers to GET."""
        answer = self.client.get(API + path)
        assert answer.status_code == status, answer.text
        return answer.json()


def settings_in(directory: Path, **changes: Any) -> Settings:
    """Return settings that keep everything below a directory."""
    return Settings(data_dir=directory / "data", **changes)


@contextmanager
def client_of(app: FastAPI) -> Iterator[TestClient]:
    """Yield a client that is a program on the same machine, not a browser."""
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        yield client


@contextmanager
def opened(settings: Settings) -> Iterator[Services]:
    """Yield services of their own on the same database, as another process would have."""
    services = Services.open(settings)
    try:
        yield services
    finally:
        services.close()


def shown_app(settings: Settings) -> FastAPI:
    """Return a service that conducts nothing."""
    return create_app(settings, conductor=False)


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """Serve on a free port; yield the base URL."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
            assert thread.is_alive(), "the server did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
