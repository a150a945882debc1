from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect.errors import BadInputError
from perfbisect.units import (
    Threshold,
    format_duration,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
    parse_threshold,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("4h", 14400.0),
        ("2d", 172800.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 1.5H ", 5400.0),
        ("250ms", 0.25),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    """Every documented way to write a duration gives its seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "15 minutes",
        "-5m",
        "0s",
        0,
        -1,
        math.nan,
        math.inf,
        True,
        None,
        [],
        "1h-30m",
        10**400,
        "1e999",
    ],
)
def test_wrong_durations(text: object) -> None:
    """A value that is no duration is refused with the field, the value and what would be right."""
    with pytest.raises(BadInputError) as caught:
        parse_duration(text, field="timeout")
    assert caught.value.field == "timeout"
    assert repr(text) in caught.value.message
    assert "'15m'" in caught.value.message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.254, "0.25s"),
        (9.999, "10s"),
        (45.4, "45s"),
        (59.7, "1m"),
        (90, "1m30s"),
        (900, "15m"),
        (3599.6, "1h"),
        (5400, "1h30m"),
        (14400, "4h"),
        (86399, "1d"),
        (180000, "2d2h"),
        (-90, "-1m30s"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    """Durations are printed in at most two units, rounded without a '60s' or '24h'."""
    assert format_duration(seconds) == text


@given(st.floats(min_value=0.01, max_value=1e8))
def test_printed_durations_read_back(seconds: float) -> None:
    """What is printed can be read again and is off by no more than rounding to the second unit."""
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.05, abs=0.005)


@pytest.mark.parametrize(
    ("text", "share"), [("3%", 0.03), ("0.5 %", 0.005), (0.03, 0.03), ("0.03", 0.03), ("99%", 0.99)]
)
def test_percents(text: object, share: float) -> None:
    """Percent signs and plain shares mean the same."""
    assert parse_percent(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["3", 3, "0%", 0, "-3%", "100%", "abc", "", None, math.nan, False])
def test_wrong_percents(text: object) -> None:
    """Shares outside of zero to one are refused, with the field's name."""
    with pytest.raises(BadInputError, match="min-effect") as caught:
        parse_percent(text, field="min-effect")
    assert caught.value.value is text


def test_forgotten_percent_sign() -> None:
    """A bare 3 is not guessed to be 3%, but the message asks whether it was meant."""
    with pytest.raises(BadInputError, match="did you mean '3%'"):
        parse_percent("3")


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        ("6000", Threshold(absolute=6000.0)),
        (6000, Threshold(absolute=6000.0)),
        ("6e3", Threshold(absolute=6000.0)),
        ("70%", Threshold(share=0.7)),
        ("130%", Threshold(share=1.3)),
    ],
)
def test_thresholds(text: object, threshold: Threshold) -> None:
    """A number is absolute, a percentage is a share of the good end."""
    assert parse_threshold(text) == threshold


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "0%", "fast", "70%%", None, math.inf, "inf", "nan"]
)
def test_wrong_thresholds(text: object) -> None:
    """A threshold that isn't a positive number or percentage is refused."""
    with pytest.raises(BadInputError, match="threshold"):
        parse_threshold(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1024, 1024),
        ("512m", 512 * 2**20),
        ("8g", 8 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("10 kb", 10240),
        ("7", 7),
    ],
)
def test_sizes(text: object, size: int) -> None:
    """Sizes are powers of 1024 whichever way the unit is spelt."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "big", "-1g", "0", "8x", None, True])
def test_wrong_sizes(text: object) -> None:
    """Anything else is refused with the field's name."""
    with pytest.raises(BadInputError, match="memory"):
        parse_size(text, field="memory")


@pytest.mark.parametrize(
    ("size", "text"),
    [(512, "512 B"), (1536, "1.5 KiB"), (12 * 2**30, "12 GiB"), (1000, "1000 B"), (2**41, "2 TiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    """Sizes are printed with three digits and a unit."""
    assert format_size(size) == text
