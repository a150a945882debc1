"""A short soak: many bisections through a real server, with faults, kills and impatient clients."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.soaking import Plan, Soak

#: ``benchmarks/soak.py`` does two thousand.
PLAN = Plan(bisections=30, share=0.03, killed_over=16, killed_every=8, sampled_every=5, pause=0.1)


def test_a_short_soak(tmp_path: Path) -> None:
    """Each bisection ends in a state with a reason, with the right answer unless its own work was
    struck; nothing is stuck or left behind, and handles and threads do not grow."""
    figures = Soak(tmp_path, PLAN).run()
    assert figures.wrong == []
    assert sum(figures.outcomes.values()) == figures.finished == PLAN.bisections
    assert figures.leftovers == []
    assert figures.kills == 2
    struck = sum(figures.struck.values())
    assert struck > 20, "the faults did not strike"
    serving = [each for each in figures.samples if each.pid == figures.samples[-1].pid]
    # What one more request or transaction holds at the moment of a look.
    assert serving[-1].handles <= serving[0].handles + 8
    assert serving[-1].threads <= serving[0].threads + 8
