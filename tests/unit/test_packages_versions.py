"""Nightlies' dates, SHAs in git versions, changed dependencies, wheels on a commit axis."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from perfbisect.core.versions import (
    StampedWheel,
    also_changed,
    commit_prefix,
    night_of,
    place_wheels,
)

SHAS = [f"{letter * 7}{letter * 33}" for letter in "abcd"]
DATES = [datetime(2026, 4, day, tzinfo=UTC) for day in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("version", "night"),
    [
        ("2.15.0.dev20231003", date(2023, 10, 3)),
        ("0.4.36.dev20241122+cpu", date(2024, 11, 22)),
        ("3.12.0.dev2025090503", date(2025, 9, 5)),
        ("2.15.0", None),
        ("2.15.0.dev3", None),
        ("2.15.0.dev20231341", None),
    ],
)
def test_night_of_a_version(version: str, night: date | None) -> None:
    """A dev number that is a day makes a nightly; other dev numbers and impossible days do not."""
    assert night_of(version) == night


@pytest.mark.parametrize(
    ("git_version", "prefix"),
    [
        ("v2.14.0-rc1-21-g4dacf3f368e", "4dacf3f368e"),
        ("v1.12.1-129829-gfc5692cc5ad", "fc5692cc5ad"),
        ("0fabc3ba44823f257e70ce397d989c8de5e362c1", "0fabc3ba44823f257e70ce397d989c8de5e362c1"),
        ("gabc1234", "abc1234"),
        ("v2.14.0", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_commit_prefix(git_version: str, prefix: str | None) -> None:
    """The SHA of any length is taken out of a description; a tag or a word holds none."""
    assert commit_prefix(git_version) == prefix


def test_also_changed_names_updates_additions_and_removals() -> None:
    """Every dependency that differs is named once, by name, whatever its spelling."""
    before = {"Keras": "2.15.0", "numpy": "1.26.4", "gast": "0.5", "tensorflow_cpu": "2.15.0"}
    after = {"keras": "3.0.5", "numpy": "1.26.4", "optree": "0.10", "tensorflow-cpu": "2.16.1"}
    changes = also_changed(before, after, without=["tensorflow-cpu"])
    assert [str(change) for change in changes] == [
        "gast 0.5 removed",
        "keras 2.15.0 → 3.0.5",
        "optree 0.10 added",
    ]


def test_also_changed_is_silent_when_nothing_changed() -> None:
    """Equal environments have no changes, even if names are spelt in another way."""
    assert also_changed({"ml_dtypes": "0.2"}, {"ml-dtypes": "0.2"}) == []


def test_wheels_are_placed_by_the_sha_they_carry() -> None:
    """A wheel lies on the position of its commit, whatever the length of the SHA."""
    wheels = [
        StampedWheel("n2", "v1.12.1-7-gcccccccc"),
        StampedWheel("n1", "v1.12.1-3-gbbbbbbb"),
        StampedWheel("n0", SHAS[0]),
    ]
    placement = place_wheels(SHAS, DATES, wheels)
    assert placement.wheels == {2: "n2", 1: "n1", 0: "n0"}
    assert placement.unplaced == ()


def test_wheels_without_a_place_say_why() -> None:
    """No stamp, no SHA, another branch, too early, too late: each has its own reason."""
    early, late = DATES[0] - timedelta(days=1), DATES[-1] + timedelta(days=1)
    wheels = [
        StampedWheel("silent", None),
        StampedWheel("tagged", "v2.14.0"),
        StampedWheel("branch", "v2.14.0-1-g1234567", DATES[1]),
        StampedWheel("early", "v2.14.0-1-g1234567", early),
        StampedWheel("late", "v2.14.0-1-g1234567", late),
    ]
    placement = place_wheels(SHAS, DATES, wheels)
    assert placement.wheels == {}
    assert [item.reason for item in placement.unplaced] == [
        "the wheel does not say which commit it was built from",
        "no commit can be read from its version 'v2.14.0'",
        "built from 1234567, which is not on the axis (on another branch?)",
        "built from 1234567, before the axis begins: published 2026-03-31",
        "built from 1234567, not on the axis: published 2026-04-05, after its end",
    ]


def test_second_wheel_of_a_commit_is_left_out() -> None:
    """Two nights without a commit between them give one position and one reason."""
    wheels = [StampedWheel("n1", "v1-1-gaaaaaaa"), StampedWheel("n2", "v1-1-gaaaaaaaaa")]
    placement = place_wheels(SHAS, DATES, wheels)
    assert placement.wheels == {0: "n1"}
    assert placement.unplaced[0].reason == "built from the same commit as n1"


def test_an_ambiguous_sha_is_not_placed() -> None:
    """A short SHA that fits two candidates proves neither, and a longer one tells them apart."""
    shas = ["abcdef0" + "0" * 33, "abcdef0" + "1" * 33]
    wheels = [StampedWheel("short", "v1-1-gabcdef0"), StampedWheel("long", "v1-1-gabcdef01")]
    placement = place_wheels(shas, DATES[:2], wheels)
    assert placement.wheels == {1: "long"}
    assert placement.unplaced[0].reason == "2 commits of the axis start with abcdef0"


def test_an_empty_axis_places_nothing() -> None:
    """Without candidates every wheel is without a place."""
    placement = place_wheels([], [], [StampedWheel("n", "v1-1-gabcdef0", DATES[0])])
    assert placement.wheels == {}
    assert len(placement.unplaced) == 1
