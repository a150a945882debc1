"""``perfbisect worker``: this machine as a node of a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import psutil
import typer

from perfbisect.commands import options
from perfbisect.engines.ray_messages import BUILD, HOST_LABEL, POOL, SHARED_LABEL
from perfbisect.errors import BadInputError, TransientError
from perfbisect.report import printable
from perfbisect.settings import Settings
from perfbisect.units import parse_size

#: Seconds that a node gets to end before it is killed.
_GRACE = 20.0
#: Seconds before a node whose cluster is gone joins again, at first and at most.
_PAUSES = (2.0, 60.0)
#: Bytes below which Ray refuses an object store.
_LEAST_STORE = 75 * 1024**2
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def worker(
    pool: Annotated[
        str | None, typer.Option(help="Pool that this machine runs benchmarks for; none: no runs.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs that benchmarks may have.", min=0)] = 0,
    build_slots: Annotated[int, typer.Option(help="Builds at once; 0: none.", min=0)] = 0,
    cpus: Annotated[
        int, typer.Option(help="Processors lent to other programs of the cluster.", min=0)
    ] = 0,
    share: Annotated[
        bool, typer.Option("--share", help="Builds and runs may go on here at the same time.")
    ] = False,
    ray_address: options.RayAddress = None,
    host: options.HostName = None,
    data_dir: options.DataDir = None,
    object_store: Annotated[
        str | None,
        typer.Option(help="Size of Ray's object store, such as 100m; else as Ray chooses."),
    ] = None,
) -> None:
    """Make this machine a node of a Ray cluster until it is stopped.

    It is looked over first, as by 'perfbisect doctor'. SIGINT or SIGTERM ends the node; what is
    under way on it is done again elsewhere.
    """
    settings = options.make_settings(host_name=host, data_dir=data_dir, ray_address=ray_address)
    if pool is None and not build_slots:
        raise BadInputError(
            "--pool: a worker runs benchmarks (--pool NAME), builds (--build-slots N), or both",
            field="pool",
        )
    if pool is not None and not _POOL.fullmatch(pool):
        raise BadInputError(
            f"--pool: {pool!r} should have letters, digits, '.', '_' and '-' only, 60 at most",
            field="pool",
            value=pool,
        )
    if settings.ray_address in ("", "auto"):
        raise BadInputError(
            "--ray-address: the cluster's head is needed: 'host:port', as in 'head:6379'",
            field="ray_address",
            value=settings.ray_address,
        )
    store_bytes = None if object_store is None else object_store_bytes(object_store)
    _look_over(settings)
    command = node_command(
        settings, pool or "", gpus, build_slots, cpus=cpus, share=share, object_store=store_bytes
    )
    _keep_node(command, settings)


def node_command(
    settings: Settings,
    pool: str,
    gpus: int,
    build_slots: int,
    *,
    cpus: int = 0,
    share: bool = False,
    object_store: int | None = None,
) -> list[str]:
    """Return the command that starts the node.

    Args:
        settings: say where the cluster's head is, and the host's name.
        pool: that it runs benchmarks for; empty: it runs none.
        gpus: that benchmarks may have.
        build_slots: builds at once.
        cpus: lent to other programs of the cluster.
        share: builds and runs may go on at the same time.
        object_store: bytes of Ray's object store; None: as Ray chooses.

    Raises:
        BadInputError: Ray is not installed.
    """
    beside = Path(sys.executable).with_name("ray")
    program = str(beside) if beside.exists() else shutil.which("ray")
    if program is None or importlib.util.find_spec("ray") is None:
        raise BadInputError("worker: Ray is not installed: pip install 'perfbisect[ray]'")
    resources: dict[str, int] = {POOL + pool: 1} if pool else {}
    if build_slots:
        resources[BUILD] = build_slots
    labels = {HOST_LABEL: settings.host_name or socket.gethostname()}
    if share:
        labels[SHARED_LABEL] = "yes"
    options_of_store = [f"--object-store-memory={object_store}"] if object_store is not None else []
    return [
        program,
        "start",
        f"--address={settings.ray_address}",
        f"--num-cpus={cpus}",
        f"--num-gpus={gpus}",
        f"--resources={json.dumps(resources)}",
        f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}",
        *options_of_store,
        "--disable-usage-stats",
        "--block",
    ]


def object_store_bytes(text: str) -> int:
    """Return the bytes of an object store that Ray accepts.

    Raises:
        BadInputError: it is no size, or less than Ray's least.
    """
    size = parse_size(text, "--object-store")
    if size < _LEAST_STORE:
        raise BadInputError(
            f"--object-store: {text!r} is less than 75 MiB, Ray's least; 100m are enough",
            field="--object-store",
            value=text,
        )
    return size


def _look_over(settings: Settings) -> None:
    """Refuse a machine that could neither build nor run.

    Raises:
        TransientError: something that is required is missing; says what.
    """
    from perfbisect.doctor import Status, check_all, is_ready

    checks = check_all(settings.data_dir, settings.database_url, settings.docker_host)
    for check in checks:
        if check.status is not Status.OK:
            options.say(f"{check.status:8} {check.name}: {printable(check.detail)}")
    if not is_ready(checks):
        missing = [c for c in checks if c.required and c.status is Status.MISSING]
        advice = " ".join(f"{check.name}: {check.advice or check.detail}" for check in missing)
        raise TransientError(f"this machine can't be a worker yet. {advice}")


class _Stop(Exception):
    """SIGINT or SIGTERM."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stop


def _keep_node(command: list[str], settings: Settings) -> None:
    """Run the node until SIGINT or SIGTERM; one that lost its cluster joins again."""
    environment = {**os.environ, "PERFBISECT_DATA_DIR": str(settings.data_dir)}
    before = {each: signal.signal(each, _stop) for each in (signal.SIGINT, signal.SIGTERM)}
    pause = _PAUSES[0]
    node: subprocess.Popen[bytes] | None = None
    try:
        while True:
            began = time.monotonic()
            # In a session of its own: a terminal's Ctrl-C must reach it through us alone.
            node = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
            options.say(f"perfbisect worker: joining {settings.ray_address}; Ctrl-C ends it")
            node.wait()
            _clean_up(settings)
            lasted = time.monotonic() - began > _PAUSES[1]
            pause = _PAUSES[0] if lasted else min(2 * pause, _PAUSES[1])
            options.say(f"perfbisect worker: the node ended; joining again in {pause:.0f} s")
            time.sleep(pause)
    except _Stop:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        if node is not None:
            _end(node)
        _clean_up(settings)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(node: subprocess.Popen[bytes]) -> None:
    """End the node and everything it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(node.pid).children(recursive=True)
        node.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(_GRACE)
        node.kill()
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    node.wait()


def _clean_up(settings: Settings) -> None:
    """End what the node's agent left running: benchmarks don't die with it."""
    from perfbisect.engines.ray_agent import agent_root, clean_started

    root = agent_root(settings, settings.host_name or socket.gethostname())
    count = clean_started(root, settings.docker_host)
    if count:
        options.say(f"perfbisect worker: ended {count} builds and runs that were under way")
