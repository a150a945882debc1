"""Live progress of a bisection on standard error: a Rich view, or plain lines without a terminal.

``ProgressModel`` folds events (see the table ``events``) into what people want to know; it does no
I/O and asks no clock, so that the view can be tested by feeding it events.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perfbisect.core.build_progress import bar
from perfbisect.report import (
    format_change,
    format_probability,
    format_value,
    plural,
    printable,
    short,
)
from perfbisect.units import format_duration

#: Cells of the drawn axis at most.
AXIS_WIDTH = 72
#: Decisions shown in the live view.
LAST_DECISIONS = 4

Axis = Sequence[tuple[str, str]]


class EventLike(Protocol):
    """What a follower of events gets: a row of the table, or the same read from a server."""

    @property
    def kind(self) -> str:
        """``build_started``, ``belief``…"""
        ...

    @property
    def data(self) -> Mapping[str, Any]:
        """Facts of this kind of event."""
        ...


@dataclass(frozen=True, slots=True)
class InFlight:
    """A build or a run under way."""

    what: str
    position: int
    host: str
    #: On the clock of whoever feeds the model, seconds.
    since: float
    #: From 0 to 1; None: it does not tell.
    share: float | None = None
    #: Seconds that it still needs, about, as of ``told_at``; None: not known.
    left: float | None = None
    told_at: float = 0.0


@dataclass(slots=True)
class ProgressModel:
    """What the events told so far."""

    #: (commit, subject) of each position; empty where it isn't known.
    axis: Axis = ()
    unit: str = ""
    #: What a position is: a commit or a version.
    noun: str = "commit"
    builds_done: int = 0
    builds_failed: int = 0
    runs_done: int = 0
    runs_failed: int = 0
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    #: position -> ``measured``, ``built`` or ``broken``.
    positions: dict[int, str] = field(default_factory=dict)
    #: position -> commit, as far as events told, where the axis does not know it.
    learnt: dict[int, str] = field(default_factory=dict)
    belief: Mapping[str, Any] = field(default_factory=dict)
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_DECISIONS))
    build_seconds: list[float] = field(default_factory=list)
    run_seconds: list[float] = field(default_factory=list)
    ended: str = ""
    #: Why no build may start; empty: they may.
    paused: str = ""

    def name(self, position: int | None) -> str:
        """Return ``17 (1a2b3c4d5e)``."""
        if position is None:
            return "?"
        known = self.axis[position][0] if 0 <= position < len(self.axis) else ""
        sha = known or self.learnt.get(position, "")
        return f"{position} ({short(sha)})" if sha else str(position)

    def apply(self, event: EventLike, at: float) -> str:
        """Take an event in; return a line about it for a log, or an empty string.

        Args:
            event: of a kind that is not known here, it is passed over.
            at: seconds on any clock that only goes forward.
        """
        handler = _HANDLERS.get(event.kind)
        return handler(self, event.data, at) if handler else ""

    def _decision(self, data: Mapping[str, Any], at: float) -> str:
        where = f" {self.name(data['position'])}" if data.get("position") is not None else ""
        host = f" on {data['host']}" if data.get("host") else ""
        line = f"{data.get('kind', '')}{where}{host}: {printable(data.get('reason', ''))}"
        self.decisions.append(line)
        return f"decided {line}"

    def _started(self, what: str, data: Mapping[str, Any], at: float) -> str:
        work = InFlight(what, int(data["position"]), str(data.get("host") or ""), at)
        self.in_flight[str(data[f"{what}_id"])] = work
        if data.get("sha"):
            self.learnt[work.position] = str(data["sha"])
        # The decision that led to it has had its line.
        return ""

    def _build_started(self, data: Mapping[str, Any], at: float) -> str:
        return self._started("build", data, at)

    def _build_progress(self, data: Mapping[str, Any], at: float) -> str:
        key = str(data.get("build_id"))
        work = self.in_flight.get(key)
        if work is None:
            return ""
        before = int((work.share or 0.0) * 10)
        share, left = float(data.get("share") or 0.0), data.get("seconds_left")
        self.in_flight[key] = replace(
            work, share=share, left=None if left is None else float(left), told_at=at
        )
        if int(share * 10) == before:
            # A line for every tenth is enough where nothing is drawn.
            return ""
        return f"build of {self.name(work.position)}: {share:.0%}{_left(left)}"

    def _paused(self, data: Mapping[str, Any], at: float) -> str:
        self.paused = str(data.get("reason") or "")
        return f"builds wait: {printable(self.paused)}"

    def _resumed(self, data: Mapping[str, Any], at: float) -> str:
        self.paused = ""
        return "builds go on"

    def _run_started(self, data: Mapping[str, Any], at: float) -> str:
        return self._started("run", data, at)

    def _build_finished(self, data: Mapping[str, Any], at: float) -> str:
        work = self.in_flight.pop(str(data.get("build_id")), None)
        seconds = data.get("seconds")
        # A build that another bisection started has no position here.
        position = work.position if work else data.get("position")
        if data.get("state") == "succeeded":
            self.builds_done += 1
            self.build_seconds.append(float(seconds or 0.0))
            self._mark(position, "built")
            return f"build of {self.name(position)} done in {format_duration(seconds or 0.0)}"
        if data.get("failure_kind") == "permanent":
            self._mark(position, "broken")
        self.builds_failed += 1
        return f"build of {self.name(position)} {data.get('state')}: {_cause(data)}"

    def _mark(self, position: int | None, what: str) -> None:
        if position is not None and self.positions.get(position) != "measured":
            self.positions[position] = what

    def _run_finished(self, data: Mapping[str, Any], at: float) -> str:
        self.in_flight.pop(str(data.get("run_id")), None)
        position = int(data["position"])
        if data.get("value") is None:
            self.runs_failed += 1
            return f"run of {self.name(position)} {data.get('state')}: {_cause(data)}"
        self.runs_done += 1
        self.run_seconds.append(float(data.get("seconds") or 0.0))
        self.positions[position] = "measured"
        rejected = f", rejected: {printable(data['rejected'])}" if data.get("rejected") else ""
        unit = data.get("unit") or self.unit
        return f"run of {self.name(position)}: {format_value(data['value'])} {unit}{rejected}"

    def _belief(self, data: Mapping[str, Any], at: float) -> str:
        before = self.belief_line()
        self.belief = data
        line = self.belief_line()
        return f"belief: {line}" if line != before else ""

    def belief_line(self) -> str:
        """Return the steps seen so far, with their probabilities, and the doubt that is left."""
        steps = [
            f"{'/'.join(short(sha) for sha in (culprit.get('commits') or ())[:2])}"
            f"{'…' if len(culprit.get('commits') or ()) > 2 else ''} "
            f"{format_change(culprit.get('change'))} "
            f"(p {format_probability(culprit.get('probability'))}"
            f"{', verified' if culprit.get('verified') else ''})"
            for culprit in self.belief.get("culprits") or ()
        ]
        parts = ["; ".join(steps) if steps else "no step located yet"]
        if self.belief.get("noise") is not None:
            parts.append(f"noise {self.belief['noise']:.1%}")
        if self.belief.get("missed") is not None:
            parts.append(f"steps still expected {self.belief['missed']:.2g}")
        return ", ".join(parts)

    def _cancel(self, data: Mapping[str, Any], at: float) -> str:
        return "asked to cancel"

    def _finished(self, data: Mapping[str, Any], at: float) -> str:
        self.ended = str(data.get("outcome") or "finished")
        self.in_flight.clear()
        return f"finished: {self.ended}"


_HANDLERS: dict[str, Callable[[ProgressModel, Mapping[str, Any], float], str]] = {
    "decision": ProgressModel._decision,
    "build_started": ProgressModel._build_started,
    "build_progress": ProgressModel._build_progress,
    "builds_paused": ProgressModel._paused,
    "builds_resumed": ProgressModel._resumed,
    "build_finished": ProgressModel._build_finished,
    "run_started": ProgressModel._run_started,
    "run_finished": ProgressModel._run_finished,
    "belief": ProgressModel._belief,
    "cancel_requested": ProgressModel._cancel,
    "finished": ProgressModel._finished,
}


def _cause(data: Mapping[str, Any]) -> str:
    return printable(data.get("cause") or "no cause given")


def draw_axis(model: ProgressModel) -> str:
    """Return the axis as a line: ``o`` measured, ``x`` broken, ``^`` a step, ``.`` not tried."""
    count = max(len(model.axis), max(model.positions, default=0) + 1)
    width = min(count, AXIS_WIDTH)
    cells = ["."] * width
    marks = {"built": "o", "measured": "o", "broken": "x"}
    for position, what in sorted(model.positions.items()):
        cell = position * width // count
        cells[cell] = "o" if cells[cell] == "o" else marks[what]
    for culprit in model.belief.get("culprits") or ():
        if culprit.get("position") is not None:
            cells[min(int(culprit["position"]), count - 1) * width // count] = "^"
    return "".join(cells)


def render(model: ProgressModel, elapsed: float, at: float) -> RenderableType:
    """Return the live view.

    Args:
        model: what is known.
        elapsed: seconds since this process began.
        at: the present on the clock that the model was fed with.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, text: str, style: str = "") -> None:
        table.add_row(name, Text(text, style=style))

    commits = plural(max(len(model.axis) - 1, 0), model.noun)
    row("axis", f"{draw_axis(model)}  {commits}, {format_duration(elapsed)} elapsed", "cyan")
    row("belief", model.belief_line())
    for work in model.in_flight.values():
        host = f" on {work.host}" if work.host else ""
        running = format_duration(max(0.0, round(at - work.since)))
        row(
            work.what,
            f"{model.name(work.position)}{host}, {running}{_expected(model, work, at)}",
            "yellow",
        )
    if model.paused:
        row("paused", f"builds wait: {printable(model.paused)}", "red")
    row("done", _done(model))
    decisions = [Text(line, style="dim") for line in model.decisions]
    return Group(table, *decisions)


def _expected(model: ProgressModel, work: InFlight, at: float) -> str:
    """Return how far a piece of work is, or how long its like took."""
    if work.share is None:
        return _usual(model, work)
    left = None if work.left is None else max(work.left - (at - work.told_at), 0.0)
    return f"  {bar(work.share)} {work.share:.0%}{_left(left)}"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f", about {format_duration(round(seconds))} left"


def _usual(model: ProgressModel, work: InFlight) -> str:
    known = model.build_seconds if work.what == "build" else model.run_seconds
    return f" of about {format_duration(round(statistics.median(known)))}" if known else ""


def _done(model: ProgressModel) -> str:
    failed = model.builds_failed + model.runs_failed
    text = f"{plural(model.builds_done, 'build')}, {plural(model.runs_done, 'run')}"
    return f"{text}, {failed} failed" if failed else text


class ProgressView:
    """Shows events as they come: live on a terminal, else one line each. A context manager."""

    def __init__(
        self, console: Console, model: ProgressModel, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.model = model
        self._console = console
        self._clock = clock
        self._start = clock()
        self._live: Live | None = None

    def __enter__(self) -> ProgressView:
        """Begin to draw."""
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=4,
                transient=True,
                # Standard output belongs to the verdict alone.
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop drawing and leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on_event(self, event: EventLike) -> None:
        """Take an event in and show it; may be called from any thread."""
        line = self.model.apply(event, self._clock())
        if line and self._live is None:
            self.say(line)

    def say(self, line: str) -> None:
        """Print a line with the time since the start."""
        elapsed = format_duration(round(self._clock() - self._start))
        self._console.print(Text(f"[{elapsed:>6}] {line}"), soft_wrap=True)

    def _render(self) -> RenderableType:
        at = self._clock()
        return render(self.model, at - self._start, at)


def experiment_line(kind: str, data: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what happened to an experiment in one line; empty where it is not worth one.

    Args:
        names: of its arms.
    """
    place = data.get("position")
    name = names[place] if isinstance(place, int) and place < len(names) else "?"
    if kind == "build_started":
        return f"building '{printable(name)}'"
    if kind == "build_finished" and data.get("state") == "failed":
        return f"a build failed: {printable(str(data.get('cause') or ''))}"
    if kind == "run_finished" and data.get("value") is not None:
        return (
            f"'{printable(name)}': {format_value(data['value'])} {data.get('unit') or ''}".rstrip()
        )
    if kind == "run_finished":
        return f"'{printable(name)}': run failed: {printable(str(data.get('cause') or ''))}"
    if kind == "finished":
        return f"{data.get('outcome')}: {printable(str(data.get('reason') or ''))}"
    return ""
