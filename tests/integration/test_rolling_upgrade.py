"""A rolling restart: the server of the version before and the new one on one database.

The rule: a schema grows and never takes away what the version before uses, so that a server that is
running goes on while a newer one upgrades the database under it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.helpers.command_line import Project, make_project
from tests.helpers.soaking import free_port
from tests.helpers.waiting import stopped, until

ROOT = Path(__file__).resolve().parents[2]
#: The last commit of the version before, with schema 0006.
BEFORE = "9b51005"
CULPRIT = 4


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the version before."""
    found = subprocess.run(
        ["git", "archive", "--format=tar", BEFORE], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"the commit {BEFORE} is not in this clone (a shallow one?)")
    directory = tmp_path_factory.mktemp("old")
    subprocess.run(["tar", "x", "-C", str(directory)], input=found.stdout, check=True)
    return directory


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    log: Path

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            return self.client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def submit(self, project: Project, name: str) -> str:
        """Submit the whole history with a benchmark of this name."""
        body = {
            "repository": str(project.repository),
            "good": project.shas[0],
            "bad": project.shas[-1],
            "recipe": "copy",
            "benchmark": "read",
            "prove": False,
            # Another request each time, so that none answers another.
            "min_effect": f"{3 + len(name)}%",
        }
        answer = self.client.post(
            "/api/v1/bisections", json=body, headers={"Idempotency-Key": name}
        )
        assert answer.status_code == 202, answer.text
        found: str = answer.json()["id"]
        return found

    def culprits(self, bisection_id: str) -> list[list[str]] | None:
        """Return what was found; None: it goes on."""
        verdict = self.client.get(f"/api/v1/bisections/{bisection_id}").json()
        if verdict["state"] != "finished":
            return None
        return [each["commits"] for each in verdict["culprits"]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, [900.0] * CULPRIT + [600.0] * 3)


@pytest.fixture
def servers() -> Iterator[list[Running]]:
    """Every server that a test started; they are stopped after it."""
    started: list[Running] = []
    yield started
    for each in started:
        each.client.close()
        if each.process.poll() is None:
            stopped(each.process)


def serve(servers: list[Running], project: Project, source: Path, name: str) -> Running:
    """Start a server from a source tree; return once it is ready."""
    port = free_port()
    log = project.directory / f"{name}.log"
    environment = {
        **os.environ,
        "PYTHONPATH": str(source / "src"),
        "PERFBISECT_ALLOWED_REPOSITORIES": json.dumps([str(project.repository)]),
        "TMPDIR": str(project.directory),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfbisect", "serve", f"--port={port}",
             f"--data-dir={project.data_dir}"],
            cwd=project.directory, env=environment, stdout=output, stderr=output,
        )  # fmt: skip
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    running = Running(process, client, log)
    servers.append(running)
    until(running.is_ready, f"the {name} server is ready", seconds=300, pause=0.2)
    return running


def test_both_versions_on_one_database(old: Path, project: Project, servers: list[Running]) -> None:
    """The old server goes on, and finishes what it is given, after the new one has upgraded the
    database; what either is given, some server finishes; both show everything."""
    before = serve(servers, project, old, "old")
    first = before.submit(project, "a")
    after = serve(servers, project, ROOT, "new")
    submitted = [first, after.submit(project, "bb"), before.submit(project, "ccc")]

    def finished(server: Running) -> bool:
        assert before.is_ready()
        assert after.is_ready()
        return all(server.culprits(each) is not None for each in submitted)

    until(lambda: finished(after), "three bisections have ended", seconds=300, pause=0.5)
    for server in (before, after):
        assert server.client.get("/").status_code == 200
        for each in submitted:
            assert server.culprits(each) == [[project.shas[CULPRIT]]]
            assert server.client.get(f"/bisections/{each}").status_code == 200
    stopped(before.process)
    last = after.submit(project, "dddd")
    until(
        lambda: after.culprits(last) is not None,
        "the last bisection has ended",
        seconds=300,
        pause=0.5,
    )
    assert after.culprits(last) == [[project.shas[CULPRIT]]]
    for server in servers:
        assert "Traceback" not in server.log.read_text()
