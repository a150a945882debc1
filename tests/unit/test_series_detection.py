"""Changes in nightly series: found soon, seldom where there is none, and in the right night."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta

import numpy as np
import pytest

from perfbisect.core.series import (
    KnownChange,
    NightValue,
    SeriesSettings,
    find_change,
    is_suspicious,
    log_odds_of_change,
)
from perfbisect.core.series_bound import FEWEST, MOST, TABLE, bound_for
from perfbisect.core.series_hosts import HostValue, nights_of_points
from perfbisect.core.states import Better, ChangeKind

FIRST = date(2019, 7, 1)
SETTINGS = SeriesSettings(min_effect=0.01)


def nights(values: Sequence[float], days: Sequence[int] | None = None) -> list[NightValue]:
    """Return one night after the other, or on these days after the first."""
    at = days or range(len(values))
    return [
        NightValue(FIRST + timedelta(days=day), float(value))
        for day, value in zip(at, values, strict=True)
    ]


def noisy(levels: Sequence[float], noise: float = 0.01, seed: int = 1) -> list[float]:
    """Return levels with noise."""
    random = np.random.default_rng(seed)
    return [level * math.exp(noise * random.standard_normal()) for level in levels]


def test_a_clear_drop_is_suspected_on_its_first_night() -> None:
    """One night of a drop of ten noise scales is enough in a series without outliers."""
    found = find_change(nights(noisy([9000.0] * 40 + [8100.0])), SETTINGS)
    assert found is not None
    assert found.suspected
    assert (found.last_good, found.first_bad) == (
        FIRST + timedelta(days=39),
        FIRST + timedelta(days=40),
    )
    assert found.kind is ChangeKind.REGRESSION
    assert found.change == pytest.approx(-0.1, abs=0.03)
    assert found.before_ci95[0] < 9000 < found.before_ci95[1]
    assert found.nights == 1


def test_a_young_series_whose_nights_agree_by_chance_is_not_suspected() -> None:
    """Of 250 stable series of twelve nights none comes near the bound, however alike some are."""
    odds = [
        log_odds_of_change(nights(noisy([9000.0] * 12, seed=seed)), SETTINGS) for seed in range(250)
    ]
    assert max(odds) < bound_for(1.0)


def test_a_drop_of_two_thirds_is_no_outlier() -> None:
    """However far a clean series falls, the first night raises a suspicion."""
    found = find_change(nights(noisy([9000.0] * 40 + [2900.0], 0.02)), SETTINGS)
    assert found is not None
    assert found.suspected


def test_a_small_drop_is_suspected_after_some_nights_and_placed() -> None:
    """A step of two noise scales is seen within ten nights, and the true night is in its range."""
    values = noisy([9000.0] * 40 + [8820.0] * 10, seed=3)
    series = nights(values)
    seen = [is_suspicious(series[:count], SETTINGS) for count in range(41, 51)]
    assert any(seen)
    found = find_change(series, SETTINGS)
    assert found is not None
    assert found.last_good < FIRST + timedelta(days=40) <= found.first_bad
    assert found.ci95[0] < -0.02 < found.ci95[1]


def test_lower_is_better_turns_the_kind_round() -> None:
    """A rise of a time is a regression, and its change is positive."""
    found = find_change(nights(noisy([2.0] * 30 + [2.3, 2.3])), SeriesSettings(better=Better.LOWER))
    assert found is not None
    assert found.suspected
    assert found.kind is ChangeKind.REGRESSION
    assert found.change == pytest.approx(0.15, abs=0.03)
    assert found.before < found.after


def test_smaller_changes_than_asked_for_are_not_named() -> None:
    """A step far below the smallest effect raises no suspicion, however sure it is."""
    series = nights(noisy([9000.0] * 30 + [8730.0] * 20, noise=0.002))
    assert find_change(series, SeriesSettings(min_effect=0.02)) is not None
    found = find_change(series, SeriesSettings(min_effect=0.15))
    assert found is not None
    assert not found.suspected


def test_outliers_of_the_past_teach_caution() -> None:
    """Where single nights were often off, another one alone is no change; two in a row are."""
    levels = [9000.0] * 60
    for night in (5, 14, 23, 32, 41, 50):
        levels[night] = 5400.0
    values = noisy([*levels, 5400.0, 5400.0])
    assert not is_suspicious(nights(values[:61]), SETTINGS)
    assert is_suspicious(nights(values), SETTINGS)


def test_outliers_long_ago_count_too() -> None:
    """Nights before the window still tell how common outliers are."""
    levels = [9000.0] * 160
    for night in range(5, 100, 9):
        levels[night] = 5400.0
    values = noisy([*levels, 5400.0])
    with_past = log_odds_of_change(nights(values), SETTINGS)
    without = log_odds_of_change(nights(values[-60:]), SETTINGS)
    assert with_past < without - 1.0


def test_a_slow_drift_is_no_step() -> None:
    """A series that loses a twentieth of its noise each night is never suspected."""
    values = noisy([9000.0 * (1 - 0.0005 * night) for night in range(80)], seed=4)
    series = nights(values)
    assert not any(is_suspicious(series[:count], SETTINGS) for count in range(10, 81, 5))


def test_stable_series_raise_few_suspicions() -> None:
    """Over two years of stable nights, no more suspicions come than the settings accept twice."""
    alarms = 0
    for seed in range(8):
        series = nights(noisy([9000.0] * 90, seed=100 + seed))
        odds = [log_odds_of_change(series[:count], SETTINGS) for count in range(12, 91, 3)]
        alarms += any(each >= bound_for(1.0) for each in odds)
    assert alarms <= 4


def test_a_refuted_change_is_not_found_again() -> None:
    """What was measured again and did not differ is no change, and does not hide the next one."""
    values = noisy([9000.0] * 30 + [8100.0] + [9000.0] * 10 + [8100.0, 8100.0])
    refuted = KnownChange(FIRST + timedelta(29), FIRST + timedelta(30), real=False)
    assert not is_suspicious(nights(values[:31]), SETTINGS, [refuted])
    found = find_change(nights(values), SETTINGS, [refuted])
    assert found is not None
    assert found.suspected
    assert found.first_bad == FIRST + timedelta(41)


def test_a_known_change_is_not_found_again_but_the_next_one_is() -> None:
    """One night at another level, measured again, is believed: the night after it is a change."""
    values = noisy([2900.0] * 30 + [7600.0, 3900.0], 0.02)
    known = KnownChange(FIRST + timedelta(29), FIRST + timedelta(30), measured=True)
    assert not is_suspicious(nights(values[:31]), SETTINGS, [known])
    found = find_change(nights(values), SETTINGS, [known])
    assert found is not None
    assert found.suspected
    assert (found.last_good, found.first_bad) == (FIRST + timedelta(30), FIRST + timedelta(31))
    assert found.kind is ChangeKind.REGRESSION


def test_missing_nights_widen_the_range() -> None:
    """A drop during nights without a value lies between the nights around them."""
    days = [*range(30), 34, 35]
    found = find_change(nights(noisy([9000.0] * 30 + [2900.0] * 2), days), SETTINGS)
    assert found is not None
    assert found.last_good == FIRST + timedelta(29)
    assert found.first_bad == FIRST + timedelta(34)


def test_too_few_nights_say_nothing() -> None:
    """Four nights are no series."""
    assert find_change(nights([9000.0, 9000.0, 4000.0, 4000.0]), SETTINGS) is None
    assert log_odds_of_change(nights([9000.0] * 4), SETTINGS) == -math.inf


def test_fewer_false_alarms_ask_for_more() -> None:
    """The bound falls with the false alarms accepted, as in its table."""
    bounds = [bound_for(rate) for rate in (FEWEST, 0.5, 1.0, 3.0, MOST)]
    assert bounds == sorted(bounds, reverse=True)
    assert all(bound_for(rate) == pytest.approx(bound) for rate, bound in TABLE)


def points(host: str, values: dict[int, float]) -> list[HostValue]:
    """Return the values of a host by day."""
    return [HostValue(FIRST + timedelta(day), host, value) for day, value in values.items()]


def test_hosts_are_compared_by_the_nights_they_share() -> None:
    """A slower host that takes over is no drop, if both measured some nights."""
    fast = points("a", dict.fromkeys(range(6), 100.0))
    slow = points("b", dict.fromkeys(range(4, 10), 80.0))
    found = nights_of_points([*fast, *slow])
    assert [each.linked for each in found] == [True] * 10
    values = [each.value for each in found]
    assert max(values) / min(values) == pytest.approx(1.0)


def test_hosts_that_share_no_night_are_not_compared() -> None:
    """Where another host takes over between two nights, the step is the hosts' own."""
    fast = points("a", dict(enumerate(noisy([100.0] * 30))))
    slow = points("b", dict(enumerate(noisy([80.0] * 8, seed=2), 30)))
    found = nights_of_points([*fast, *slow])
    assert [number for number, each in enumerate(found) if not each.linked] == [30]
    assert not is_suspicious(found, SETTINGS)
    dropped = points("b", {38: 64.0, 39: 64.1})
    again = find_change(nights_of_points([*fast, *slow, *dropped]), SETTINGS)
    assert again is not None
    assert again.suspected
    assert again.first_bad == FIRST + timedelta(38)
