"""What is said of companions that moved along the axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfbisect.reports.words import format_change, format_interval, printable, short

_WORDS = {
    "reproduced": "this reproduces the change: look for it in the companions' commits as well",
    "partly": "this is a part of the change",
    "no": "they are not the cause",
    "unknown": "the runs did not decide whether they are the cause",
}


def companions_sentence(verdict: Mapping[str, Any]) -> str:
    """Return what the companions of the bad end do to the good end; empty: nobody measured it."""
    told = verdict.get("companions") or {}
    alone = told.get("alone")
    if not alone:
        return ""
    moved = ", ".join(
        f"{name} {short(ends['first'])} -> {short(ends['last'])}"
        for name, ends in (told.get("moving") or {}).items()
    )
    change = ""
    if alone.get("change") is not None:
        change = f" changes by {format_change(alone['change'])}"
        change += f" (95% interval {format_interval(alone.get('ci95'))})"
    start = (
        f"With the companions of the other end ({moved}) the good end{change or ' was measured'}"
    )
    return printable(f"{start}: {_WORDS[alone['word']]}.")
