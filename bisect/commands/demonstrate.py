"""``perfbisect demo``: the main job on a repository made for it, compared with the known truth."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from perfbisect.commands import options
from perfbisect.commands.search import open_services, search
from perfbisect.commands.serving import run_server
from perfbisect.commands.showing import print_verdict
from perfbisect.config import load_recipe, recipe_to_dict
from perfbisect.demo import DIRECTORY
from perfbisect.demo.repository import (
    BENCHMARK,
    RECIPE_BAZEL,
    RECIPE_LOCAL,
    DemoRepository,
    generate,
)
from perfbisect.errors import BadInputError
from perfbisect.report import exit_code, format_change, printable, short
from perfbisect.settings import Settings

#: Where the demo keeps everything unless told otherwise: in the current directory.
DATA_DIR = Path("perfbisect-data")


def demo(
    docker: Annotated[
        bool,
        typer.Option("--docker", help="Insist on Docker and Bazel; else the compiler at hand."),
    ] = False,
    base_image: Annotated[
        str | None,
        typer.Option(help="With --docker: build on this image, where none can be pulled."),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the evidence on a page afterwards.")
    ] = False,
    port: Annotated[int | None, typer.Option(help="Port of the page.")] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            parser=options.path_option("--data-dir"),
            metavar="PATH",
            help="Where everything is kept [env: PERFBISECT_DATA_DIR; ./perfbisect-data].",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the known performance changes of a generated repository.

    The very same search as ``perfbisect bisect``: real builds, real runs of a real benchmark.
    """
    settings = demo_settings(data_dir, port)
    recipe = demo_recipe(docker=docker, base_image=base_image)
    if not docker:
        refuse_without_compiler()
    repository = generate(settings.data_dir / DIRECTORY)
    how = "Docker and Bazel" if docker else "the compiler at hand (--docker: Docker and Bazel)"
    options.say(f"Demo repository: {repository.path}, built with {how}.")
    verdict = _search(settings, repository, recipe)
    told = truth_told(repository, verdict)
    if as_json:
        options.print_json({**verdict, "demo": told})
    else:
        console = options.standard_output()
        print_verdict(console, verdict)
        print_truth(console, told)
        _print_next(console, settings, repository, RECIPE_BAZEL if docker else RECIPE_LOCAL)
    if serve:
        options.say(f"The page: http://{settings.bind}:{settings.port}/bisections/{verdict['id']}")
        run_server(settings)
    raise typer.Exit(exit_code(verdict) or (0 if told["as_expected"] else 1))


def demo_recipe(*, docker: bool, base_image: str | None) -> str | dict[str, Any]:
    """Return the recipe as a request has it.

    Raises:
        BadInputError: a base image without Docker.
    """
    if base_image is None:
        return str(RECIPE_BAZEL if docker else RECIPE_LOCAL)
    if not docker:
        raise BadInputError(
            "--base-image: only builds in Docker have a base image; add --docker",
            field="base_image",
            value=base_image,
        )
    return {**recipe_to_dict(load_recipe(str(RECIPE_BAZEL)).recipe), "base_image": base_image}


def demo_settings(data_dir: Path | None, port: int | None) -> Settings:
    """Return settings whose data directory is in the current one unless it was chosen."""
    settings = options.make_settings(data_dir=data_dir, port=port)
    if "data_dir" in settings.model_fields_set:
        return settings
    return options.make_settings(data_dir=DATA_DIR, port=port)


def refuse_without_compiler() -> None:
    """Refuse early where nothing could be built.

    Raises:
        BadInputError: says what to install.
    """
    missing = [name for name in ("git", "g++") if shutil.which(name) is None]
    if missing:
        raise BadInputError(
            f"the demo needs {' and '.join(missing)}; on Debian: apt-get install git g++ "
            "('perfbisect doctor' shows what this machine has)"
        )


def _search(
    settings: Settings, repository: DemoRepository, recipe: str | dict[str, Any]
) -> dict[str, Any]:
    request = options.make_request(
        repository=str(repository.path),
        good=repository.good,
        bad=repository.bad,
        recipe=recipe,
        benchmark=str(BENCHMARK),
    )
    with open_services(settings) as services:
        return search(services, request, base_dir=Path.cwd())


def truth_told(repository: DemoRepository, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the steps that the demo's history is known to have, each found or not.

    ``as_expected``: each known step is among the culprits, and there is no other culprit.
    """
    culprits = [set(culprit.get("commits") or ()) for culprit in verdict.get("culprits") or ()]
    known = {step.commit for step in repository.truth}
    steps = [
        {
            "commit": step.commit,
            "subject": step.subject,
            "kind": str(step.kind),
            "change": step.change,
            "found": any(step.commit in commits for commits in culprits),
        }
        for step in repository.truth
    ]
    wrong = [sorted(commits) for commits in culprits if not commits & known]
    return {
        "steps": steps,
        "wrong": wrong,
        "as_expected": all(step["found"] for step in steps) and not wrong,
    }


def print_truth(console: Console, told: Mapping[str, Any]) -> None:
    """Print what the demo's history says beside what was found."""
    console.print()
    console.print(Text("The demo's history says:"))
    for step in told["steps"]:
        mark = "found" if step["found"] else "MISSED"
        about = f"{step['kind']} of about {format_change(step['change'])}"
        line = f"  {mark:6}  {short(step['commit'])}  {about}  {printable(step['subject'])}"
        console.print(Text(line))
    for commits in told["wrong"]:
        names = ", ".join(short(sha) for sha in commits)
        console.print(Text(f"  WRONG   {names}  named, but the history knows of no step there"))


def _print_next(
    console: Console, settings: Settings, repository: DemoRepository, recipe: Path
) -> None:
    good, bad = short(repository.good), short(repository.bad)
    for line in (
        "",
        f"Evidence: {settings.data_dir}",
        f"See it:   perfbisect serve --data-dir {settings.data_dir}",
        "The same by hand:",
        f"  perfbisect bisect --data-dir {settings.data_dir} --repo {repository.path} \\",
        f"    --good {good} --bad {bad} --recipe {recipe} --benchmark {BENCHMARK}",
    ):
        console.print(Text(line))
