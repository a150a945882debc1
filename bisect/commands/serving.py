"""``perfbisect serve``: the API, the pages and the conductor in one process."""

from __future__ import annotations

import ipaddress
import signal
from types import FrameType
from typing import Annotated

import typer

from perfbisect.commands import options
from perfbisect.errors import BadInputError
from perfbisect.settings import Settings


def serve(
    bind: Annotated[
        str | None, typer.Option(help="Address to listen on [env: PERFBISECT_BIND; 127.0.0.1].")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on [env: PERFBISECT_PORT; 8080].")
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth", help="Allow an address beyond this machine although nobody must log in."
        ),
    ] = False,
    host: options.HostName = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
) -> None:
    """Serve the pages and the API, and conduct what is submitted.

    There are no tokens yet: whoever reaches the service may run commands on this machine.
    So it stays on loopback unless told otherwise.
    """
    settings = options.make_settings(
        bind=bind, port=port, data_dir=data_dir, database_url=database_url, host_name=host
    )
    refuse_open_door(settings.bind, no_auth=no_auth)
    run_server(settings)


def refuse_open_door(bind: str, *, no_auth: bool) -> None:
    """Refuse an address that other machines reach, unless that was asked for explicitly.

    Raises:
        BadInputError: says what it would take.
    """
    if no_auth or is_loopback(bind):
        return
    raise BadInputError(
        f"--bind: {bind!r} can be reached from other machines, and there is no authentication: "
        "whoever connects may run commands here. Use 127.0.0.1 (behind a proxy that "
        "authenticates), or insist with --no-auth",
        field="bind",
        value=bind,
    )


def is_loopback(bind: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind.strip("[]")).is_loopback
    except ValueError:
        return False


def run_server(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM."""
    import uvicorn

    from perfbisect.api import create_app

    # uvicorn raises the signal that ended it once more after a clean end: that is a success too.
    signal.signal(signal.SIGTERM, _leave)
    options.say(f"perfbisect serves http://{_shown(settings.bind)}:{settings.port}/")
    uvicorn.run(
        create_app(settings),
        host=settings.bind.strip("[]"),
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _shown(bind: str) -> str:
    return f"[{bind}]" if ":" in bind and not bind.startswith("[") else bind
