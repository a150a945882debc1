"""``perfbisect bisect``: the whole job in the foreground, and ``export`` of what it measured."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from perfbisect.commands import options
from perfbisect.commands.following import ProofLines
from perfbisect.commands.showing import show_verdict
from perfbisect.core.states import Find
from perfbisect.errors import BadInputError
from perfbisect.progress import ProgressModel, ProgressView
from perfbisect.report import cost_line, exit_code, plural, points_csv, to_json
from perfbisect.request_models import BisectionRequest
from perfbisect.routers import present
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store import queries


def bisect(
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
    prove: options.Prove = True,
    path: options.Paths = None,
    carry: options.Carry = None,
    carry_pick: options.CarryPick = None,
    prereleases: options.Prereleases = None,
    engine: options.Engine = None,
    ray_address: options.RayAddress = None,
    host: options.HostName = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Find every commit that changed a benchmark, and prove each one.

    Or every version of a package. Builds and runs on this machine, or on a Ray cluster. The same
    command again goes on with what is unfinished.
    """
    request = options.make_request(
        package=package,
        repository=repo,
        good=good,
        bad=bad,
        recipe=recipe,
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
        prove=prove,
        paths=tuple(path or ()),
        carry=options.read_patches(carry, "--carry"),
        carry_pick=tuple(carry_pick or ()),
        prereleases=prereleases,
    )
    settings = options.make_settings(
        data_dir=data_dir,
        database_url=database_url,
        host_name=host,
        engine=engine,
        ray_address=ray_address,
    )
    with open_services(settings) as services:
        verdict = search(services, request, base_dir=Path.cwd())
        show_verdict(services, verdict, as_json=as_json)
    raise typer.Exit(exit_code(verdict))


@contextmanager
def open_services(settings: Settings) -> Iterator[Services]:
    """Yield open services and close them afterwards."""
    services = Services.open(settings)
    try:
        yield services
    finally:
        services.close()


def search(services: Services, request: BisectionRequest, *, base_dir: Path) -> dict[str, Any]:
    """Submit a request or find its unfinished bisection, and conduct it in the foreground.

    Args:
        base_dir: where ``perfbisect.toml`` and relative files of the request are.

    Returns:
        the verdict; its ``outcome`` is None when the search was interrupted.
    """
    from perfbisect.submission import submit

    submitted = submit(
        services,
        request,
        requested_by=options.requester(),
        origin="command line",
        base_dir=base_dir,
        allow_local=True,
        resume=True,
        progress=options.say,
    )
    if submitted.resumed:
        so_far = cost_line(stored_verdict(services, submitted.id))
        options.say(f"Resuming bisection {submitted.id} ({so_far} so far).")
    else:
        what = "commit" if request.repository is not None else "version"
        count = plural(submitted.candidates - 1, what)
        options.say(f"Bisection {submitted.id}: {count} to choose from.")
    return conduct(services, submitted.id)


def conduct(services: Services, bisection_id: str) -> dict[str, Any]:
    """Conduct a bisection until it is finished or interrupted, with progress on standard error."""
    view = _make_view(services, bisection_id)
    with services.database.read() as session:
        last_event = queries.last_event_id(session, bisection_id)
    # Builders, Docker's client and the planner's mathematics take long to import, and commands
    # that only look at something must not wait for them.
    from perfbisect.wiring import make_conductor

    conductor = make_conductor(services, only=[bisection_id])
    proofs = ProofLines(services, bisection_id, view.say)
    interrupt = InterruptFlag()

    def follow() -> None:
        nonlocal last_event
        interrupt.check()
        with services.database.read() as session:
            for event in queries.events_after(session, bisection_id, last_event):
                last_event = event.id
                view.on_event(event)
        proofs.say_new()

    with interrupt:
        try:
            with view:
                conductor.conduct_until_finished(bisection_id, follow)
        except Interrupted:
            options.say("Stopping: what is under way is cancelled; what was measured is kept.")
        finally:
            conductor.stop()
    verdict = stored_verdict(services, bisection_id)
    if verdict.get("outcome") is None:
        _say_interrupted(verdict)
    return verdict


def _make_view(services: Services, bisection_id: str) -> ProgressView:
    with services.database.read() as session:
        row = queries.get_bisection(session, bisection_id).row
        candidates = queries.axis_of(session, bisection_id).candidates
        stored = row.verdict or {}
        model = ProgressModel(
            axis=[(each.sha, each.subject) for each in candidates],
            unit=str(row.benchmark.get("unit", "")),
            noun="commit" if row.repository_id is not None else "version",
            builds_done=int(stored.get("builds") or 0),
            runs_done=int(stored.get("runs") or 0),
            belief=stored,
        )
    return ProgressView(options.standard_error(), model)


def stored_verdict(services: Services, bisection_id: str) -> dict[str, Any]:
    """Return the verdict as stored; before the first one, what is known of the bisection.

    Raises:
        NotFoundError: no such bisection.
    """
    with services.database.read() as session:
        return present.verdict_of(queries.get_bisection(session, bisection_id))


def _say_interrupted(verdict: dict[str, Any]) -> None:
    options.say(
        f"Interrupted after {cost_line(verdict)}. The same command goes on from here; "
        "nothing that is stored is built or run again."
    )


class Interrupted(Exception):
    """Ctrl-C or a polite kill, raised at a place where everything is stored."""


class InterruptFlag:
    """Makes the first SIGINT or SIGTERM a flag, so that no write is torn; the second raises."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> InterruptFlag:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def check(self) -> None:
        """Raise ``Interrupted`` if the end was asked for."""
        if self._asked:
            raise Interrupted


def export(
    bisection_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a bisection.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")
    ] = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Write every point that speaks for a bisection.

    As CSV, or with --json together with the verdict.
    """
    settings = options.make_settings(data_dir=data_dir, database_url=database_url)
    with open_services(settings) as services, services.database.read() as session:
        listing = queries.get_bisection(session, bisection_id)
        axis = queries.axis_of(session, bisection_id)
        points = [
            present.axis_point_of(row, axis).model_dump(mode="json")
            for row in queries.axis_points(session, listing.row)
        ]
        verdict = present.verdict_of(listing)
    text = to_json({"verdict": verdict, "points": points}) + "\n" if as_json else points_csv(points)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"--output: {output} can't be written: {error.strerror}",
            field="output",
            value=str(output),
        ) from error
    options.say(f"{plural(len(points), 'point')} in {output}")
