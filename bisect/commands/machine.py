"""``perfbisect doctor``: what this machine has."""

from __future__ import annotations

import typer

from perfbisect.commands import options


def doctor(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Say what this machine has, what is missing, and what to do."""
    from perfbisect.doctor import check_all

    settings = options.make_settings(data_dir=data_dir)
    typer.echo(str(check_all(settings)))
