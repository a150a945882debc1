"""Options that several commands share, and what every command needs to speak."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from perfbisect.core.states import Find
from perfbisect.errors import BadInputError, why_unreadable
from perfbisect.report import to_json
from perfbisect.request_models import BisectionRequest, RecipeSwitch
from perfbisect.settings import Settings


def path_option(option: str) -> Callable[[str], Path]:
    """Return the parser of an option that names a place to write to.

    An empty text, as of a variable that a script never set, would be the current directory.
    """

    def parse(text: str) -> Path:
        _refuse_empty(option, text)
        return Path(text)

    return parse


def _refuse_empty(option: str, value: object) -> None:
    if value == "":
        raise BadInputError(
            f"{option}: '' is empty; give a value, or leave the option out",
            field=option,
            value=value,
        )


Repo = Annotated[str, typer.Option("--repo", help="Repository under test: a local path or a URL.")]
RepoOrNone = Annotated[
    str | None, typer.Option("--repo", help="Repository under test: a local path or a URL.")
]
Package = Annotated[
    str | None,
    typer.Option(
        "--package",
        help="Bisect the published wheels of this package; with --repo, its nightlies are wheels "
        "of commits that need no build.",
    ),
]
Prereleases = Annotated[
    bool | None,
    typer.Option(
        "--prereleases/--no-prereleases",
        help="Published pre-releases between the ends, or none; else if both ends are some.",
        show_default=False,
    ),
]
Good = Annotated[
    str, typer.Option("--good", help="Good end: a revision, or a version or night of --package.")
]
Bad = Annotated[
    str, typer.Option("--bad", help="Bad end: a revision, or a version or night of --package.")
]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="How to build: a name, or a TOML file (FILE or FILE#NAME).")
]
RecipeOrNone = Annotated[
    str | None,
    typer.Option(
        "--recipe", help="How to build: a name, or a TOML file (FILE or FILE#NAME); with --repo."
    ),
]
RecipeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--recipe-option",
        help="Turn an option of a Bazel recipe on or off: 'xla=on', 'cuda=off'; may be repeated.",
    ),
]
BenchmarkName = Annotated[
    str,
    typer.Option(
        "--benchmark", help="What to measure: a name, or a TOML file (FILE or FILE#NAME)."
    ),
]
Envs = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="K=V",
        help="Environment of the benchmark, on top of its own; may be repeated.",
    ),
]
BisectCompanion = Annotated[
    str | None,
    typer.Option(
        "--bisect-companion",
        metavar="NAME",
        help="Bisect this companion of the benchmark: --good and --bad are its revisions, and "
        "the wheel of --at is used throughout.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="With --bisect-companion: version of --package, or revision of --repo that --recipe "
        "has built before.",
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(help="Where good ends: a value ('6000') or a share of the good end ('70%')."),
]
MinEffect = Annotated[str, typer.Option(help="Smallest relative change worth naming.")]
FindWhat = Annotated[
    Find, typer.Option("--find", help="The first crossing, all steps, or the step that fixed it.")
]
Confidence = Annotated[float, typer.Option(help="Probability the answer must reach.")]
MaxRuns = Annotated[int | None, typer.Option(help="Stop after this many runs.")]
MaxBuilds = Annotated[int | None, typer.Option(help="Stop after this many builds.")]
MaxTime = Annotated[str | None, typer.Option(help="Stop after this long: '90m', '6h'.")]
Probe = Annotated[
    int, typer.Option(help="Measure this many positions even if the ends look alike.")
]
AllParents = Annotated[
    bool, typer.Option("--all-parents", help="All commits of merges, not first parents only.")
]
Prove = Annotated[
    bool,
    typer.Option(
        "--prove/--no-prove",
        help="Prove each culprit: revert it on the bad end, pick it onto the good end.",
    ),
]
Carry = Annotated[
    list[Path] | None,
    typer.Option(
        "--carry",
        metavar="FILE",
        help="Patch applied to every commit that does not have it and to which it applies; may be "
        "repeated.",
    ),
]
CarryPick = Annotated[
    list[str] | None,
    typer.Option(
        "--carry-pick",
        metavar="SHA",
        help="Commit carried along in the same way; may be repeated.",
    ),
]
Paths = Annotated[
    list[str] | None,
    typer.Option("--path", help="Only commits that touch this path; may be repeated."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=path_option("--data-dir"),
        metavar="PATH",
        help="Where the database, wheels and logs are [env: PERFBISECT_DATA_DIR].",
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help="SQLAlchemy URL; SQLite in the data directory [env: PERFBISECT_DATABASE_URL]."
    ),
]
HostName = Annotated[
    str | None,
    typer.Option("--host", help="Name of this machine as a host [env: PERFBISECT_HOST_NAME]."),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine", help="Where to build and run: local or ray [env: PERFBISECT_ENGINE; local]."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Head of the Ray cluster [env: PERFBISECT_RAY_ADDRESS; that of this machine's node].",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]

#: Field of a request -> the option that sets it, where they differ by more than dashes.
_OPTION_NAMES = {
    "repository": "--repo",
    "paths": "--path",
    "recipe_options": "--recipe-option",
    "host_name": "--host",
}


def standard_output() -> Console:
    """Return the console of answers."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def standard_error() -> Console:
    """Return the console of progress, remarks and errors."""
    return Console(file=sys.stderr, highlight=False)


def say(text: str) -> None:
    """Print a remark for people on standard error."""
    typer.echo(text, err=True)


def pairs_of(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Return the variables of ``NAME=VALUE`` options.

    Raises:
        BadInputError: one has no ``=``, or no name.
    """
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise BadInputError(
                f"{option}: '{text}' should be NAME=VALUE, e.g. TF_XLA_FLAGS=--tf_xla_auto_jit=2",
                field=option,
                value=text,
            )
        pairs[key] = value
    return pairs


def print_json(value: Mapping[str, Any]) -> None:
    """Print the one JSON object of a command."""
    typer.echo(to_json(value))


def requester() -> str:
    """Return who asks: the user's login name, as far as the machine knows one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def make_settings(**chosen: Any) -> Settings:
    """Return the settings of the environment, overridden by the options that were given.

    Raises:
        BadInputError: an option is empty, or a setting can't be right; names it and its variable.
    """
    for name, value in chosen.items():
        _refuse_empty(option_name(name), value)
    given = {name: value for name, value in chosen.items() if value is not None}
    if isinstance(given.get("data_dir"), Path):
        given["data_dir"] = given["data_dir"].expanduser().absolute()
    try:
        return Settings(**given)
    except ValidationError as error:
        item = error.errors()[0]
        name = str(item["loc"][0]) if item["loc"] else ""
        setting = f"setting {name} (PERFBISECT_{name.upper()})"
        if item["type"] == "credentials":
            raise BadInputError(f"{setting}: {item['msg']}", field=name) from None
        raise BadInputError(
            f"{setting}: {item['msg'].removeprefix('Value error, ')}, not {item['input']!r}",
            field=name,
            value=item["input"],
        ) from error


def read_patches(paths: Iterable[Path] | None, option: str) -> tuple[str, ...]:
    """Return the texts of patch files.

    Raises:
        BadInputError: one can't be read.
    """
    texts = []
    for path in paths or ():
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(
                f"{option}: '{path}' can't be read: {why_unreadable(error)}",
                field=option,
                value=str(path),
            ) from error
    return tuple(texts)


def make_request(**fields: Any) -> BisectionRequest:
    """Return the request of a command line.

    Raises:
        BadInputError: a field can't be right; names the option, the value and what would be.
    """
    try:
        return BisectionRequest(**fields)
    except ValidationError as error:
        item = error.errors()[0]
        name = str(item["loc"][0]) if item["loc"] else ""
        option = option_name(name)
        raise BadInputError(_wrong(option, item), field=option, value=item["input"]) from error


def _wrong(option: str, item: Any) -> str:
    """Return what is wrong with an option: pydantic's message, or a better one."""
    if item["type"] == "missing":
        other = " (or --package)" if option == "--repo" else ""
        return f"{option} is needed{other}"
    if item["type"] in ("credentials", "no_repository", "no_package", "no_companion"):
        return f"{option}: {item['msg']}"
    # A patch may be long.
    return f"{option}: {item['msg']}, not {item['input']!r:.100}"


def parse_switches(given: list[str] | None) -> dict[str, bool]:
    """Return options of a recipe by name: ``xla=on`` is ``{"xla": True}``.

    Raises:
        BadInputError: it is written otherwise, or there is no such option.
    """
    switches = {}
    for text in given or ():
        name, _, value = text.partition("=")
        if name not in list(RecipeSwitch) or value not in ("on", "off"):
            raise BadInputError(
                f"--recipe-option: {text!r} is not one of {', '.join(RecipeSwitch)} with '=on' or "
                "'=off'",
                field="--recipe-option",
                value=text,
            )
        switches[name] = value == "on"
    return switches


def option_name(field: str) -> str:
    """Return the option that sets a field of a request: ``min_effect`` is ``--min-effect``."""
    return _OPTION_NAMES.get(field, f"--{field.replace('_', '-')}")
