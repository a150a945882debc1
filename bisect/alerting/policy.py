"""Whether an alert may be bisected now: pure rules over plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator

from perfbisect.errors import BadInputError
from perfbisect.units import format_duration, parse_duration, parse_percent

_DAY = timedelta(days=1)


class Start(StrEnum):
    """Who starts a bisection."""

    AUTO = "auto"
    #: A person, on the page or by API.
    ASK = "ask"
    #: Nobody: alerts are kept and nothing is done.
    NEVER = "never"


class Standing(StrEnum):
    """How bisections of alerts stand to people's."""

    #: People first: an alert's bisection takes what they leave free.
    BEHIND = "behind"
    #: Alike.
    ALONGSIDE = "alongside"


class Policy(BaseModel):
    """``[series.NAME.policy]``, and ``[alerts.policy]`` for all series."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: Start = Start.AUTO
    #: When bisections may start, ``20:00-06:00``; empty: at any time.
    hours: str = ""
    #: Time zone of ``hours``.
    timezone: str = "UTC"
    #: Bisections within 24 hours; nothing: any number.
    budget_per_day: Annotated[int, Field(ge=0)] | None = 4
    #: Least time between the starts of two bisections.
    cooldown: str = "0s"
    priority: Standing = Standing.BEHIND
    #: Whether recoveries are explained too.
    recoveries: bool = True
    #: Names of ``[notify.NAME]``; nothing: all of them.
    tell: tuple[str, ...] | None = None
    #: What the bisection may cost and how sure it has to be, as for ``perfbisect bisect``.
    min_effect: str = "3%"
    confidence: float = Field(default=0.99, ge=0.5, le=0.9999)
    prove: bool = True
    max_runs: Annotated[int, Field(ge=1)] | None = None
    max_builds: Annotated[int, Field(ge=0)] | None = None
    max_time: str | None = None

    @field_validator("hours")
    @classmethod
    def _window(cls, value: str) -> str:
        if value:
            parse_hours(value)
        return value

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"no time zone {value!r}; one is like Europe/Berlin") from error
        return value

    @field_validator("cooldown")
    @classmethod
    def _pause(cls, value: str) -> str:
        parse_pause(value)
        return value

    @field_validator("max_time")
    @classmethod
    def _limit(cls, value: str | None) -> str | None:
        if value is not None:
            _readable(lambda: parse_duration(value, "max_time"))
        return value

    @field_validator("min_effect")
    @classmethod
    def _effect(cls, value: str) -> str:
        _readable(lambda: parse_percent(value, "min_effect"))
        return value


def _readable(parse: Callable[[], float]) -> float:
    """Read a value as pydantic wants it: with ``ValueError`` for what can't be read."""
    try:
        return parse()
    except BadInputError as error:
        raise ValueError(error.message) from error


def parse_pause(text: str) -> float:
    """Return the seconds of a duration that may be nothing: ``90s``, ``2m``, ``0s``.

    Raises:
        ValueError: it is none.
    """
    if text.strip() in ("0", "0s", "0m", "0h"):
        return 0.0
    return _readable(lambda: parse_duration(text, "duration"))


def parse_hours(text: str) -> tuple[time, time]:
    """Return the first and the last moment of ``20:00-06:00``.

    Raises:
        ValueError: it is none.
    """
    first, dash, last = text.partition("-")
    try:
        if not dash:
            raise ValueError
        begin, end = time.fromisoformat(first.strip()), time.fromisoformat(last.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} should be hours like '20:00-06:00'") from error
    if begin.tzinfo is not None or end.tzinfo is not None or begin == end:
        raise ValueError(f"{text!r} should be two different times of the day, without a zone")
    return begin, end


@dataclass(frozen=True, slots=True)
class Wait:
    """Why an alert is not bisected now."""

    #: Which rule: ``ask``, ``never``, ``hours``, ``budget`` or ``cooldown``.
    by: str
    #: In words.
    reason: str
    #: When it is looked at again; None: not by itself.
    until: datetime | None = None


def judge(
    policy: Policy,
    moment: datetime,
    *,
    own_starts: Sequence[datetime],
    all_starts: Sequence[datetime],
    budget_of_all: int | None,
) -> Wait | None:
    """Return why a bisection may not start now; None: it may.

    Args:
        moment: now, aware.
        own_starts: when bisections for alerts of this series were started, any order.
        all_starts: the same of all series.
        budget_of_all: how many may start within 24 hours, all series together; None: any number.
    """
    if policy.start is Start.NEVER:
        return Wait("never", "the policy wants nothing to be done about this series")
    if policy.start is Start.ASK:
        return Wait("ask", "the policy asks before it bisects: start or dismiss it")
    return (
        _outside_hours(policy, moment)
        or _cooling(policy, moment, own_starts)
        or _spent(policy.budget_per_day, moment, own_starts, "this series")
        or _spent(budget_of_all, moment, all_starts, "all series together")
    )


def _outside_hours(policy: Policy, moment: datetime) -> Wait | None:
    if not policy.hours:
        return None
    begin, end = parse_hours(policy.hours)
    local = moment.astimezone(ZoneInfo(policy.timezone))
    clock = local.time()
    inside = begin <= clock < end if begin < end else (clock >= begin or clock < end)
    if inside:
        return None
    opening = local.replace(
        hour=begin.hour, minute=begin.minute, second=begin.second, microsecond=0, fold=0
    )
    if opening <= local:
        opening += _DAY
    reason = f"bisections of this series start between {policy.hours} {policy.timezone} only"
    return Wait("hours", reason, opening.astimezone(moment.tzinfo))


def _cooling(policy: Policy, moment: datetime, starts: Sequence[datetime]) -> Wait | None:
    pause = timedelta(seconds=parse_pause(policy.cooldown))
    if not starts or max(starts) + pause <= moment:
        return None
    reason = (
        f"the last bisection of this series started less than "
        f"{format_duration(pause.total_seconds())} ago"
    )
    return Wait("cooldown", reason, max(starts) + pause)


def _spent(
    budget: int | None, moment: datetime, starts: Sequence[datetime], whose: str
) -> Wait | None:
    recent = sorted(start for start in starts if start > moment - _DAY)
    if budget is None or len(recent) < budget:
        return None
    reason = f"the budget of {whose} is spent: {budget} within 24 hours"
    # A budget of nothing never comes back: a person decides.
    until = recent[len(recent) - budget] + _DAY if budget else None
    return Wait("budget", reason, until)
