"""Commands against a server: ``submit``, ``status``, ``watch``, ``cancel``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from ulid import ULID

from perfbisect.client import Client
from perfbisect.commands import options
from perfbisect.commands.showing import print_verdict
from perfbisect.config import load_recipe, recipe_to_dict
from perfbisect.core.states import Find
from perfbisect.errors import BadInputError
from perfbisect.progress import ProgressModel, ProgressView
from perfbisect.report import exit_code, printable, sentence, short

Server = Annotated[
    str, typer.Option("--server", envvar="PERFBISECT_SERVER", help="URL of the server.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File that holds the bearer token; else PERFBISECT_TOKEN, else none is sent."
    ),
]
BisectionId = Annotated[str, typer.Argument(metavar="ID", help="Id of a bisection.")]

#: Seconds that ``submit`` goes on asking while the server mirrors a repository.
PATIENCE = 3600.0
DEFAULT_SERVER = "http://127.0.0.1:8080"


def make_client(server: str, token_file: Path | None) -> Client:
    """Return a client with the token of the file or of the environment.

    Raises:
        BadInputError: the file can't be read, or the server is no URL.
    """
    return Client(server, read_token(token_file))


def read_token(token_file: Path | None) -> str:
    """Return the token of the file, else of the variable, else an empty string.

    Raises:
        BadInputError: the file can't be read or is empty.
    """
    if token_file is None:
        return os.environ.get("PERFBISECT_TOKEN", "").strip()
    try:
        token = token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"--token-file: '{token_file}' can't be read: "
            f"{getattr(error, 'strerror', None) or 'it is not plain ASCII'}",
            field="token_file",
            value=str(token_file),
        ) from error
    if not token:
        raise BadInputError(
            f"--token-file: {token_file} is empty", field="token_file", value=str(token_file)
        )
    return token


def submit(
    good: options.Good,
    bad: options.Bad,
    benchmark: options.BenchmarkName,
    repo: options.RepoOrNone = None,
    package: options.Package = None,
    recipe: options.RecipeOrNone = None,
    recipe_option: options.RecipeOptions = None,
    env: options.Envs = None,
    bisect_companion: options.BisectCompanion = None,
    at: options.At = None,
    threshold: options.Threshold = None,
    min_effect: options.MinEffect = "3%",
    find: options.FindWhat = Find.ALL,
    confidence: options.Confidence = 0.99,
    max_runs: options.MaxRuns = None,
    max_builds: options.MaxBuilds = None,
    max_time: options.MaxTime = None,
    probe: options.Probe = 0,
    all_parents: options.AllParents = False,
    path: options.Paths = None,
    carry: options.Carry = None,
    carry_pick: options.CarryPick = None,
    prereleases: options.Prereleases = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key gives the same bisection."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until it is finished.")] = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Submit a bisection to a server."""
    request = options.make_request(
        package=package,
        repository=repo,
        good=good,
        bad=bad,
        recipe=None if recipe is None else _recipe(recipe),
        recipe_options=options.parse_switches(recipe_option),
        benchmark=benchmark,
        env=options.pairs_of(env, "--env"),
        bisect_companion=bisect_companion,
        at=at,
        threshold=threshold,
        min_effect=min_effect,
        find=find,
        confidence=confidence,
        max_runs=max_runs,
        max_builds=max_builds,
        max_time=max_time,
        probe=probe,
        all_parents=all_parents,
        paths=tuple(path or ()),
        carry=options.read_patches(carry, "--carry"),
        carry_pick=tuple(carry_pick or ()),
        prereleases=prereleases,
    )
    with make_client(server, token_file) as client:
        verdict = client.submit(
            request.model_dump(mode="json"),
            key or str(ULID()),
            patience=PATIENCE,
            waiting=options.say,
        )
        if wait:
            _finish(_follow(client, str(verdict["id"])), as_json)
    if as_json:
        options.print_json(verdict)
        return
    typer.echo(f"{verdict['id']}  {client.server}/bisections/{verdict['id']}")


def _recipe(given: str) -> str | dict[str, Any]:
    """Return a recipe's definition where a file of this machine is meant, else its name."""
    if "/" in given or given.partition("#")[0].endswith(".toml"):
        return recipe_to_dict(load_recipe(given).recipe)
    return given


def status(
    bisection_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of a bisection; none: the newest ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many of the newest ones.")] = 20,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Show one bisection, or the newest ones."""
    with make_client(server, token_file) as client:
        answer = client.list(limit) if bisection_id is None else client.get(bisection_id)
    if as_json:
        options.print_json(answer)
    elif bisection_id is None:
        _print_list(answer["items"])
    else:
        print_verdict(options.standard_output(), answer)


def _print_list(items: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("id", "state", "outcome", "repository", "range"):
        table.add_column(name, no_wrap=True)
    table.add_column("verdict")
    for item in items:
        ends = f"{short(str(item.get('good', '')))}..{short(str(item.get('bad', '')))}"
        cells = (item["id"], item["state"], item.get("outcome") or "", item.get("repository", ""))
        text = item.get("sentence") or ""
        table.add_row(*(Text(printable(cell)) for cell in (*cells, ends, text)))
    options.standard_output().print(table)


def watch(
    bisection_id: BisectionId,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Follow a bisection until it is finished.

    Ends with its verdict and exit code.
    """
    with make_client(server, token_file) as client:
        verdict = _follow(client, bisection_id)
    _finish(verdict, as_json)


def _follow(client: Client, bisection_id: str) -> dict[str, Any]:
    verdict = client.get(bisection_id)
    if verdict.get("outcome") is None:
        count = int((verdict.get("positions") or {}).get("bad") or 0)
        model = ProgressModel(axis=[("", "")] * (count + 1), unit=str(verdict.get("unit") or ""))
        with ProgressView(options.standard_error(), model) as view:
            for event in client.follow(bisection_id):
                view.on_event(event)
        verdict = client.get(bisection_id)
    return verdict


def _finish(verdict: dict[str, Any], as_json: bool) -> None:
    if as_json:
        options.print_json(verdict)
    else:
        print_verdict(options.standard_output(), verdict)
    raise typer.Exit(exit_code(verdict))


def cancel(
    bisection_id: BisectionId,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask for the end of a bisection; what it measured is kept."""
    with make_client(server, token_file) as client:
        verdict = client.cancel(bisection_id)
    if as_json:
        options.print_json(verdict)
    else:
        typer.echo(verdict.get("sentence") or sentence(verdict))
