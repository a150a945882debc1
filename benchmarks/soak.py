"""Thousands of simulated bisections through a real server that is struck by faults, and killed.

    python benchmarks/soak.py [--bisections 2000] [--killed-over 400] [--at-most SECONDS]
                              [--directory DIR]

Prints what the server held (memory, file handles, threads, files left over) as bisections finish,
then how each ended, how many operations there were and how many were struck. Ends with status 1 if
a bisection was stuck, ended without a reason or with a wrong answer, or if something was left.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.helpers.soaking import Figures, Plan, Soak


def main() -> int:
    """Soak, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bisections", type=int, default=2000)
    parser.add_argument("--killed-over", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--at-most", type=float, default=math.inf, help="seconds")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    plan = Plan(
        bisections=given.bisections,
        share=given.share,
        at_once=given.at_once,
        killed_over=given.killed_over,
        at_most=given.at_most,
    )
    if given.directory is not None:
        given.directory.mkdir(parents=True)
        return shown(Soak(given.directory, plan, _say).run())
    with tempfile.TemporaryDirectory(prefix="soak") as directory:
        return shown(Soak(Path(directory), plan, _say).run())


def _say(line: str) -> None:
    print(line, flush=True)


def shown(figures: Figures) -> int:
    """Print the figures; return the exit status."""
    _say(f"\n{figures.finished} bisections in {figures.seconds:.0f} s, {figures.kills} kills")
    for title, counted in (
        ("outcomes", figures.outcomes),
        ("operations", figures.operations),
        ("struck", figures.struck),
        ("answers over HTTP", figures.answers),
    ):
        _say(f"{title} ({sum(counted.values())}):")
        for name, count in sorted(counted.items()):
            _say(f"  {name:24} {count}")
    for name, lines in (("wrong", figures.wrong), ("left over", figures.leftovers)):
        _say(f"{name} ({len(lines)}):")
        for line in lines:
            _say(f"  {line}")
    return 1 if figures.wrong or figures.leftovers else 0


if __name__ == "__main__":
    sys.exit(main())
