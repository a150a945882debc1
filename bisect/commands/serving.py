"""``perfbisect serve``: the API, the pages and the conductor in one process."""

from __future__ import annotations

import errno
import signal
import socket
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from sqlalchemy import make_url

from perfbisect.addresses import is_loopback
from perfbisect.alerting.configuration import load_alert_config
from perfbisect.commands import options
from perfbisect.core.access import Anonymous
from perfbisect.errors import BadInputError, InternalError
from perfbisect.json_logs import log_json
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.access import any_good_token
from perfbisect.store.database import open_database


def serve(
    bind: Annotated[
        str | None, typer.Option(help="Address to listen on [env: PERFBISECT_BIND; 127.0.0.1].")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on [env: PERFBISECT_PORT; 8080].")
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="Whoever connects may submit, also from other machines."),
    ] = False,
    engine: options.Engine = None,
    ray_address: options.RayAddress = None,
    host: options.HostName = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
) -> None:
    """Serve the pages and the API, and conduct what is submitted.

    On loopback nobody must log in. Beyond it a token is needed (``perfbisect token create``), and
    the service does not start before there is one, unless told otherwise.
    """
    settings = options.make_settings(
        bind=bind,
        port=port,
        data_dir=data_dir,
        database_url=database_url,
        host_name=host,
        engine=engine,
        ray_address=ray_address,
        anonymous=Anonymous.SUBMIT if no_auth else None,
    )
    refuse_open_door(settings)
    # Said here, rather than by the first alert.
    load_alert_config(settings.project_dir)
    run_server(settings)


def refuse_open_door(settings: Settings) -> None:
    """Refuse to serve other machines while nobody could log in.

    Raises:
        BadInputError: says what it would take.
    """
    if settings.anonymous is not Anonymous.AUTO or settings.only_this_machine:
        return
    if _has_token(settings):
        return
    where = settings.bind if not is_loopback(settings.bind) else ", ".join(settings.allowed_hosts)
    raise BadInputError(
        f"--bind: {where!r} can be reached from other machines, and there is no token that anybody "
        "could log in with: make one ('perfbisect token create NAME --scope admin'), stay on "
        "127.0.0.1, or let whoever connects run commands here with --no-auth",
        field="bind",
        value=where,
    )


def _has_token(settings: Settings) -> bool:
    """Return whether somebody could log in; without making a database where there is none."""
    url = make_url(settings.url)
    if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).exists()):
        return False
    database = open_database(settings.url)
    try:
        with database.read() as session:
            return any_good_token(session)
    finally:
        database.close()


def run_server(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        BadInputError: it can't be listened, and nothing was made; or as ``Services.open``.
        TransientError: as ``Services.open``.
    """
    # First of all: where it can't be listened, no data directory is left behind.
    with listen(settings.bind, settings.port) as listener:
        _serve_on(listener, settings)


def _serve_on(listener: socket.socket, settings: Settings) -> None:
    import uvicorn
    from uvicorn.config import LOGGING_CONFIG

    from perfbisect.api import create_app

    # Told in a line here, and with the traces of two frameworks once the server starts.
    Services.open(settings).close()
    as_json = settings.log_format == "json"
    if as_json:
        log_json()
    # uvicorn raises the signal that ended it once more after a clean end: that is a success too.
    signal.signal(signal.SIGTERM, _leave)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        log_config=None if as_json else LOGGING_CONFIG,
        # Each request is logged once, with its id and who asked.
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    options.say(f"perfbisect serves http://{_shown(settings.bind)}:{settings.port}/")
    server = uvicorn.Server(config)
    # An interrupt is how it is ended by hand.
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if not server.started:
        raise InternalError("the service did not start; its log says why")


def listen(bind: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        BadInputError: the address is not this machine's, or the port is taken.
    """
    host = bind.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # Without what Python adds to the system's words.
        why = str(error.strerror or error).partition(" (while")[0]
        field = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "bind"
        raise BadInputError(
            f"--{field}: {_shown(bind)}:{port} can't be listened on: {why}",
            field=field,
            value=port if field == "port" else bind,
        ) from error


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _shown(bind: str) -> str:
    return f"[{bind}]" if ":" in bind and not bind.startswith("[") else bind
