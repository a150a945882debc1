"""``perfbisect doctor``: what this machine has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from perfbisect.commands import options
from perfbisect.report import printable


def doctor(
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Look closely at the GPUs too, as runs would use them."),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Say what this machine has, what is missing, and what to do.

    Exit code 0: everything that is required is there; 1: something is missing.
    """
    # Looking at everything takes long to import; other commands must not wait for it.
    from perfbisect.doctor import check_all, check_gpus_closely, is_ready

    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    checks = check_all(settings.data_dir, settings.database_url, settings.docker_host)
    if gpu:
        checks += check_gpus_closely(settings)
    ready = is_ready(checks)
    if as_json:
        options.print_json({"ready": ready, "checks": [asdict(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            detail = printable(check.detail)
            typer.echo(f"{check.status:8} {check.name:{width}}  {detail}".rstrip())
            if check.advice:
                typer.echo(f"{'':8} {'':{width}}  -> {printable(check.advice)}")
    raise typer.Exit(0 if ready else 1)
