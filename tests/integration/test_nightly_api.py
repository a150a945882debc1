"""Nightly series by API and command line: points in, once however often, mistakes named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select
from tests.helpers.command_line import call
from tests.helpers.conducting import PROJECT, make_conductor
from tests.helpers.serving import API, client_of, listening, opened, settings_in, shown_app
from tests.helpers.waiting import until

from perfbisect import series
from perfbisect.api import create_app
from perfbisect.conductor import Conductor
from perfbisect.services import Services
from perfbisect.store.series_tables import SeriesRow
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

READERS = Path(__file__).resolve().parents[1] / "data" / "readers"
FIRST = date(2019, 7, 1)


@dataclass
class Site:
    client: TestClient
    services: Services

    def post(self, name: str, body: object, status: int = 200, **options: Any) -> Any:
        answer = self.client.post(f"{API}/nightly/{name}/points", json=body, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(f"{API}/nightly{path}")
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "perfbisect.toml").write_text("")
    settings = settings_in(tmp_path, project_dir=tmp_path)
    with client_of(shown_app(settings)) as client, opened(settings) as services:
        yield Site(client, services)


def drop(nights: int, at: int) -> list[dict[str, Any]]:
    """Return nights of 9,000 images/s, from ``at`` on of 7,600, with 1% noise."""
    random = np.random.default_rng(11)
    return [
        {
            "night": str(FIRST + timedelta(days=night)),
            "value": (9000.0 if night < at else 7600.0) * math.exp(0.01 * random.standard_normal()),
        }
        for night in range(nights)
    ]


def test_points_are_stored_once(site: Site) -> None:
    """The same points again are known, one by one and in bulk; the others of a delivery are new."""
    point = {"night": "2019-09-14", "values": [1.0, 3.0, 2.0], "host": "gpu-1"}
    assert site.post("a", point)["added"] == 1
    assert site.post("a", point) | {"first": None, "last": None} == {
        "series": "a", "added": 0, "known": 1, "first": None, "last": None,
    }  # fmt: skip
    both = site.post("a", {"points": [point, {**point, "host": "gpu-2"}]})
    assert (both["added"], both["known"]) == (1, 1)
    items = site.get("/a/points")["items"]
    assert {(item["host"], item["value"], item["runs"]) for item in items} == {
        ("gpu-1", 2.0, 3),
        ("gpu-2", 2.0, 3),
    }


def test_a_point_is_never_rewritten(site: Site) -> None:
    """Another value for a night is refused by name of point and field, and nothing is stored."""
    site.post("a", {"night": "2019-09-14", "value": 5.0})
    body = [{"night": "2019-09-15", "value": 5.0}, {"night": "2019-09-14", "value": 6.0}]
    problem = site.post("a", body, 409)
    assert "points[1].value" in problem["detail"]
    assert "night 2019-09-14" in problem["detail"]
    assert site.get("/a")["nights"] == 1


def test_a_key_gives_the_same_answer(site: Site) -> None:
    """An Idempotency-Key answers a repetition alike, and refuses other points."""
    headers = {"Idempotency-Key": "night-1"}
    point = {"night": "2019-09-14", "value": 5.0}
    first = site.post("a", point, headers=headers)
    assert site.post("a", point, headers=headers) == first
    site.post("a", {**point, "value": 6.0}, 409, headers=headers)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ([{"night": "2019-09-14", "value": 1.0}, {"night": "2019-09-14"}], "points[1]"),
        ([{"night": "2019-02-30", "value": 1.0}], "points[0].night"),
        ([{"night": "2019-09-14", "value": 0}], "points[0].value"),
        ([{"night": "2019-09-14", "value": 1, "nigth": 2}], "points[0].nigth"),
        ({"points": [{"night": "2019-09-14", "value": 1, "commits": {"a": "xyz"}}]}, "commits"),
        ({"points": []}, "points"),
        ([[1]], "points[0]"),
        ({"series": {"units": "x"}, "points": [{"night": "2019-09-14", "value": 1}]}, "unit"),
        ({"series": {"schedule": "* * * * *"}, "points": [{}]}, "schedule"),
        ({"series": {"repository": "/etc"}, "points": [{}]}, "repository"),
        ({"series": {"package": "tensorflow"}, "points": [{}]}, "package"),
        ({"series": {"benchmark": "no-such"}, "points": [{}]}, "benchmark"),
        ({"series": {"recipe": "../x.toml"}, "points": [{}]}, "recipe"),
        ({"series": {"policy": {"start": "x"}}, "points": [{}]}, "series.policy: start"),
        ({"series": {"policy": {"timezone": "../x"}}, "points": [{}]}, "series.policy: timezone"),
        ({"series": {"policy": {"tell": ["nobody"]}}, "points": [{}]}, "series.policy.tell"),
        ([{"night": "2019-09-14", "value": 1e308}], "points[0].value"),
        ([{"night": "2019-09-14", "values": [1.7e308, 1.7e308]}], "points[0].values"),
        ([{"night": "2019-09-14", "value": 1e-320}], "points[0].value"),
        ([{"night": "2019-09-14", "value": True}], "points[0].value"),
        ([{"night": "2999-01-01", "value": 1}], "points[0].night"),
        (
            [{"night": "2019-09-14", "value": 1, "measured_at": "0001-01-01T00:00:00+14:00"}],
            "points[0].measured_at",
        ),
        (
            [{"night": "2019-09-14", "value": 1, "measured_at": "9999-12-31T23:00:00-14:00"}],
            "points[0].measured_at",
        ),
    ],
)
def test_what_is_wrong_is_named(site: Site, body: object, named: str) -> None:
    """Bad input names the point and the field, and makes no series."""
    if isinstance(body, dict) and body.get("points") == [{}]:
        body = {**body, "points": [{"night": "2019-09-14", "value": 1}]}
    problem = site.post("a", body, 422)
    assert named in problem["detail"]
    assert site.get("") == []


def test_a_policy_with_no_number_is_refused(site: Site) -> None:
    """NaN is no confidence; stored, it would be no JSON any more."""
    points = '[{"night": "2019-09-14", "value": 1}]'
    body = f'{{"series": {{"policy": {{"confidence": NaN}}}}, "points": {points}}}'
    answer = site.client.post(
        f"{API}/nightly/a/points", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == "series.policy"
    assert site.get("") == []


@pytest.mark.parametrize("stamp", ["1e20", "-1e20", "NaN", "Infinity", "1" * 400, "1e12"])
def test_a_summary_of_no_moment_is_refused(site: Site, stamp: str) -> None:
    """PerfZero's summary with a moment that is none is refused by the field's name."""
    body = """{"execution_timestamp": %s, "ml_framework_info": {}, "system_info": {},
        "benchmark_result": {"metrics": [{"name": "exp_per_second", "value": 5}]}}"""
    answer = site.client.post(
        f"{API}/nightly/a/points",
        content=body % stamp,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == "execution_timestamp"


def test_a_series_name_is_checked(site: Site) -> None:
    """A name that could not be a file's or an address' is refused."""
    problem = site.post("a%20b", {"night": "2019-09-14", "value": 1.0}, 422)
    assert "letters, digits" in problem["detail"]


def test_perfzero_summaries_are_recognised(site: Site) -> None:
    """PerfZero's summary gives day, version, commit and its main metric, or the one asked for."""
    summary = json.loads((READERS / "perfzero_summary.json").read_text())
    site.post("zero", summary)
    (point,) = site.get("/zero/points")["items"]
    assert (point["night"], point["source"]) == ("2019-08-02", "perfzero")
    assert point["value"] == pytest.approx(2843.71, abs=0.01)
    assert point["commits"] == {"tensorflow": "3e0ad8a004"}
    answer = site.client.post(f"{API}/nightly/zero/points?metric=no", json=summary)
    assert answer.status_code == 422
    assert "exp_per_second" in answer.json()["detail"]


def test_pytest_benchmark_needs_a_day_and_a_test(site: Site) -> None:
    """pytest-benchmark's JSON is recognised; of several tests one is asked for by ``metric``."""
    document = json.loads((READERS / "pytest-benchmark.json").read_text())
    names = [test["name"] for test in document["benchmarks"]]
    path = f"{API}/nightly/speed/points?night=2024-01-02&metric={names[0]}"
    answer = site.client.post(path, json=document)
    assert answer.status_code == 200, answer.text
    (point,) = site.get("/speed/points")["items"]
    assert point["night"] == "2024-01-02"
    assert point["source"] == "pytest-benchmark"


def test_changes_and_the_series_are_shown(site: Site) -> None:
    """A drop is a change of the series on API and page; gaps are told, unknown names are 404."""
    nights = drop(40, 30)
    del nights[12:15]
    site.post("a", {"series": {"unit": "images/s"}, "points": nights})
    assert series.search(site.services) == 1
    (change,) = site.get("/a/changes")
    assert change["good"]["night"] == "2019-07-30"
    assert change["bad"]["night"] == "2019-07-31"
    assert change["state"] == "confirmed"
    assert change["confirmed_by"] == "nights"
    assert site.get("/a/changes?state=refuted") == []
    assert site.get("/a")["changes"]["confirmed"] == 1
    chart = site.get("/a/chart")
    assert chart["missing"] == [["2019-07-13", "2019-07-15"]]
    assert [round(level[2], -2) for level in chart["levels"]] == [9000.0, 7600.0]
    page = site.client.get("/series/a").text
    assert "2019-07-13 to 2019-07-15" in page
    assert "by further nights" in page
    assert 'href="/series/a"' in site.client.get("/series").text
    assert site.get("/b", 404)["field"] == "series"
    assert site.client.get("/series/b").status_code == 404


def test_a_running_service_searches_what_comes(tmp_path: Path) -> None:
    """Points that are sent to a service are searched by itself, without being asked."""
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    settings = settings_in(tmp_path, project_dir=tmp_path)

    def make(services: Services) -> Conductor:
        return make_conductor(
            services, ScriptedBuilder(), ScriptedRunner(lambda commit: 1.0), tmp_path
        )

    with client_of(create_app(settings, make=make)) as client:
        answer = client.post(f"{API}/nightly/a/points", json=drop(34, 30))
        assert answer.status_code == 200, answer.text
        path = f"{API}/nightly/a/changes?state=confirmed"
        until(lambda: client.get(path).json() != [], "a confirmed change", pause=0.05)
        found = client.get(path).json()
    assert found[0]["bad"]["night"] == "2019-07-31"


def test_searching_again_finds_nothing_new(site: Site) -> None:
    """What was searched is not searched again; a late night of the past is looked at once."""
    site.post("a", drop(40, 30))
    assert series.search(site.services) == 1
    assert series.search(site.services) == 0
    site.post("a", {"night": "2019-06-30", "value": 9010.0})
    assert series.search(site.services) == 1
    assert series.search(site.services) == 0
    assert len(site.get("/a/changes")) == 1


def test_csv_goes_out_and_comes_in(site: Site, tmp_path: Path) -> None:
    """What is exported as CSV can be imported, with its commits; where it came from it is known."""
    commits = {"tensorflow": "53bdcf5", "models": "0a1b2c3d"}
    site.post("a", [{**point, "commits": commits} for point in drop(12, 99)])
    text = site.client.get(f"{API}/nightly/a/points?format=csv").text
    file = tmp_path / "a.csv"
    file.write_text(text)
    told = call(["nightly", "import", str(file), "--json", f"--data-dir={tmp_path}/data"])
    assert told.json["known"] == 12
    other = call(["nightly", "import", str(file), "--json", f"--data-dir={tmp_path}/other"])
    assert other.json["added"] == 12


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("night,worth\n2019-07-01,1\n", "no column 'value'"),
        ("night,value\n2019-07-01,1\n2019-07-02,x\n", "row 3.value"),
        ("night,value\n2019-07-01,1,2\n", "row 2: more cells"),
        ("", "no column 'night'"),
    ],
)
def test_wrong_files_are_told_by_row(tmp_path: Path, text: str, named: str) -> None:
    """What is wrong in a CSV file is told by row and column, with exit code 2."""
    file = tmp_path / "nights.csv"
    file.write_text(text)
    told = call(["nightly", "import", str(file), f"--data-dir={tmp_path}/data"])
    assert told.code == 2
    assert named in told.err


CSV = "night,value\n2019-09-14,7590.1\n2019-09-15,7601.7\n"


@pytest.mark.parametrize("where", ["here", "on a server"])
def test_an_import_does_not_change_what_a_series_is(tmp_path: Path, where: str) -> None:
    """Another unit or direction is refused by its option; the same ones, or none, are welcome."""
    (tmp_path / "perfbisect.toml").write_text("")
    settings = settings_in(tmp_path, project_dir=tmp_path)
    file = tmp_path / "resnet.csv"
    file.write_text(CSV)
    with listening(shown_app(settings)) as url:
        place = ["--server", url] if where != "here" else [f"--data-dir={tmp_path}/data"]
        command = ["nightly", "import", str(file), *place]
        first = call([*command, "--unit", "s", "--better", "lower", "--json"]).json
        assert (first["added"], first["changes"]) == (2, [])
        for option, value in (("--unit", "ms"), ("--better", "higher")):
            refused = call([*command, option, value])
            assert refused.code == 2
            assert f"{option}: series 'resnet' has" in refused.err
        assert call([*command, "--unit", "s", "--json"]).json["known"] == 2
        assert call([*command, "--json"]).json["known"] == 2
    with opened(settings) as services, services.database.read() as session:
        row = session.scalars(select(SeriesRow)).one()
        assert (row.unit, row.better) == ("s", "lower")


def test_an_import_goes_to_one_place(tmp_path: Path) -> None:
    """A server and a data directory at once is bad input."""
    file = tmp_path / "resnet.csv"
    file.write_text(CSV)
    ended = call(
        ["nightly", "import", str(file), "--server", "http://127.0.0.1:9", f"--data-dir={tmp_path}"]
    )
    assert ended.code == 2
    assert "--server: the points go to the server" in ended.err
