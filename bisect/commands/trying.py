"""``perfbisect try``: experiments in the foreground, measured against a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.text import Text

from perfbisect.commands import options
from perfbisect.commands.following import EventLines
from perfbisect.commands.search import Interrupted, InterruptFlag, open_services
from perfbisect.core.revision import Action, RevisionSyntaxError, parse_revision
from perfbisect.errors import BadInputError
from perfbisect.report import experiment_exit_code, experiment_lines, plural
from perfbisect.request_models import ArmRequest, ExperimentRequest
from perfbisect.routers.subjects import subject_of
from perfbisect.services import Services
from perfbisect.store.tables import ExperimentRow

Repo = Annotated[
    str | None, typer.Option("--repo", help="Repository under test: a local path or a URL.")
]
Recipe = Annotated[
    str | None,
    typer.Option("--recipe", help="How to build: a name, or a TOML file (FILE or FILE#NAME)."),
]
Benchmark = Annotated[
    str | None,
    typer.Option(
        "--benchmark", help="What to measure: a name, or a TOML file (FILE or FILE#NAME)."
    ),
]
FromBisection = Annotated[
    str | None,
    typer.Option(
        "--bisection",
        metavar="ID",
        help="Take repository, recipe, benchmark and base (its bad end) from this bisection.",
    ),
]
Base = Annotated[
    str | None, typer.Option("--base", help="Commit, branch or tag that changes are applied to.")
]
Reverts = Annotated[
    list[str] | None, typer.Option("--revert", help="Revert this commit; may be repeated.")
]
Picks = Annotated[
    list[str] | None, typer.Option("--pick", help="Cherry-pick this commit; may be repeated.")
]
Patches = Annotated[
    list[Path] | None, typer.Option("--patch", help="Apply this patch file; may be repeated.")
]
Envs = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="K=V", help="Environment of the benchmark; may be repeated."),
]
Against = Annotated[
    str | None,
    typer.Option(help="The reference, e.g. 'r2.0 revert abc123'; else --base without changes."),
]
Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="REVISION",
        help="A further revision, e.g. 'r2.0 revert abc123 pick def456'; may be repeated.",
    ),
]
Switches = Annotated[
    list[str] | None,
    typer.Option(
        "--switch",
        metavar="K=V",
        help="Measure each revision also with this variable set; may be repeated.",
    ),
]


def try_(
    repo: Repo = None,
    recipe: Recipe = None,
    benchmark: Benchmark = None,
    bisection: FromBisection = None,
    base: Base = None,
    revert: Reverts = None,
    pick: Picks = None,
    patch: Patches = None,
    env: Envs = None,
    against: Against = None,
    arm: Arms = None,
    switch: Switches = None,
    minimise_reverts: Annotated[
        bool,
        typer.Option(
            help="Find the smallest set of --revert, or of --bisection's regressions, that "
            "restores the value."
        ),
    ] = False,
    with_prerequisites: Annotated[
        bool, typer.Option(help="Where --pick conflicts, find the commits it needs before it.")
    ] = False,
    carry: options.Carry = None,
    carry_pick: options.CarryPick = None,
    min_effect: options.MinEffect = "3%",
    max_runs: options.MaxRuns = None,
    max_time: options.MaxTime = None,
    host: options.HostName = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure revisions with changes against a reference.

    In balanced order, on one host. Each arm is a base commit with reverts, picks and patches, and
    environment variables.
    """
    settings = options.make_settings(data_dir=data_dir, database_url=database_url, host_name=host)
    # Of a bisection they may be definitions, not names.
    how: str | dict[str, Any] | None = recipe
    what: str | dict[str, Any] | None = benchmark
    if bisection is not None:
        with open_services(settings) as services:
            subject = subject_of(services, bisection, "--bisection")
        repo, base = repo or subject.repository, base or subject.bad
        how, what = how or subject.recipe, what or subject.benchmark
        if minimise_reverts:
            revert = [*(revert or ()), *subject.suspects("--bisection")]
    arms = _arms(base, revert, pick, patch, options.pairs_of(env, "--env"), arm)
    switches = [options.pairs_of([each], "--switch") for each in switch or ()]
    matrix = [*arms, *(_switched(each, extra) for each in arms for extra in switches)]
    request = _request(
        repository=_needed(repo, "--repo"),
        recipe=_needed(how, "--recipe"),
        benchmark=_needed(what, "--benchmark"),
        arms=_worth_measuring(matrix, against),
        against=_parse_arm(against, "--against") if against is not None else None,
        min_effect=min_effect,
        max_runs=max_runs,
        max_time=max_time,
        minimise_reverts=minimise_reverts,
        with_prerequisites=with_prerequisites,
        carry=options.read_patches(carry, "--carry"),
        carry_pick=tuple(carry_pick or ()),
    )
    with open_services(settings) as services:
        verdict = experiment(services, request, base_dir=Path.cwd())
        if as_json:
            options.print_json(verdict)
        else:
            for line in experiment_lines(verdict):
                options.standard_output().print(Text(line))
    raise typer.Exit(experiment_exit_code(verdict))


def _needed(value: Any, option: str) -> Any:
    if value is None:
        raise BadInputError(f"{option} is needed (or --bisection)", field=option)
    return value


def _arms(
    base: str | None,
    revert: list[str] | None,
    pick: list[str] | None,
    patch: list[Path] | None,
    env: dict[str, str],
    further: list[str] | None,
) -> list[ArmRequest]:
    arms = []
    if base is not None:
        patches = tuple(_read_patch(path) for path in patch or ())
        arms.append(
            _arm(
                base=base,
                revert=tuple(revert or ()),
                pick=tuple(pick or ()),
                patch=patches,
                env=env,
            )
        )
    elif revert or pick or patch:
        raise BadInputError(
            "--revert, --pick and --patch need --base: the commit they are applied to",
            field="--base",
        )
    arms += [_switched(_parse_arm(text, "--arm"), env) for text in further or ()]
    if not arms:
        raise BadInputError("nothing to measure: give --base or --arm", field="--base")
    return arms


def _worth_measuring(arms: list[ArmRequest], against: str | None) -> list[ArmRequest]:
    """Leave out the plain base where it is the reference itself."""
    if against is not None:
        return arms
    plain = ArmRequest(base=arms[0].base)
    changed = [arm for arm in arms if arm != plain]
    if not changed:
        raise BadInputError(
            "the arm is its own reference: give a change (--revert, --pick, --patch, --env, "
            "--switch), another --arm, or --against",
            field="--against",
        )
    return changed


def _parse_arm(text: str, option: str) -> ArmRequest:
    try:
        revision = parse_revision(text)
    except RevisionSyntaxError as error:
        raise BadInputError(f"{option}: {error}", field=option, value=text) from error
    if any(change.kind is Action.PATCH for change in revision.changes):
        raise BadInputError(f"{option}: patches are given by --patch", field=option, value=text)
    return _arm(
        option,
        base=revision.base,
        revert=tuple(c.ref for c in revision.changes if c.kind is Action.REVERT),
        pick=tuple(c.ref for c in revision.changes if c.kind is Action.PICK),
    )


def _arm(option: str | None = None, **fields: Any) -> ArmRequest:
    """Return an arm; what can't be right is told with ``option``, or with that of its field."""
    try:
        return ArmRequest(**fields)
    except ValidationError as error:
        item = error.errors()[0]
        option = option or options.option_name(str(item["loc"][0]))
        # A patch may be long.
        message = f"{option}: {item['msg']}, not {item['input']!r:.100}"
        raise BadInputError(message, field=option) from error


def _switched(arm: ArmRequest, env: dict[str, str]) -> ArmRequest:
    return arm.model_copy(update={"env": {**arm.env, **env}}) if env else arm


def _read_patch(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise BadInputError(
            f"--patch: '{path}' can't be read: {why}", field="--patch", value=str(path)
        ) from error
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"--patch: '{path}' is no text in UTF-8", field="--patch", value=str(path)
        ) from error


def _request(**fields: Any) -> ExperimentRequest:
    try:
        return ExperimentRequest(**fields)
    except ValidationError as error:
        item = error.errors()[0]
        name = options.option_name(str(item["loc"][0]))
        secret = item["type"] == "credentials"
        message = item["msg"] if secret else f"{item['msg']}, not {item['input']!r:.100}"
        raise BadInputError(f"{name}: {message}", field=name) from error


def experiment(services: Services, request: ExperimentRequest, *, base_dir: Path) -> dict[str, Any]:
    """Submit an experiment or find its unfinished one, and conduct it in the foreground."""
    # Imported late for the reason that ``search.search`` gives.
    from perfbisect.experiments import submit_experiment
    from perfbisect.wiring import make_conductor

    submitted = submit_experiment(
        services,
        request,
        requested_by=options.requester(),
        origin="command line",
        base_dir=base_dir,
        allow_local=True,
        resume=True,
        progress=options.say,
    )
    word = "Resuming experiment" if submitted.resumed else "Experiment"
    options.say(f"{word} {submitted.id}: {plural(submitted.arms, 'arm')}.")
    conductor = make_conductor(services, only=[submitted.id])
    follow = EventLines(services, submitted.id, options.say)
    with InterruptFlag() as interrupt:
        try:

            def tick() -> None:
                interrupt.check()
                follow.say_new()

            conductor.conduct_until_finished(submitted.id, tick)
        except Interrupted:
            options.say("Stopping: what is under way is cancelled; what was measured is kept.")
        finally:
            conductor.stop()
    follow.say_new()
    return stored_experiment(services, submitted.id)


def stored_experiment(services: Services, experiment_id: str) -> dict[str, Any]:
    """Return an experiment's answer as stored; before the first one, what is known of it."""
    with services.database.read() as session:
        row = session.get_one(ExperimentRow, experiment_id)
        verdict = dict(row.verdict or {"id": row.id, "kind": row.kind, "arms": []})
        verdict |= {"state": row.state, "outcome": row.outcome}
        if row.error:
            verdict["error"] = row.error
        return verdict
