"""What is said beside a step, and how versions are called."""

from __future__ import annotations

from typing import Any

from perfbisect import report
from perfbisect.report_steps import also_changed_text, besides, noun

KERAS = {"name": "keras", "before": "2.15.0", "after": "3.0.5"}
ADDED = {"name": "optree", "before": None, "after": "0.10.0"}
REMOVED = {"name": "google-auth", "before": "2.28.1", "after": None}


def culprit(**changes: Any) -> dict[str, Any]:
    return {
        "commits": ["2.16.1"],
        "previous": "2.15.1",
        "subject": "published 2024-03-09",
        "kind": "regression",
        "before": 20.0,
        "after": 10.0,
        "change": -0.5,
        "ci95": [-0.52, -0.48],
        "probability": 0.998,
        "verified": True,
        **changes,
    }


def verdict(*culprits: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": "01TEST",
        "axis": "published",
        "package": "tensorflow-cpu",
        "state": "finished",
        "outcome": "culprits",
        "culprits": list(culprits),
        "unit": "images/s",
        "reason": "",
        **changes,
    }


def test_a_version_in_a_sentence() -> None:
    """It is called by package and version, with the one before it and what moved beside it."""
    assert report.sentence(verdict(culprit(also_changed=[KERAS]))) == (
        "tensorflow-cpu 2.16.1, published 2024-03-09, after 2.15.1 is a regression: "
        "20 -> 10 images/s, -50.0% (95% interval -52.0% to -48.0%), verified, "
        "probability 99.8%; also changed across this step: keras 2.15.0 → 3.0.5."
    )


def test_several_versions_in_a_sentence() -> None:
    """What moved is told with the step that it moved with."""
    other = culprit(commits=["2.18.0"])
    text = report.sentence(verdict(culprit(also_changed=[KERAS]), other))
    assert "; with 2.16.1, also changed across this step: keras 2.15.0 → 3.0.5." in text
    assert "with 2.18.0" not in text


def test_commits_are_called_as_before() -> None:
    """Without an axis of versions the words are those of commits."""
    assert noun({"axis": "commits"}) == noun({}) == "commit"
    unnamed = verdict(axis="commits")
    assert report.sentence(unnamed) == "No commit was named."
    assert report.sentence(verdict()) == "No version was named."


def test_what_moved_in_words() -> None:
    """The largest jump is first, then what came and went; a long list is cut with its number."""
    patch = {"name": "absl-py", "before": "2.1.0", "after": "2.1.1"}
    moved = {"also_changed": [patch, REMOVED, KERAS, ADDED]}
    assert also_changed_text(moved) == (
        "also changed across this step: keras 2.15.0 → 3.0.5, google-auth 2.28.1 removed, "
        "optree 0.10.0 added, absl-py 2.1.0 → 2.1.1"
    )
    assert also_changed_text(moved, 1).endswith("step: keras 2.15.0 → 3.0.5 and 3 more")
    assert also_changed_text({}) == ""


def test_every_remark_on_a_step() -> None:
    """Dependencies, kinds of wheels that differ, and the commits of versions."""
    commits = {"before": "v1-1-gabc1234", "after": "v1-9-gabc9999", "range": "abc1234..abc9999"}
    remarks = besides(
        culprit(
            also_changed=[KERAS],
            origins={"before": "published", "after": "built"},
            commit_range=commits,
        )
    )
    assert [remark.split(":")[0] for remark in remarks] == [
        "also changed across this step",
        "the wheel before the step is published, the one after it built",
        "commits abc1234..abc9999 (v1-1-gabc1234 to v1-9-gabc9999)",
    ]
    assert besides(culprit(origins={"before": "built", "after": "built"})) == ()


def test_a_report_has_remarks_and_notes() -> None:
    """Markdown lists what moved, and what is left out."""
    text = report.to_markdown(
        verdict(culprit(also_changed=[KERAS]), notes=["tensorflow-cpu 2.15.0 is left out: yanked"])
    )
    assert "| version |" in text
    plain = text.replace("\\", "")
    assert "- 2.16.1: also changed across this step: keras 2.15.0 → 3.0.5" in plain
    assert "Note: tensorflow-cpu 2.15.0 is left out: yanked" in plain
