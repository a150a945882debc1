"""``perfbisect simulate``: what a search will cost, by the real planner against simulated hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from perfbisect.commands import options
from perfbisect.core.states import Find
from perfbisect.errors import BadInputError
from perfbisect.units import format_duration, parse_duration, parse_percent

if TYPE_CHECKING:
    from perfbisect.core.simulation import Estimate, Spread

_CHANGE = re.compile(r"([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*%")

_STEP_HELP = "A change of the mean: '-10%'; may be repeated. '0%' alone: no change at all."


def simulate(
    commits: Annotated[int, typer.Option(min=1, max=100_000, help="Commits of the range.")] = 1000,
    step: Annotated[list[str] | None, typer.Option(help=f"{_STEP_HELP} [default: -10%]")] = None,
    noise: Annotated[str, typer.Option(help="Standard deviation of one run.")] = "2%",
    outliers: Annotated[str, typer.Option(help="Share of runs that are far too slow.")] = "0%",
    unbuildable: Annotated[str, typer.Option(help="Share of commits that do not build.")] = "0%",
    prebuilt_every: Annotated[
        int, typer.Option(min=0, help="A wheel is there already every so many commits; 0: none.")
    ] = 0,
    drift: Annotated[str, typer.Option(help="Slow waves of every host's speed.")] = "0%",
    host_offset: Annotated[str, typer.Option(help="How much hosts differ in speed.")] = "0%",
    workers: Annotated[
        int, typer.Option(min=1, max=1000, help="Hosts; as many builds go on at once.")
    ] = 1,
    build_seconds: Annotated[str, typer.Option(help="Duration of a build.")] = "3600",
    run_seconds: Annotated[str, typer.Option(help="Duration of a run.")] = "300",
    find: options.FindWhat = Find.ALL,
    threshold: options.Threshold = None,
    min_effect: options.MinEffect = "3%",
    confidence: options.Confidence = 0.99,
    max_runs: options.MaxRuns = None,
    max_builds: options.MaxBuilds = None,
    max_time: options.MaxTime = None,
    probe: options.Probe = 0,
    trials: Annotated[int, typer.Option(min=1, max=100_000, help="Simulated searches.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: one per processor.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate searches: how often they are right, and what they cost.

    The real planner against simulated builds and hosts.
    """
    # The planner's mathematics take long to import; other commands must not wait for them.
    from perfbisect.core.simulation import SimulationSpec
    from perfbisect.submission import make_policy
    from perfbisect.trials import run_trials

    request = options.make_request(
        repository="-",
        good="-",
        bad="-",
        recipe="-",
        benchmark="-",
        threshold=threshold,
        min_effect=min_effect,
        find=find,
        confidence=confidence,
        max_runs=max_runs,
        max_builds=max_builds,
        max_time=max_time,
        probe=probe,
    )
    spec = SimulationSpec(
        commits=commits,
        steps=parse_steps(step if step is not None else ["-10%"], commits),
        noise=_share(noise, "--noise"),
        outliers=_share(outliers, "--outliers"),
        unbuildable=_share(unbuildable, "--unbuildable"),
        prebuilt_every=prebuilt_every,
        drift=_share(drift, "--drift"),
        host_offset=_share(host_offset, "--host-offset"),
        workers=workers,
        build_seconds=parse_duration(build_seconds, "--build-seconds"),
        run_seconds=parse_duration(run_seconds, "--run-seconds"),
        policy=make_policy(request),
    )
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=options.standard_error(), transient=True) as progress:
        task = progress.add_task("", total=trials)
        estimate = run_trials(
            spec,
            trials,
            seed,
            jobs=jobs or len(os.sched_getaffinity(0)),
            on_done=lambda: progress.advance(task),
        )
    if as_json:
        options.print_json({"spec": asdict(spec), "seed": seed, "estimate": asdict(estimate)})
    else:
        _print(estimate)


def parse_steps(given: Sequence[str], commits: int) -> tuple[float, ...]:
    """Return relative changes of ``-10%``, ``+200%``; ``0%`` is no step.

    Raises:
        BadInputError: not a change, a loss of everything, or more steps than commits.
    """
    steps = []
    for text in given:
        match = _CHANGE.fullmatch(text.strip())
        change = float(match.group(2)) / 100 if match else 0.0
        change = -change if match and match.group(1) == "-" else change
        if match is None or change <= -1:
            raise BadInputError(
                f"--step: {text!r} is not a change greater than -100% like '-10%' or '+25%'",
                field="step",
                value=text,
            )
        if change:
            steps.append(change)
    if len(steps) > commits:
        raise BadInputError(
            f"--step: {len(steps)} steps do not fit on {commits} commits", field="step"
        )
    return tuple(steps)


def _share(text: str, field: str) -> float:
    if text.strip() in ("0", "0%"):
        return 0.0
    return parse_percent(text, field)


def _print(estimate: Estimate) -> None:
    console = options.standard_output()
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(estimate.outcomes.items()))
    console.print(
        f"{estimate.trials} searches: exactly the right commits in {estimate.exact:.1%}, "
        f"a wrong one in {estimate.wrong:.1%}; mean stated probability {estimate.probability:.1%}"
    )
    console.print(f"Outcomes: {outcomes}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "mean", "median", "95% within"):
        table.add_column(name, justify="left" if not name else "right")
    _rows(table, estimate)
    console.print(table)


def _rows(table: Table, estimate: Estimate) -> None:
    def add(name: str, spread: Spread, duration: bool = False) -> None:
        values = (spread.mean, spread.median, spread.p95)
        cells = (format_duration(v) if duration else f"{v:.1f}" for v in values)
        table.add_row(name, *cells)

    add("builds", estimate.builds)
    add("runs", estimate.runs)
    add("rounds", estimate.rounds)
    add("wall time", estimate.wall_seconds, duration=True)
    add("machine time", estimate.machine_seconds, duration=True)
