"""Infinite values, which rows from before the checks may hold, are shown and break nothing."""

from __future__ import annotations

import json
import math

import pytest
from sqlalchemy import select
from tests.helpers.scenes import seed_experiment
from tests.helpers.serving import API, Site

from perfbisect.reports.formats import finite
from perfbisect.reports.words import format_change, format_value
from perfbisect.store.series_tables import SeriesPointRow
from perfbisect.store.tables import BisectionRow, ExperimentRow, PointRow

NIGHTS = [{"night": f"2026-11-{day:02d}", "value": 100.0 + day % 3} for day in range(1, 20)]


@pytest.fixture
def spoilt(site: Site) -> tuple[Site, str]:
    """A service with infinite points, levels, ends, arms and nights; and an experiment's id."""
    experiment = seed_experiment(site.finished)
    assert site.client.post(f"{API}/nightly/spoilt/points", json=NIGHTS).status_code == 200
    with site.services.database.write() as session:
        of_it = select(PointRow).where(PointRow.bisection_id == site.finished.id)
        first, second, third = session.scalars(of_it.order_by(PointRow.id).limit(3))
        first.value, second.value = math.inf, -math.inf
        second.within, third.environment = [math.inf], {"load": math.inf}
        row = session.get_one(BisectionRow, site.finished.id)
        levels = {**(row.belief or {})["levels"], "0": [math.inf] * 3}
        row.belief = {**(row.belief or {}), "levels": levels}
        verdict = row.verdict or {}
        good = {**verdict["good"], "mean": math.inf, "ci95": [math.inf, math.inf]}
        row.verdict = {**verdict, "good": good}
        answer = session.get_one(ExperimentRow, experiment)
        arms = [dict(arm) for arm in (answer.verdict or {})["arms"]]
        arms[1] |= {"mean": math.inf, "change": math.inf, "ci95": [math.inf, math.inf]}
        answer.verdict = {**(answer.verdict or {}), "arms": arms}
        night = session.scalars(select(SeriesPointRow).limit(1)).one()
        night.value = math.inf
    return site, experiment


def _refuse(name: str) -> None:
    pytest.fail(f"{name} is no JSON")


def test_pages_and_answers_with_infinite_values_are_there(spoilt: tuple[Site, str]) -> None:
    """Every page and answer about them is there; JSON has null, which every reader understands."""
    site, experiment = spoilt
    bisection = f"/bisections/{site.finished.id}"
    for path in (
        bisection, f"{bisection}/commits/0", "/points", "/points?benchmark=resnet50-train",
        "/hosts", "/series", "/series/spoilt", f"/experiments/{experiment}",
    ):  # fmt: skip
        answer = site.client.get(path)
        assert answer.status_code == 200, (path, answer.text[:500])
    for path in (
        bisection, f"{bisection}/chart", f"{bisection}/points", f"{bisection}/report?format=json",
        "/points", "/accuracy", f"/experiments/{experiment}", "/nightly", "/nightly/spoilt/points",
        "/nightly/spoilt/chart", f"/experiments/{experiment}/report?format=json",
    ):  # fmt: skip
        answer = site.client.get(API + path)
        assert answer.status_code == 200, (path, answer.text[:500])
        json.loads(answer.text, parse_constant=_refuse)
    for path in (f"{bisection}/points?format=csv", f"{bisection}/report?format=md"):
        assert site.client.get(API + path).status_code == 200


def test_tables_show_an_infinite_value_as_such(spoilt: tuple[Site, str]) -> None:
    """A reader sees that the value is infinite, rather than nothing or a mistake of ours."""
    site, _ = spoilt
    assert "∞" in site.client.get(f"/bisections/{site.finished.id}").text
    assert "∞" in site.client.get("/points").text


def test_infinity_in_words_and_in_json() -> None:
    """Words have a sign for it, JSON has null."""
    assert [format_value(value) for value in (math.inf, -math.inf, math.nan)] == ["∞", "-∞", "?"]
    assert [format_change(value) for value in (math.inf, -math.inf)] == ["+∞", "-∞"]
    assert finite({"a": [1.5, math.nan, {"b": -math.inf}], "c": "x"}) == {
        "a": [1.5, None, {"b": None}],
        "c": "x",
    }
