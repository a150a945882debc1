from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from perfbisect.progress import ProgressModel, ProgressView, draw_axis, render

SHAS = [f"{number:040x}" for number in range(11)]


@dataclass
class Event:
    kind: str
    data: dict[str, Any] = field(default_factory=dict)


def model() -> ProgressModel:
    return ProgressModel(axis=[(sha, "subject") for sha in SHAS], unit="images/s")


def build_events(position: int, state: str = "succeeded", **more: Any) -> list[Event]:
    build = {"build_id": f"b{position}", "position": position, "sha": SHAS[position]}
    done = {"build_id": f"b{position}", "state": state, "seconds": 8.0, **more}
    return [Event("build_started", build), Event("build_finished", done)]


def text_of(view: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_builds_and_runs_are_counted() -> None:
    """What ended counts as done or failed, and only what has not ended is in flight."""
    progress = model()
    for event in build_events(3):
        progress.apply(event, 0.0)
    run = {"run_id": "r", "position": 3, "host": "h", "purpose": "search"}
    progress.apply(Event("run_started", run), 1.0)
    assert [work.position for work in progress.in_flight.values()] == [3]
    done = {**run, "state": "succeeded", "value": 812.0, "unit": "images/s", "seconds": 2.0}
    line = progress.apply(Event("run_finished", done), 3.0)
    assert line == f"run of 3 ({SHAS[3][:10]}): 812 images/s"
    assert (progress.builds_done, progress.runs_done, progress.in_flight) == (1, 1, {})


def test_commits_are_learnt_from_events() -> None:
    """A follower that does not know the axis names a commit once an event told it."""
    progress = ProgressModel(axis=[("", "")] * 11)
    assert progress.name(3) == "3"
    progress.apply(build_events(3)[0], 0.0)
    assert progress.name(3) == f"3 ({SHAS[3][:10]})"


def test_a_failed_build_tells_its_cause() -> None:
    """A commit that can't be built is marked on the axis and its cause is in the log line."""
    progress = model()
    started, finished = build_events(4, "failed", failure_kind="permanent", cause="error: no ;")
    progress.apply(started, 0.0)
    line = progress.apply(finished, 0.0)
    assert line.endswith("failed: error: no ;")
    assert draw_axis(progress)[4] == "x"


def test_a_transient_failure_does_not_mark_the_commit() -> None:
    """A full disk says nothing about the commit."""
    progress = model()
    for event in build_events(4, "failed", failure_kind="transient", cause="no space left"):
        progress.apply(event, 0.0)
    assert draw_axis(progress) == "." * 11


def test_the_axis_shows_steps_over_points() -> None:
    """Measured positions and the likeliest steps can be told apart on the drawn axis."""
    progress = model()
    progress.positions.update({0: "measured", 10: "measured", 5: "broken"})
    culprits = [{"commits": [SHAS[7]], "position": 7, "change": -0.3, "probability": 0.95}]
    progress.apply(Event("belief", {"culprits": culprits, "noise": 0.02, "missed": 0.1}), 0.0)
    assert draw_axis(progress) == "o....x.^..o"
    assert progress.belief_line() == (
        f"{SHAS[7][:10]} -30.0% (p 95.0%), noise 2.0%, steps still expected 0.1"
    )


def test_a_long_axis_fits_the_screen() -> None:
    """Ten thousand commits are drawn in one line, and both ends stay at its ends."""
    progress = ProgressModel(axis=[("a" * 40, "")] * 10_001)
    progress.positions.update({0: "measured", 10_000: "measured"})
    drawn = draw_axis(progress)
    assert len(drawn) <= 80
    assert drawn[0] == drawn[-1] == "o"


def test_the_live_view_shows_everything_at_a_glance() -> None:
    """Axis, belief, work in flight with its usual duration, counts and last decisions are shown."""
    progress = model()
    for event in build_events(3):
        progress.apply(event, 0.0)
    progress.apply(build_events(6)[0], 10.0)
    reason = {"kind": "build", "position": 6, "reason": "splits \x1b[31mthe range"}
    progress.apply(Event("decision", reason), 10.0)
    text = text_of(render(progress, elapsed=12.0, at=15.0))
    assert "10 commits, 12s elapsed" in text
    assert f"6 ({SHAS[6][:10]}), 5s of about 8s" in text
    assert "1 build, 0 runs" in text
    assert "splits ?[31mthe range" in text


def test_plain_lines_without_a_terminal() -> None:
    """Without a terminal every event is one line with the time since the start."""
    out = io.StringIO()
    times = iter([100.0, 107.0, 107.0, 109.0])
    view = ProgressView(Console(file=out, width=40), model(), clock=lambda: next(times))
    with view:
        view.on_event(Event("cancel_requested"))
    view.say("done with a line that is longer than the console is wide")
    assert out.getvalue().splitlines() == [
        "[    7s] asked to cancel",
        "[    9s] done with a line that is longer than the console is wide",
    ]


def test_unknown_events_are_passed_over() -> None:
    """A newer server may tell of things that this client does not know."""
    assert model().apply(Event("something_new", {"x": 1}), 0.0) == ""


def test_nothing_is_in_flight_after_the_end() -> None:
    """The end of a bisection ends what was shown as under way."""
    progress = model()
    progress.apply(build_events(6)[0], 0.0)
    assert progress.apply(Event("finished", {"outcome": "culprits"}), 1.0) == "finished: culprits"
    assert progress.in_flight == {}
