"""Proofs, pure parts: on which commits a change is tried, and what the arms are taken to mean."""

from __future__ import annotations

from typing import Any

import pytest

from perfbisect.proofs import judge
from perfbisect.reports.experiment_words import experiment_exit_code


def arm(kind: str, **told: Any) -> dict[str, Any]:
    role = {"kind": kind, "culprit_position": 7, "expected": -0.4, "nearest": False}
    values = {
        "position": 1,
        "name": f"{kind} it",
        "against": 0,
        "role": role,
        "problem": None,
        "difference": "worse",
        "change": -0.4,
        "ci95": [-0.45, -0.35],
    }
    return {**values, **told}


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({}, "proven by pick"),
        ({"change": -0.1, "ci95": [-0.15, -0.05]}, "undecided"),
        ({"ci95": [-0.7, 0.05]}, "undecided"),
        ({"difference": "alike", "change": 0.0, "ci95": [-0.02, 0.02]}, "contradicted"),
        ({"difference": "better", "change": 0.3, "ci95": [0.2, 0.4]}, "contradicted"),
        ({"change": None, "problem": {"kind": "conflict", "files": []}}, "can't be applied"),
    ],
)
def test_an_arm_proves_only_what_its_interval_allows(told: dict[str, Any], verdict: str) -> None:
    """Too small an effect, an interval that holds none, a wrong direction: nothing is proven."""
    assert judge([arm("pick", **told)], 7)["verdict"] == verdict


def test_without_arms_there_is_nothing_beyond_the_verification() -> None:
    """A culprit that stands on the end itself has no place of its own to be proven at."""
    assert judge([], 7)["verdict"] == "nothing to prove beyond the verification"


def test_an_arm_that_was_not_compared_is_no_answer() -> None:
    """The exit code is 0 only if every arm was compared with its reference."""
    compared = {"outcome": "answered", "arms": [{"against": None}, arm("revert")]}
    assert experiment_exit_code(compared) == 0
    conflict = {"kind": "conflict", "files": []}
    missing = arm("revert", change=None, problem=conflict)
    assert experiment_exit_code({**compared, "arms": [{"against": None}, missing]}) == 1
    minimal = {**compared, "arms": [{"against": None}, missing], "minimal": {"state": "found"}}
    assert experiment_exit_code(minimal) == 0
