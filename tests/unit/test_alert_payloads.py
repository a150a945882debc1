"""Webhooks read: what is right becomes signals, what is wrong is rejected with the reason."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfbisect.alerting.mapping import Rule
from perfbisect.alerting.payloads import (
    Firing,
    Over,
    Rejected,
    read_alertmanager,
    read_generic,
    read_json,
)
from perfbisect.alerting.signatures import check, sign
from perfbisect.core.states import ChangeKind
from perfbisect.errors import BadInputError, NotAuthorisedError

NIGHT = datetime(2019, 9, 14, 6, tzinfo=UTC)


def alertmanager(**alert: Any) -> dict[str, Any]:
    """Return what Alertmanager sends, with one alert."""
    whole = {
        "status": "firing",
        "labels": {"alertname": "Dropped", "benchmark": "resnet50", "pool": "v100"},
        "annotations": {"summary": "ResNet-50 dropped", "good": "3e0ad8a", "bad": "3205135"},
        "startsAt": "2019-09-14T06:00:00.000000000Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example/graph",
        "fingerprint": "c0ffee",
    }
    return {
        "version": "4",
        "groupKey": "{}",
        "status": "firing",
        "receiver": "perfbisect",
        "alerts": [whole | alert],
    }


def test_an_alert_of_alertmanager_is_read_whole() -> None:
    """Labels, annotations, start, fingerprint and page arrive in the signal."""
    (delivery,) = read_alertmanager(alertmanager(), ())
    assert isinstance(delivery, Firing)
    signal = delivery.signal
    assert (signal.source, signal.fingerprint, signal.started_at) == (
        "alertmanager", "c0ffee", NIGHT,
    )  # fmt: skip
    assert (signal.benchmark, signal.pool, signal.good, signal.bad) == (
        "resnet50", "v100", "3e0ad8a", "3205135",
    )  # fmt: skip
    assert signal.title == "ResNet-50 dropped"
    assert signal.url == "http://prometheus.example/graph"


def test_a_resolved_alert_names_the_one_that_is_over() -> None:
    """``resolved`` carries fingerprint and start of the alert that it ends."""
    (delivery,) = read_alertmanager(alertmanager(status="resolved"), ())
    assert delivery == Over("alertmanager", "c0ffee", NIGHT)


def test_a_page_that_is_no_web_page_is_no_link() -> None:
    """Addresses of scripts do not become links."""
    (delivery,) = read_alertmanager(alertmanager(generatorURL="javascript:alert(1)"), ())
    assert isinstance(delivery, Firing)
    assert delivery.signal.url == ""


def test_the_first_rule_that_holds_is_used() -> None:
    """Rules match whole values, and fill their texts from labels, else annotations."""
    rules = (
        Rule(match={"alertname": "Drop"}, series="never: the value is longer"),
        Rule(match={"alertname": "Drop.*"}, series="{benchmark}-{pool}", bad="{bad}-dirty",
             change="-31%"),
        Rule(series="never: an earlier one holds"),
    )  # fmt: skip
    (delivery,) = read_alertmanager(alertmanager(), rules)
    assert isinstance(delivery, Firing)
    assert (delivery.signal.series, delivery.signal.bad) == ("resnet50-v100", "3205135-dirty")
    assert delivery.signal.change == pytest.approx(-0.31)
    assert delivery.signal.good == "3e0ad8a"


def test_a_rule_that_names_what_is_not_there_rejects_with_the_name() -> None:
    """A typo in a rule is told with the alert it did not fit."""
    (delivery,) = read_alertmanager(alertmanager(), (Rule(series="{bnchmark}"),))
    assert isinstance(delivery, Rejected)
    assert "'bnchmark'" in delivery.detail


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"startsAt": "yesterday"}, "startsAt"),
        ({"startsAt": "2019-09-14T06:00:00"}, "startsAt"),
        ({"startsAt": "0001-01-01T00:00:00Z"}, "1970"),
        ({"startsAt": None}, "startsAt"),
        ({"status": "burning"}, "status"),
        ({"labels": ["a"]}, "labels"),
        ({"labels": {"a": 1}}, "labels"),
        ({"annotations": {"before": "-1"}}, "before"),
        ({"annotations": {"change": "NaN"}}, "change"),
        ({"annotations": {"kind": "worse"}}, "kind"),
        ({"fingerprint": 7}, "fingerprint"),
        ({"labels": {"series": "x" * 300}}, "series"),
        ({"labels": {"series": "a\x00b"}}, "labels"),
    ],
)
def test_what_is_wrong_is_rejected_by_name(change: dict[str, Any], told: str) -> None:
    """One malformed alert is rejected with its field; those beside it are read."""
    payload = alertmanager(**change)
    payload["alerts"] += alertmanager()["alerts"]
    wrong, right = read_alertmanager(payload, ())
    assert isinstance(wrong, Rejected)
    assert told in wrong.detail
    assert isinstance(right, Firing)


@pytest.mark.parametrize(
    "payload", [[], None, 3, {}, {"alerts": {}}, {"version": "3", "alerts": []}]
)
def test_what_is_no_payload_is_refused(payload: Any) -> None:
    """Something else than a webhook is bad input as a whole."""
    with pytest.raises(BadInputError):
        read_alertmanager(payload, ())


def test_a_generic_alert_is_read_whole() -> None:
    """Fields of our own names arrive as they are; numbers may be text."""
    (delivery,) = read_generic(
        {
            "started_at": "2019-09-14T08:00:00+02:00",
            "series": "resnet50-gpu",
            "kind": "recovery",
            "before": "6200",
            "after": 9000,
            "probability": "99%",
        },
        (),
    )
    assert isinstance(delivery, Firing)
    signal = delivery.signal
    assert (signal.series, signal.kind, signal.started_at) == (
        "resnet50-gpu", ChangeKind.RECOVERY, NIGHT,
    )  # fmt: skip
    assert (signal.before, signal.after, signal.probability) == (6200.0, 9000.0, 0.99)


def test_the_end_of_a_generic_alert_finds_its_beginning() -> None:
    """Without a fingerprint, the same fields give the same alert, over or not."""
    body = {"started_at": "2019-09-14T06:00:00Z", "series": "resnet50-gpu"}
    (begin,), (end,) = read_generic(body, ()), read_generic({**body, "status": "resolved"}, ())
    assert isinstance(begin, Firing)
    assert isinstance(end, Over)
    assert begin.signal.fingerprint == end.fingerprint


def test_unknown_fields_are_refused() -> None:
    """A misspelt field is told, not overlooked."""
    (delivery,) = read_generic({"started_at": "2019-09-14T06:00:00Z", "sreies": "a"}, ())
    assert isinstance(delivery, Rejected)
    assert "sreies" in delivery.detail


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
#: Texts that alerts hold, and others.
WORDS = st.sampled_from(
    ["firing", "resolved", "2019-09-14T06:00:00Z", "0001-01-01T00:00:00Z", "regression", "-31%",
     "9000", "1e999", "nan", "", "\x00", "\ud800", "9999-12-31T23:59:59-23:59"]
) | st.text(max_size=20)  # fmt: skip
ALERTS = st.dictionaries(
    st.sampled_from(
        ["status", "labels", "annotations", "startsAt", "fingerprint", "generatorURL", "series",
         "started_at", "before", "after", "change", "probability", "kind", "good", "title", "url"]
    ),
    JSON | WORDS | st.dictionaries(st.sampled_from(["series", "change", "kind", "good"]), WORDS),
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(alerts=st.lists(ALERTS | JSON, max_size=4))
def test_no_payload_surprises_the_readers(alerts: list[Any]) -> None:
    """Whatever is sent: each alert becomes one delivery, and nothing but bad input is raised."""
    rules = (Rule(match={"kind": "r.*"}, change="{change}"),)
    assert len(read_alertmanager({"version": "4", "alerts": alerts}, rules)) == len(alerts)
    assert len(read_generic(alerts, rules)) == len(alerts)
    for delivery in read_generic(alerts, rules):
        if isinstance(delivery, Rejected):
            # What is kept of it can be stored anywhere.
            delivery.excerpt.encode("ascii")


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(body=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_body_surprises_the_readers(body: bytes) -> None:
    """Bytes that are no webhook are bad input, never anything else."""
    for read in (read_alertmanager, read_generic):
        with suppress(BadInputError):
            assert isinstance(read(read_json(body), ()), list)


def test_deep_nesting_is_bad_input() -> None:
    """A body made to exhaust the stack is refused."""
    with pytest.raises(BadInputError):
        read_json(b"[" * 100_000)


def test_a_fresh_signature_of_the_body_is_good() -> None:
    """What Grafana signed with the same secret is let in."""
    body, stamp = b'{"alerts": []}', str(int(NIGHT.timestamp()))
    check("s3cret", body, sign("s3cret", body, stamp), stamp, NIGHT)


@pytest.mark.parametrize(
    ("body", "secret", "late"),
    [(b"{}", "s3cret", 0), (b'{"alerts": []}', "other", 0), (b'{"alerts": []}', "s3cret", 301),
     (b'{"alerts": []}', "s3cret", -301)],
)  # fmt: skip
def test_other_signatures_are_refused(body: bytes, secret: str, late: int) -> None:
    """Another body, another secret, or another time than now is refused."""
    stamp = str(int(NIGHT.timestamp()) - late)
    signature = sign("s3cret", b'{"alerts": []}', stamp)
    with pytest.raises(NotAuthorisedError):
        check(secret, body, signature, stamp, NIGHT)


@pytest.mark.parametrize("stamp", ["", "now", "-5", "１２３", "9" * 40])
def test_a_signature_without_a_time_is_refused(stamp: str) -> None:
    """Without the time of signing a copy would be good for ever."""
    with pytest.raises(NotAuthorisedError, match="time"):
        check("s3cret", b"", sign("s3cret", b"", stamp), stamp, NIGHT)
