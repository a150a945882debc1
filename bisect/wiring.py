"""Puts the real parts together: builder, runner, engine, conductor."""

from __future__ import annotations

import socket
from collections.abc import Collection

from perfbisect.builder import BuilderSettings, make_builder, remove_leftovers
from perfbisect.collecting import disk_space
from perfbisect.conductor import Conductor
from perfbisect.container_devices import DeviceStyle
from perfbisect.engines.local import LocalEngine
from perfbisect.ports import Engine, HostInfo, Runner
from perfbisect.runner import Shelves, host_facts, make_runner
from perfbisect.running.gpu_host import GpuHost, GpuPolicy
from perfbisect.running.published import PublishedRunner
from perfbisect.services import Services
from perfbisect.settings import Settings, chosen_gpus


def make_engine(settings: Settings) -> Engine:
    """Return the engine of this machine."""
    host = HostInfo(
        name=settings.host_name or socket.gethostname(), pool=settings.pool, facts=host_facts()
    )
    builder = make_builder(
        BuilderSettings(
            docker_host=settings.docker_host,
            distdir=settings.archives_dir,
            remote_cache=settings.remote_cache,
            warm_servers=settings.warm_servers,
            dockerfiles=settings.dockerfiles,
        )
    )
    return LocalEngine(
        builder,
        make_host_runner(settings),
        host,
        slots=settings.build_slots,
        on_close=builder.close,
    )


def make_host_runner(settings: Settings) -> Runner:
    """Return what runs benchmarks on this machine, published wheels included."""
    shelves = Shelves(environment_bytes=settings.environment_cache_size)
    gpus = make_gpu_host(settings)
    gpus.recover()
    style = DeviceStyle(settings.gpu_devices)
    runner = make_runner(settings.docker_host, shelves, settings.index_url, gpus, style)
    return PublishedRunner(runner, settings.index_url, settings.wheel_cache_size)


def make_gpu_host(settings: Settings) -> GpuHost:
    """Return what gives benchmarks the GPUs of this machine."""
    policy = GpuPolicy(
        chosen=chosen_gpus(settings.gpus),
        clock=settings.gpu_clock,
        persistence=settings.gpu_persistence,
        max_temperature=settings.gpu_max_temperature,
        wait=settings.gpu_wait,
        pin=settings.gpu_pin,
    )
    return GpuHost(policy, settings.data_dir / "gpu-changes.json")


def make_conductor(services: Services, *, only: Collection[str] | None = None) -> Conductor:
    """Return a conductor with the engine of this machine.

    Args:
        only: conduct these bisections and no others; None: whatever is there.
    """
    settings = services.settings

    def clean_containers(work_id: str) -> None:
        remove_leftovers(work_id, settings.docker_host)

    return Conductor(
        services,
        make_engine(settings),
        only=only,
        clean_containers=clean_containers,
        no_room=disk_space(services).problem,
    )
