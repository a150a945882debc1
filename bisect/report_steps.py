"""What is said beside a step: other things that changed with it, and where to look next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from packaging.version import InvalidVersion, Version

#: Dependencies that a sentence names; tables name more.
IN_A_SENTENCE = 5
IN_A_TABLE = 40


def noun(verdict: Mapping[str, Any]) -> str:
    """Return what a position of the axis is called: ``commit`` or ``version``."""
    return "version" if verdict.get("axis") == "published" else "commit"


def also_changed_text(culprit: Mapping[str, Any], most: int = IN_A_TABLE) -> str:
    """Return ``also changed across this step: keras 2.15.0 → 3.0.5``; empty: nothing did.

    The largest jumps come first: another major version is the likeliest cause.
    """
    moved = sorted(culprit.get("also_changed") or (), key=_significance)
    changes = [_change(each) for each in moved]
    if not changes:
        return ""
    left = len(changes) - most
    named = ", ".join(changes[:most]) + (f" and {left} more" if left > 0 else "")
    return f"also changed across this step: {named}"


def _change(each: Mapping[str, Any]) -> str:
    if each.get("before") is None:
        return f"{each['name']} {each['after']} added"
    if each.get("after") is None:
        return f"{each['name']} {each['before']} removed"
    return f"{each['name']} {each['before']} → {each['after']}"


def _significance(each: Mapping[str, Any]) -> int:
    """Return 0: another major version, 1: minor, 2: it came or went, 3: less than that."""
    try:
        before, after = Version(str(each.get("before"))), Version(str(each.get("after")))
    except InvalidVersion:
        return 2
    pairs = zip_longest(before.release[:2], after.release[:2], fillvalue=0)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), 3)


def besides(culprit: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every remark about a step: dependencies, kinds of wheels, commits of versions."""
    remarks = (also_changed_text(culprit), _origins(culprit), _range(culprit))
    return tuple(remark for remark in remarks if remark)


def _origins(culprit: Mapping[str, Any]) -> str:
    origins = culprit.get("origins") or {}
    if origins.get("before") == origins.get("after"):
        return ""
    return (
        f"the wheel before the step is {origins['before']}, the one after it {origins['after']}: "
        "part of the difference may be how they were built"
    )


def _range(culprit: Mapping[str, Any]) -> str:
    found = culprit.get("commit_range") or {}
    if not found.get("range"):
        return ""
    return f"commits {found['range']} ({found['before']} to {found['after']}): bisect these next"


def notes_lines(verdict: Mapping[str, Any]) -> Sequence[str]:
    """Return what people should know of the axis, one remark each."""
    return [f"Note: {note}" for note in verdict.get("notes") or ()]
