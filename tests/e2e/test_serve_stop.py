"""``perfbisect serve`` as a process: it stops cleanly while somebody listens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from tests.helpers.seeding import Seed
from tests.helpers.serving import opened, settings_in

from perfbisect.store.database import now, process_owner
from perfbisect.store.tables import BisectionRow


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    """A bisection that this process conducts as far as the service can tell: it lets it be."""
    with opened(settings_in(tmp_path)) as services:
        seed = Seed(services, n=4)
        seed.submit()
        with services.database.write() as session:
            row = session.get_one(BisectionRow, seed.id)
            row.lease_owner = process_owner()
            row.lease_expires_at = now() + timedelta(hours=1)
        return seed


@pytest.fixture
def server(tmp_path: Path, port: int, seed: Seed) -> Iterator[subprocess.Popen[str]]:
    """The service as people start it."""
    environment = {**os.environ, "PERFBISECT_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "perfbisect", "serve", "--port", str(port)]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def wait_until_ready(url: str) -> None:
    for _ in range(300):
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the service did not become ready")


def test_the_service_stops_while_a_stream_is_open(
    server: subprocess.Popen[str], port: int, seed: Seed
) -> None:
    """SIGTERM ends an open stream of events properly, and the process with success and silence."""
    url = f"http://127.0.0.1:{port}"
    wait_until_ready(url)
    first = threading.Event()
    ends: list[str] = []

    def follow() -> None:
        with httpx.stream("GET", f"{url}/api/v1/bisections/{seed.id}/events", timeout=30) as answer:
            for _ in answer.iter_lines():
                first.set()
        ends.append("ended")

    reader = threading.Thread(target=follow)
    reader.start()
    assert first.wait(30)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=30)
    reader.join(30)
    assert ends == ["ended"]
    assert server.returncode == 0
    assert "Traceback" not in said
    assert "ERROR" not in said
