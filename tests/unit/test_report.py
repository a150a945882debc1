from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect import report

SHA_A, SHA_B, SHA_C = "a" * 40, "b" * 40, "c" * 40


def culprit(**changes: Any) -> dict[str, Any]:
    return {
        "commits": [SHA_A],
        "subject": "Fuse the kernels",
        "kind": "regression",
        "before": 9000.1,
        "after": 2900.4,
        "change": -0.678,
        "ci95": [-0.69, -0.66],
        "probability": 0.998,
        "verified": True,
        "relations": [],
        **changes,
    }


def verdict(**changes: Any) -> dict[str, Any]:
    return {
        "id": "01TEST",
        "state": "finished",
        "outcome": "culprits",
        "good": {"revision": SHA_B, "mean": 9000.1, "ci95": [8950.0, 9050.0], "runs": 4},
        "bad": {"revision": SHA_C, "mean": 2900.4, "ci95": [2850.0, 2950.0], "runs": 1},
        "culprits": [culprit()],
        "explained": {"total": -0.678, "steps": -0.671},
        "builds": 9,
        "runs": 31,
        "seconds": 120.5,
        "unit": "images/s",
        "reason": "",
        "code": "",
        **changes,
    }


def test_the_cost_is_told_with_that_of_the_proof() -> None:
    """The search's builds and runs, and once the proof has ended its own beside them."""
    assert report.cost_line(verdict()) == "9 builds, 31 runs, 2m"
    waiting = {"experiment": "01X", "state": "queued"}
    assert report.cost_line(verdict(proof=waiting)) == "9 builds, 31 runs, 2m"
    proof = {"experiment": "01X", "state": "finished", "builds": 1, "runs": 12, "seconds": 40.2}
    assert report.cost_line(verdict(proof=proof)) == (
        "9 builds, 31 runs, 2m; and the proof 1 build, 12 runs, 40s"
    )


def test_a_relation_that_is_only_likely_says_so() -> None:
    """A culprit's line tells who took it back, and which copy of it is a guess."""
    relations = [
        {"kind": "reverted_by", "commit": SHA_B},
        {"kind": "cherry_picked_as", "commit": SHA_C, "likely": True},
    ]
    (line,) = report.culprit_lines(verdict(culprits=[culprit(relations=relations)]))
    assert line.relations == (
        "reverted by bbbbbbbbbb",
        "cherry picked as cccccccccc (likely)",
    )


def test_sentence_of_one_culprit() -> None:
    """One culprit's sentence has its name, subject, sizes, interval, proof and probability."""
    assert report.sentence(verdict()) == (
        'aaaaaaaaaa "Fuse the kernels" is a regression: 9,000 -> 2,900 images/s, -67.8% '
        "(95% interval -69.0% to -66.0%), verified, probability 99.8%."
    )


def test_sentence_of_several_culprits() -> None:
    """Several culprits are listed in order, with what they explain and what lacks proof."""
    other = culprit(commits=[SHA_B], kind="recovery", change=0.5, verified=False)
    text = report.sentence(verdict(culprits=[culprit(), other]))
    assert text.startswith("2 steps explain the change: aaaaaaaaaa a regression of -67.8%; ")
    assert "bbbbbbbbbb a recovery of +50.0%" in text
    assert "not verified: bbbbbbbbbb" in text
    assert "together -67.1% of -67.8% in all" in text


def test_sentence_of_a_set_of_commits() -> None:
    """A step that unbuildable commits hide in is said to be one of a set, never a single commit."""
    text = report.sentence(verdict(culprits=[culprit(commits=[SHA_A, SHA_B, SHA_C])]))
    assert text.startswith("one of 3 commits (aaaaaaaaaa..cccccccccc)")


def test_sentence_of_an_unresolved_step() -> None:
    """A step that could still be narrowed down is not presented as final."""
    text = report.sentence(
        verdict(outcome=None, culprits=[culprit(commits=[SHA_A, SHA_B], resolved=False)])
    )
    assert "not narrowed down yet" in text


@pytest.mark.parametrize(
    ("outcome", "start"),
    [
        ("not_reproduced", "Not reproduced: the ends agree."),
        ("inconclusive", "Inconclusive: the ends agree."),
        ("budget_exhausted", "The budget is exhausted: the ends agree."),
        ("cancelled", "Cancelled: the ends agree."),
        ("failed", "Failed: the ends agree."),
    ],
)
def test_sentence_of_other_outcomes(outcome: str, start: str) -> None:
    """Every other outcome begins with its name and gives its reason once, as one sentence."""
    text = report.sentence(verdict(outcome=outcome, reason="the ends agree.", culprits=[]))
    assert text == start


def test_sentence_keeps_the_best_answer_of_a_spent_budget() -> None:
    """Where the budget ended first, the best answer so far is still told."""
    text = report.sentence(verdict(outcome="budget_exhausted", reason="31 of 31 runs"))
    assert "Best answer so far: aaaaaaaaaa" in text


@pytest.mark.parametrize(("state", "words"), [("queued", "Waiting"), ("running", "Still search")])
def test_sentence_before_the_end(state: str, words: str) -> None:
    """A bisection without an outcome says that it is not finished."""
    text = report.sentence({"id": "x", "state": state, "outcome": None})
    assert text.startswith(words)


@pytest.mark.parametrize(
    ("outcome", "code", "status"),
    [
        ("culprits", "", 0),
        ("not_reproduced", "", 1),
        ("inconclusive", "", 1),
        ("budget_exhausted", "", 1),
        ("cancelled", "", 1),
        (None, "", 1),
        ("failed", "infrastructure", 3),
        ("failed", "internal", 3),
        ("failed", "bad-input", 2),
        ("failed", "ends_swapped", 2),
        ("failed", "threshold_outside_ends", 2),
    ],
)
def test_exit_codes(outcome: str | None, code: str, status: int) -> None:
    """Exit codes are 0 answered, 1 no answer, 2 wrong request, 3 failed."""
    assert report.exit_code(verdict(outcome=outcome, code=code)) == status


def test_terminal_codes_of_a_subject_are_not_obeyed() -> None:
    """A commit's subject can't move the cursor, change colours or break the line."""
    text = report.sentence(verdict(culprits=[culprit(subject="a\x1b[2Jb\nc\x07")]))
    assert "\x1b" not in text
    assert "\n" not in text
    assert "\x07" not in text
    assert "a?[2Jb c?" in text


def test_markdown_has_everything_and_escapes_subjects() -> None:
    """The Markdown report shows culprits, ends, cost and decisions, and a subject stays text."""
    evil = culprit(subject="x | <script> [link](y) `code`")
    relations = [{"kind": "reverted_by", "commit": SHA_B}]
    text = report.to_markdown(
        verdict(culprits=[{**evil, "relations": relations}]),
        [{"kind": "run", "position": 3, "host": "h1", "reason": "splits the range"}],
    )
    assert "x \\| \\<script\\> \\[link\\](y) \\`code\\`" in text
    assert "reverted by bbbbbbbbbb" in text
    assert "Cost: 9 builds, 31 runs, 2m" in text
    assert "| run | 3 | h1 | splits the range |" in text
    assert "good bbbbbbbbbb: 9,000 images/s (8,950 to 9,050, 4 runs)" in text
    assert "bad cccccccccc: 2,900 images/s (2,850 to 2,950, 1 run)" in text


def test_markdown_names_a_set_of_commits_up_to_a_limit() -> None:
    """A long set is listed by its first commits and the number of the others."""
    many = [f"{number:040x}" for number in range(25)]
    text = report.to_markdown(verdict(culprits=[culprit(commits=many)]))
    assert f"One of: {many[0][:10]}, " in text
    assert "and 15 more" in text


def test_markdown_of_a_bisection_that_just_started() -> None:
    """A report can be made before anything is known."""
    text = report.to_markdown({"id": "x", "state": "queued", "outcome": None})
    assert "Waiting to start" in text
    assert "Cost: 0 builds, 0 runs, 0s" in text


def test_json_refuses_what_json_does_not_have() -> None:
    """NaN is an error of ours, not something to hand out as JSON."""
    assert json.loads(report.to_json(verdict())) == verdict()
    with pytest.raises(ValueError, match="JSON compliant"):
        report.to_json({"value": math.nan})


def test_points_as_csv() -> None:
    """Points have fixed columns, and text that a spreadsheet would execute is defused."""
    point = {"commit": SHA_A, "value": -1.5, "position": 2, "host": "=cmd()", "extra": "left out"}
    rows = list(csv.DictReader(io.StringIO(report.points_csv([point]))))
    assert list(rows[0]) == list(report.POINT_COLUMNS)
    assert rows[0]["value"] == "-1.5"
    assert rows[0]["host"] == "'=cmd()"
    assert rows[0]["run_id"] == ""


@given(st.floats(min_value=0, max_value=1))
def test_probabilities_never_claim_certainty(probability: float) -> None:
    """No probability is printed as 0% or 100%."""
    assert report.format_probability(probability) not in ("0.0%", "100.0%")


@pytest.mark.parametrize(
    ("value", "text"),
    [(9000.1, "9,000"), (12.345, "12.35"), (0.0012345, "0.001234"), (None, "?"), (math.inf, "∞")],
)
def test_values_for_people(value: float | None, text: str) -> None:
    """Values have four digits; what is not known is a question mark."""
    assert report.format_value(value) == text


def test_intervals_are_ordered() -> None:
    """An interval reads from its lower to its upper end whichever way it is stored."""
    assert report.format_interval([-0.66, -0.69]) == "-69.0% to -66.0%"
    assert report.format_interval([None, 0.1]) == "?"


@pytest.mark.parametrize("name", ["v2.1.0", "deadbeef", "a" * 41])
def test_only_full_names_are_shortened(name: str) -> None:
    """Tags and branches stay as they are."""
    assert report.short(name) == name


def test_doubt_is_stated() -> None:
    """Noise and the expected number of steps not named are part of every report."""
    text = report.doubt_line(verdict(noise=0.021, missed=0.003, confidence=0.994))
    assert text == (
        "noise of one run 2.1%; steps expected but not named 0.003; "
        "probability that this is the whole answer 99.4%"
    )
