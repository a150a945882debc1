"""``perfbisect simulate``: what a search will cost, by the real planner against simulated hosts."""

from __future__ import annotations

from perfbisect.commands import options


def simulate(as_json: options.AsJson = False) -> None:
    """Let the real planner search simulated ranges: how often it is right, and the cost."""
