"""``perfbisect alert``: tell a server that a series got worse, or that it is over."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from perfbisect.commands import options
from perfbisect.commands.remote import DEFAULT_SERVER, Server, TokenFile, make_client
from perfbisect.core.states import ChangeKind
from perfbisect.errors import BadInputError


def alert(
    series: Annotated[
        str | None, typer.Option(help="Name of a nightly series of the server.")
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="Name of a benchmark that the server knows.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of hosts that it was seen on.")] = None,
    repo: Annotated[
        str | None, typer.Option(help="Repository that the server knows, by name or URL.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Recipe by which the repository is built.")
    ] = None,
    package: Annotated[
        str | None, typer.Option(help="Package of the index, in place of a repository.")
    ] = None,
    good: Annotated[str | None, typer.Option(help="Last good revision, version or night.")] = None,
    bad: Annotated[str | None, typer.Option(help="First bad revision, version or night.")] = None,
    before: Annotated[float | None, typer.Option(help="Level before, in the unit.")] = None,
    after: Annotated[float | None, typer.Option(help="Level after, in the unit.")] = None,
    kind: Annotated[
        ChangeKind, typer.Option(help="Whether it got worse or better.")
    ] = ChangeKind.REGRESSION,
    title: Annotated[str, typer.Option(help="One line for people.")] = "",
    fingerprint: Annotated[
        str | None,
        typer.Option(help="Names the alert: told twice, it is one. Made of the rest if missing."),
    ] = None,
    started: Annotated[
        str | None, typer.Option(help="Since when, like 2019-09-14T06:00:00Z; now if missing.")
    ] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="It is over: the value is back.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Tell a server that a series got worse, or that it is over."""
    told: dict[str, Any] = {
        "series": series,
        "benchmark": benchmark,
        "pool": pool,
        "repository": repo,
        "recipe": recipe,
        "package": package,
        "good": good,
        "bad": bad,
        "before": before,
        "after": after,
        "fingerprint": fingerprint,
    }
    for name, text in told.items():
        if text == "":
            option = {"repository": "repo"}.get(name, name)
            raise BadInputError(f"--{option}: is empty; name it, or leave it out", field=name)
    if series is None and benchmark is None and fingerprint is None:
        raise BadInputError("give --series, --benchmark or --fingerprint", field="series")
    if resolved and started is None:
        raise BadInputError(
            "--resolved needs --started: when the alert that is over began", field="started"
        )
    for name, level in (("before", before), ("after", after)):
        if level is not None and not math.isfinite(level):
            raise BadInputError(
                f"--{name}: {level} is not a level like 9000", field=name, value=level
            )
    body = {name: value for name, value in told.items() if value is not None}
    body |= {
        "kind": kind.value,
        "title": title,
        "started_at": started or datetime.now(UTC).isoformat(),
        "status": "resolved" if resolved else "firing",
    }
    with make_client(server, token_file) as client:
        answer = client.alert(body)
    if as_json:
        options.print_json(answer)
        return
    (what,) = answer["alerts"]
    place = f"  {client.server}/alerts/{what['alert']}" if what["alert"] else ""
    typer.echo(f"{what['result']}{place}  {what['detail']}".rstrip())
