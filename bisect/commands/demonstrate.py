"""``perfbisect demo``: the main job on a repository made for it, compared with the known truth."""

from __future__ import annotations

from perfbisect.commands import options


def demo(as_json: options.AsJson = False) -> None:
    """Make a small repository with known performance changes, find them, and compare."""
