"""The service with builds and runs that are simulated and struck by faults, as a process.

    python -m tests.helpers.soak_server CONFIG.json

Everything else is real: HTTP, database, artifacts, conductor, desk, clock.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from tests.helpers.faults import (
    Faults,
    FaultyArtifacts,
    FaultyBuilder,
    FaultyRunner,
    strike_transactions,
)

from perfbisect.api import create_app
from perfbisect.conductor import Conductor
from perfbisect.engines.local import LocalEngine
from perfbisect.ports import HostInfo
from perfbisect.services import Services
from perfbisect.settings import Settings


@dataclass(frozen=True)
class SoakConfig:
    """What a server of a soak is told."""

    data_dir: str
    port: int
    repository: str
    #: Commits of the repository, earliest first.
    shas: tuple[str, ...]
    #: Of operations that are struck.
    share: float
    seed: int
    #: Relative standard deviation of a run.
    noise: float

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> SoakConfig:
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**values, "shas": tuple(values["shas"])})


def settings_of(config: SoakConfig) -> Settings:
    """Return settings under which inline definitions of one repository may be submitted fast."""
    return Settings(
        data_dir=Path(config.data_dir),
        port=config.port,
        project_dir=Path(config.data_dir),
        allowed_repositories=[config.repository],
        allow_inline=True,
        rate_limit="1000/second",
        submit_rate_limit="1000/second",
        max_unfinished=1000,
    )


def serve(config: SoakConfig) -> None:
    """Serve until SIGTERM."""
    faults = Faults(config.share, config.seed)
    positions = {sha: position for position, sha in enumerate(config.shas)}

    def make(services: Services) -> Conductor:
        settings = services.settings
        strike_transactions(services.database, faults)
        artifacts = FaultyArtifacts(
            str(settings.artifacts_dir), settings.cache_dir / "artifacts", faults
        )
        engine = LocalEngine(
            FaultyBuilder(faults),
            FaultyRunner(faults, positions, noise=config.noise),
            HostInfo("simulated", "default", {}),
            lock_path=settings.data_dir / "machine.lock",
        )
        return Conductor(replace(services, artifacts=artifacts), engine)

    app = create_app(settings_of(config), make=make)

    def told() -> dict[str, Any]:
        """Return the faults so far and what this process holds."""
        gc.collect()
        process = psutil.Process()
        memory = process.memory_full_info()
        return {
            **faults.told(),
            "rss": memory.rss,
            "uss": memory.uss,
            "handles": process.num_fds(),
            "threads": threading.active_count(),
            "pid": os.getpid(),
        }

    app.add_api_route("/soak", told)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=config.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    serve(SoakConfig.read(Path(sys.argv[1])))
