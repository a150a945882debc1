"""Puts the real parts together: builder, runner, engine, conductor."""

from __future__ import annotations

import socket
from collections.abc import Collection

from perfbisect.builder import BuilderSettings, RecipeBuilder, make_builder, remove_leftovers
from perfbisect.collecting import disk_space
from perfbisect.conductor import Conductor
from perfbisect.container_devices import DeviceStyle
from perfbisect.engines.local import LocalEngine
from perfbisect.engines.ray import RayEngine
from perfbisect.ports import Builder, Engine, HostInfo, Runner
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
    builder = make_host_builder(settings)
    return LocalEngine(
        builder,
        make_host_runner(settings),
        host,
        slots=settings.build_slots,
        on_close=builder.close,
    )


def make_parts(settings: Settings) -> tuple[Builder, Runner]:
    """Return what builds and runs on this machine, for the engine of a cluster."""
    return make_host_builder(settings), make_host_runner(settings)


def make_host_builder(settings: Settings) -> RecipeBuilder:
    """Return what builds on this machine."""
    return make_builder(
        BuilderSettings(
            docker_host=settings.docker_host,
            distdir=settings.archives_dir,
            remote_cache=settings.remote_cache,
            warm_servers=settings.warm_servers,
            dockerfiles=settings.dockerfiles,
        )
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
    """Return a conductor with the engine that the settings name.

    Args:
        only: conduct these bisections and no others; None: whatever is there, as a server.

    Raises:
        BadInputError: the engine's program is not installed.
    """
    settings = services.settings

    def clean_containers(work_id: str) -> None:
        remove_leftovers(work_id, settings.docker_host)

    on_cluster = settings.engine == "ray"
    return Conductor(
        services,
        make_ray_engine(settings) if on_cluster else make_engine(settings),
        only=only,
        clean_containers=clean_containers,
        no_room=disk_space(services).problem,
        lease_seconds=settings.lease_seconds,
        host_grace=settings.host_grace,
        # What a server has under way is picked up by the next one; a command's is nobody else's.
        detach=only is None,
    )


def make_ray_engine(settings: Settings) -> RayEngine:
    """Return the engine of a Ray cluster.

    Raises:
        BadInputError: Ray is not installed.
    """
    return RayEngine(settings.ray_address, grace=settings.host_grace)
