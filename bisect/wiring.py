"""Puts the real parts together: builder, runner, engine, conductor."""

from __future__ import annotations

import socket
from collections.abc import Collection

from perfbisect.builder import BuilderSettings, make_builder
from perfbisect.conductor import Conductor
from perfbisect.engines.local import LocalEngine
from perfbisect.ports import Engine, HostInfo
from perfbisect.runner import host_facts, make_runner
from perfbisect.services import Services
from perfbisect.settings import Settings


def make_engine(settings: Settings) -> Engine:
    """Return the engine of this machine."""
    host = HostInfo(
        name=settings.host_name or socket.gethostname(), pool=settings.pool, facts=host_facts()
    )
    builder = make_builder(BuilderSettings(docker_host=settings.docker_host))
    runner = make_runner(settings.docker_host)
    return LocalEngine(builder, runner, host, slots=settings.build_slots)


def make_conductor(services: Services, *, only: Collection[str] | None = None) -> Conductor:
    """Return a conductor with the engine of this machine.

    Args:
        only: conduct these bisections and no others; None: whatever is there.
    """
    return Conductor(services, make_engine(services.settings), only=only)
