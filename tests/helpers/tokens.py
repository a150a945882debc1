"""Tokens for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from tests.helpers.seeding import Seed
from tests.helpers.serving import API, client_of, opened, settings_in, shown_app

from perfbisect.core.access import Scope
from perfbisect.services import Services
from perfbisect.store.access import NewToken, create_token


def make_token(services: Services, name: str, *scopes: Scope, **changes: Any) -> str:
    """Return the secret of a new token."""
    wanted = NewToken(name, scopes, **changes)
    return create_token(services.database, wanted, created_by="a test")[1]


def bearer(secret: str) -> dict[str, str]:
    """Return the header that carries a token."""
    return {"Authorization": f"Bearer {secret}"}


@dataclass
class Guarded:
    """A service that other machines reach, with a token of each scope."""

    client: TestClient
    services: Services
    seed: Seed
    secrets: dict[Scope, str] = field(default_factory=dict)

    def call(self, method: str, path: str, secret: str = "", **options: Any) -> Any:
        """Return the answer to a request that carries a token."""
        headers = {**(bearer(secret) if secret else {}), **options.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **options)

    def status(self, method: str, path: str, secret: str = "", **options: Any) -> int:
        """Return the status of ``call``."""
        status: int = self.call(method, path, secret, **options).status_code
        return status


@contextmanager
def guarded(directory: Path, **changes: Any) -> Iterator[Guarded]:
    """Yield a service beyond loopback with one running bisection."""
    settings = settings_in(
        directory, bind="0.0.0.0", allowed_hosts=["localhost", "127.0.0.1", "b.example"]
    )
    settings = settings.model_copy(update=changes)
    with opened(settings) as services, client_of(shown_app(settings)) as client:
        seed = Seed(services, n=6, steps={3: 0.5})
        seed.submit()
        seed.start()
        secrets = {scope: make_token(services, f"a-{scope}", scope) for scope in Scope}
        yield Guarded(client, services, seed, secrets)


__all__ = ["API", "Guarded", "bearer", "guarded", "make_token"]
