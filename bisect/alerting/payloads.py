"""What Alertmanager, Grafana and others send, read into signals. Pure, and never surprised.

Every alert of a payload becomes one ``Delivery``: it fires, it is over, or it is rejected with the
reason. A payload that is no payload at all raises ``BadInputError``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perfbisect.alerting.mapping import NUMBERS, TEXTS, Rule, checked, is_text, mapped
from perfbisect.alerts import AlertSignal
from perfbisect.errors import BadInputError

#: Alerts of one payload at most.
MOST_ALERTS = 1000
#: Labels or annotations of one alert at most, and characters of one.
_MOST_LABELS, _MOST_VALUE = 100, 4000
#: Characters of a rejected alert that are kept.
_EXCERPT = 500
_GENERIC = frozenset(
    {*TEXTS, *NUMBERS, "fingerprint", "started_at", "status", "title", "labels", "annotations",
     "url", "resolution"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert is on."""

    signal: AlertSignal


@dataclass(frozen=True, slots=True)
class Over:
    """An alert is over."""

    source: str
    fingerprint: str
    started_at: datetime
    words: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An alert that could not be read."""

    source: str
    detail: str
    excerpt: str = ""


Delivery = Firing | Over | Rejected


def read_json(body: bytes) -> Any:
    """Return a body as JSON.

    Raises:
        BadInputError: it is none, or holds numbers that JSON does not have.
    """
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"body: not JSON: {error}"[:300], field="body") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def read_alertmanager(
    payload: Any, rules: Sequence[Rule], *, source: str = "alertmanager"
) -> list[Delivery]:
    """Read a webhook of Alertmanager (version 4) or Grafana, which sends the same and more.

    Raises:
        BadInputError: it is none.
    """
    if not isinstance(payload, dict):
        raise BadInputError("body: should be an object", field="body")
    version = payload.get("version", "4")
    if source == "alertmanager" and version != "4":
        raise BadInputError(
            f"version = {version!r:.40} should be '4', the version of Alertmanager's webhook",
            field="version",
            value=version,
        )
    alerts = payload.get("alerts")
    if not isinstance(alerts, list):
        raise BadInputError("alerts: should be an array of alerts", field="alerts")
    if len(alerts) > MOST_ALERTS:
        raise BadInputError(f"alerts: more than {MOST_ALERTS} in one payload", field="alerts")
    return [_each(source, alert, lambda each: _labelled(source, each, rules)) for alert in alerts]


def read_generic(payload: Any, rules: Sequence[Rule]) -> list[Delivery]:
    """Read one alert, or an array of alerts, with fields of our own names.

    Raises:
        BadInputError: it is none.
    """
    alerts = payload if isinstance(payload, list) else [payload]
    if len(alerts) > MOST_ALERTS:
        raise BadInputError(f"body: more than {MOST_ALERTS} alerts", field="body")
    return [_each("generic", alert, lambda each: _named(each, rules)) for alert in alerts]


def _each(source: str, alert: Any, read: Any) -> Delivery:
    try:
        if not isinstance(alert, dict):
            raise BadInputError("an alert should be an object")
        delivery: Delivery = read(alert)
    except BadInputError as error:
        return Rejected(source, error.message, _excerpt(alert))
    return delivery


def _excerpt(alert: Any) -> str:
    # ASCII: what is rejected may hold characters that no database takes.
    return json.dumps(alert, default=str)[:_EXCERPT]


def _labelled(source: str, alert: Mapping[str, Any], rules: Sequence[Rule]) -> Delivery:
    """Read an alert with labels and annotations."""
    labels = _texts(alert.get("labels"), "labels")
    annotations = _texts(alert.get("annotations"), "annotations")
    started_at = _moment(alert.get("startsAt"), "startsAt")
    fingerprint = _fingerprint(alert.get("fingerprint"), labels)
    if _status(alert) == "resolved":
        return Over(source, fingerprint, started_at, annotations.get("resolution", ""))
    title = annotations.get("summary") or labels.get("alertname", "")
    signal = AlertSignal(
        source=source,
        fingerprint=fingerprint,
        started_at=started_at,
        title=title[:300],
        labels=labels,
        url=_url(alert),
        **mapped(rules, labels, annotations),
    )
    return Firing(signal)


def _named(alert: Mapping[str, Any], rules: Sequence[Rule]) -> Delivery:
    """Read an alert with fields of our own names; labels are there for rules."""
    unknown = sorted(set(alert) - _GENERIC)
    if unknown:
        raise BadInputError(f"unknown field '{unknown[0]}'"[:200], field=unknown[0])
    labels = _texts(alert.get("labels"), "labels")
    annotations = _texts(alert.get("annotations"), "annotations")
    told = {
        name: checked(name, _scalar(alert[name], name))
        for name in (*TEXTS, *NUMBERS)
        if alert.get(name) not in (None, "")
    }
    started_at = _moment(alert.get("started_at"), "started_at")
    identity = {**labels, **{name: str(value) for name, value in told.items()}}
    fingerprint = _fingerprint(alert.get("fingerprint"), identity)
    if _status(alert) == "resolved":
        return Over("generic", fingerprint, started_at, _line(alert, "resolution"))
    fields = {**(mapped(rules, labels, annotations) if labels or annotations else {}), **told}
    signal = AlertSignal(
        source="generic",
        fingerprint=fingerprint,
        started_at=started_at,
        title=_line(alert, "title"),
        labels=labels,
        url=_line(alert, "url"),
        **fields,
    )
    return Firing(signal)


def _scalar(value: Any, name: str) -> str | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInputError(f"{name}: should be text or a number", field=name)
    return value if isinstance(value, str) else _finite(value, name)


def _finite(value: float, name: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadInputError(f"{name}: is out of range", field=name)
    return value


def _line(alert: Mapping[str, Any], name: str) -> str:
    value = alert.get(name, "")
    if not isinstance(value, str) or not is_text(value) or len(value) > _MOST_VALUE:
        raise BadInputError(f"{name}: should be text of {_MOST_VALUE} characters at most")
    return value


def _status(alert: Mapping[str, Any]) -> str:
    status = alert.get("status", "firing")
    if status not in ("firing", "resolved"):
        raise BadInputError(f"status = {status!r:.40} should be firing or resolved", field="status")
    return str(status)


def _texts(value: Any, name: str) -> dict[str, str]:
    """Return labels or annotations: text to text."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MOST_LABELS:
        raise BadInputError(f"{name}: should be an object of {_MOST_LABELS} texts at most")
    for key, text in value.items():
        right = isinstance(text, str) and len(text) <= _MOST_VALUE and is_text(key + text)
        if not right:
            raise BadInputError(f"{name}.{key!r:.80}: should be text", field=name)
    return dict(value)


def _moment(value: Any, name: str) -> datetime:
    if not isinstance(value, str):
        raise BadInputError(f"{name}: should be a moment like 2019-09-14T06:00:00Z", field=name)
    try:
        # Go writes nanoseconds, which Python reads and cuts.
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        utc = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInputError(
            f"{name} = {value!r:.60} should be a moment with its zone, like 2019-09-14T06:00:00Z",
            field=name,
            value=value,
        ) from error
    if utc.year < 1970:
        # Go's zero moment means that nobody set it.
        raise BadInputError(f"{name} = {value!r:.60} lies before 1970", field=name, value=value)
    return utc


def _fingerprint(value: Any, identity: Mapping[str, str]) -> str:
    """Return what the sender calls an alert; without a name, a digest of its labels."""
    if value is None or value == "":
        if not identity:
            raise BadInputError("an alert without fingerprint and labels can't be told from others")
        plain = json.dumps(sorted(identity.items()))
        return hashlib.sha256(plain.encode()).hexdigest()[:32]
    if not isinstance(value, str) or len(value) > 200 or not is_text(value):
        raise BadInputError("fingerprint: should be text of 200 characters at most")
    return value


def _url(alert: Mapping[str, Any]) -> str:
    """Return the sender's page: only what a browser may be sent to."""
    for name in ("panelURL", "dashboardURL", "generatorURL"):
        value = alert.get(name)
        if isinstance(value, str) and is_web_page(value):
            return value
    return ""


def is_web_page(text: str) -> bool:
    """Return whether a text may become a link."""
    return text.startswith(("http://", "https://")) and len(text) <= 2000 and is_text(text)


def counted(deliveries: Iterable[Delivery]) -> int:
    """Return how many of them could not be read."""
    return sum(isinstance(each, Rejected) for each in deliveries)
