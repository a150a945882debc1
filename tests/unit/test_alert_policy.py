"""When alerts may be bisected, and what perfbisect.toml says of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from perfbisect.alerting.configuration import load_alert_config
from perfbisect.alerting.policy import Policy, Wait, judge
from perfbisect.config import list_known
from perfbisect.core.alert_states import MessageEvent
from perfbisect.errors import BadInputError

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def wait(policy: Policy, moment: datetime = NOON, *starts: datetime, all_: int | None = None) -> (
    Wait | None
):  # fmt: skip
    return judge(policy, moment, own_starts=starts, all_starts=starts, budget_of_all=all_)


def test_nothing_stands_in_the_way_of_the_first_one() -> None:
    """With the defaults, the first alert of a series is bisected at once."""
    assert wait(Policy()) is None


@pytest.mark.parametrize(
    ("hours", "zone", "opens"),
    [
        ("20:00-06:00", "UTC", 8),
        ("11:00-13:00", "UTC", None),
        ("12:00-13:00", "UTC", None),
        ("06:00-12:00", "UTC", 18),
        ("20:00-06:00", "Asia/Tokyo", None),
        ("22:00-06:00", "Asia/Tokyo", 1),
    ],
)
def test_hours_are_of_their_zone_and_may_pass_midnight(
    hours: str, zone: str, opens: int | None
) -> None:
    """Outside its hours an alert waits until they begin: hours from noon UTC, or not at all."""
    found = wait(Policy(hours=hours, timezone=zone))
    until = None if found is None else found.until
    assert until == (None if opens is None else NOON + timedelta(hours=opens))


def test_a_spent_budget_waits_until_enough_is_a_day_old() -> None:
    """With a budget of two, the third waits for the older of the last two to be a day old."""
    starts = [NOON - timedelta(hours=hours) for hours in (1, 5, 30)]
    found = wait(Policy(budget_per_day=2), NOON, *starts)
    assert found == Wait(
        "budget", "the budget of this series is spent: 2 within 24 hours",
        NOON + timedelta(hours=19),
    )  # fmt: skip
    assert wait(Policy(budget_per_day=3), NOON, *starts) is None


def test_a_budget_of_nothing_waits_for_a_person() -> None:
    """Zero never comes back by itself."""
    found = wait(Policy(budget_per_day=0))
    assert found is not None
    assert found.until is None


def test_the_budget_of_all_counts_all() -> None:
    """What all series together spent holds each of them."""
    found = wait(Policy(budget_per_day=None), NOON, NOON - timedelta(hours=1), all_=1)
    assert found is not None
    assert "all series together" in found.reason


def test_a_cooldown_counts_from_the_last_start() -> None:
    """Within the cooldown an alert waits for its end."""
    found = wait(Policy(cooldown="6h"), NOON, NOON - timedelta(hours=2))
    assert found is not None
    assert (found.by, found.until) == ("cooldown", NOON + timedelta(hours=4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"hours": "late"},
        {"hours": "20:00-20:00"},
        {"timezone": "Nowhere/At_all"},
        {"cooldown": "soon"},
        {"start": "sometimes"},
        {"min_effect": "much"},
        {"max_time": "0h"},
        {"confidence": 2},
        {"cooldwon": "6h"},
    ],
)
def test_a_wrong_policy_is_refused(wrong: dict[str, object]) -> None:
    """What can't be right is refused when it is read, not when the first alert comes."""
    with pytest.raises(ValidationError):
        Policy.model_validate(wrong)


FILE = """
[alerts]
group_wait = "2m"
[alerts.policy]
budget_per_day = 7
tell = ["team"]
[[alerts.rule]]
match = {alertname = "Drop.*"}
series = "{benchmark}"
[notify.team]
kind = "apprise"
url_env = "TEAM"
events = ["found"]
[notify.tracker]
kind = "webhook"
url = "https://tracker.example/hook"
secret_env = "SECRET"
[series.resnet50]
benchmark = "resnet50-train"
[series.resnet50.policy]
start = "ask"
[recipe.fast]
kind = "pip-wheel"
"""


def load(directory: Path, text: str):  # type: ignore[no-untyped-def]
    (directory / "perfbisect.toml").write_text(text)
    return load_alert_config(directory)


def test_a_series_says_what_differs(tmp_path: Path) -> None:
    """A series' own words stand on top of those for all; the same file still holds recipes."""
    config = load(tmp_path, FILE)
    policy = config.policy_for({"start": "ask"})
    assert (policy.start, policy.budget_per_day) == ("ask", 7)
    assert config.alerts.group_wait_seconds == 120
    assert config.told(policy, MessageEvent.FOUND) == ["team"]
    assert config.told(policy, MessageEvent.OPENED) == []
    everybody = config.policy_for({"tell": None})
    assert config.told(everybody, MessageEvent.FOUND) == ["team", "tracker"]
    assert "fast" in {known.recipe.name for known in list_known(tmp_path).recipes}


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    """No perfbisect.toml: alerts are taken, and nobody is told."""
    config = load_alert_config(tmp_path)
    assert config.alerts.policy == Policy()
    assert config.notify == {}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('group_wait = "2m"', 'group_wiat = "2m"', "group_wiat"),
        ('tell = ["team"]', 'tell = ["taem"]', "notify.taem"),
        ('start = "ask"', 'start = "aks"', "series.resnet50"),
        ("Drop.*", "Drop(", "regular expression"),
        ('url_env = "TEAM"', 'secret_env = "TEAM"', "url"),
        ('secret_env = "SECRET"', "", "secret_env"),
        ('kind = "webhook"', 'kind = "pigeon"', "kind"),
        ('events = ["found"]', 'events = ["lost"]', "events"),
    ],
)
def test_mistakes_in_the_file_are_told_by_key(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    """Whatever is wrong is named, so that it is found."""
    with pytest.raises(BadInputError, match=told.replace(".", r"\.")):
        load(tmp_path, FILE.replace(old, new, 1))


def test_addresses_and_secrets_stay_out_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from a variable or a file, and a missing one is told by its name."""
    config = load(tmp_path, FILE)
    target = config.notify["team"]
    monkeypatch.delenv("TEAM", raising=False)
    with pytest.raises(BadInputError, match="TEAM"):
        target.address(tmp_path)
    monkeypatch.setenv("TEAM", "slack://a/b/c")
    assert target.address(tmp_path) == "slack://a/b/c"
    monkeypatch.setenv("TEAM", "json://127.0.0.1:9/")
    with pytest.raises(BadInputError, match="webhook"):
        target.address(tmp_path)
