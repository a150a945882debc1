"""Reading bisections and their evidence over HTTP."""

from __future__ import annotations

import csv
import io
import json

import pytest
from tests.helpers.seeding import Seed
from tests.helpers.serving import API, Site

from perfbisect.core.states import Outcome, WorkState


def test_the_verdict_is_the_documented_object(site: Site) -> None:
    """A finished bisection is the object of the documentation, with ends, culprits and cost."""
    verdict = site.json(f"/bisections/{site.finished.id}")
    assert (verdict["state"], verdict["outcome"]) == ("finished", "culprits")
    assert verdict["good"]["revision"] == site.finished.sha(0)
    assert verdict["good"]["runs"] == 3
    assert [culprit["position"] for culprit in verdict["culprits"]] == [19, 31]
    assert verdict["explained"]["total"] == pytest.approx(-0.41, abs=0.02)
    assert verdict["sentence"].startswith("2 steps explain the change")
    assert verdict["repository"] == "framework"


def test_a_queued_bisection_has_the_same_object(site: Site) -> None:
    """Before anything is conducted, the verdict is there, and says that it waits."""
    seed = Seed(site.services, name="fresh")
    seed.submit()
    verdict = site.json(f"/bisections/{seed.id}")
    assert (verdict["state"], verdict["outcome"], verdict["culprits"]) == ("queued", None, [])
    assert verdict["sentence"] == "Waiting to start."


def test_an_unchanged_verdict_is_not_sent_again(site: Site) -> None:
    """With the tag of the last answer, an unchanged verdict costs no body; a changed one comes."""
    path = f"{API}/bisections/{site.running.id}"
    first = site.client.get(path)
    again = site.client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    site.running.run(12)
    site.running.believe()
    changed = site.client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_pages_of_the_list_hold_every_bisection_once(site: Site) -> None:
    """Following ``next`` gives all bisections, newest first, none twice."""
    for number in range(3):
        Seed(site.services, name=f"more-{number}", n=2).submit()
    seen: list[str] = []
    after = ""
    while True:
        page = site.json(f"/bisections?limit=2&after={after}")
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert len(seen) == 5
    assert seen == sorted(set(seen), reverse=True)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=running", {"library"}),
        ("state=queued", set()),
        ("outcome=culprits", {"framework"}),
        ("repository=library", {"library"}),
        ("q=NIGHTLY", {"library"}),
        ("q=spans+vector", {"framework"}),
        ("q=100%25", set()),
        ("q=resnet50-train", {"library", "framework"}),
    ],
)
def test_filters_choose(site: Site, query: str, names: set[str]) -> None:
    """Each filter leaves what fits it; search looks at requester, subjects and benchmark alike."""
    page = site.json(f"/bisections?{query}")
    assert {item["repository"] for item in page["items"]} == names


def test_points_stand_at_their_position_whoever_measured_them(site: Site) -> None:
    """An axis' points include those of another bisection over the same trees."""
    seed = site.finished
    other = Seed(site.services, name=seed.name + "-2")
    other.submit()
    page = site.json(f"/bisections/{seed.id}/points?limit=500")
    by_position: dict[int, int] = {}
    for point in page["items"]:
        by_position[point["position"]] = by_position.get(point["position"], 0) + 1
    assert by_position[0] == 3
    assert sum(bool(point["rejected"]) for point in page["items"]) == 1
    assert site.json(f"/bisections/{other.id}/points")["items"] == []


def test_csv_has_the_same_points_as_json(site: Site) -> None:
    """The CSV of an axis holds every point, with positions and values, without paging."""
    base = f"/bisections/{site.finished.id}/points"
    text = site.client.get(f"{API}{base}?format=csv")
    assert text.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(text.text)))
    points = site.json(base + "?limit=500")["items"]
    # Pages come in order of time, the file in order of the axis.
    points.sort(key=lambda point: (point["position"], point["id"]))
    assert [float(row["value"]) for row in rows] == [point["value"] for point in points]
    assert [row["position"] for row in rows] == [str(point["position"]) for point in points]


def test_the_chart_has_columns_of_equal_length(site: Site) -> None:
    """The chart's columns hold every point, the levels, and the commits that do not build."""
    chart = site.json(f"/bisections/{site.finished.id}/chart")
    for part in ("points", "levels", "posterior", "commits"):
        assert len({len(column) for column in chart[part].values()}) == 1, part
    assert len(chart["points"]["value"]) == site.finished.runs
    assert chart["unbuildable"] == [29, 30]
    assert chart["last"] == site.finished.n
    assert chart["points"]["position"] == sorted(chart["points"]["position"])
    assert [step["position"] for step in chart["steps"]] == [19, 31]


def test_decisions_come_in_order_with_their_reasons(site: Site) -> None:
    """Decisions are paged by id, oldest first, each with a reason."""
    base = f"/bisections/{site.finished.id}/decisions"
    first = site.json(base + "?limit=5")
    rest = site.json(f"{base}?limit=500&after={first['next']}")
    decisions = first["items"] + rest["items"]
    assert [each["id"] for each in decisions] == sorted(each["id"] for each in decisions)
    assert decisions[-1]["kind"] == "finish"
    assert all(each["reason"] for each in decisions)
    assert rest["next"] is None


def test_builds_say_why_they_failed(site: Site) -> None:
    """A build that failed for good shows kind, cause and position."""
    builds = site.json(f"/bisections/{site.finished.id}/builds")
    failed = [build for build in builds if build["state"] == "failed"]
    assert [build["position"] for build in failed] == [29, 30]
    assert {build["failure_kind"] for build in failed} == {"permanent"}
    assert "does not name a type" in failed[0]["cause"]
    one = site.json(f"/builds/{failed[0]['id']}")
    assert one["cause"] == failed[0]["cause"]


def test_runs_say_where_and_why(site: Site) -> None:
    """A run shows its host and its purpose."""
    runs = site.json(f"/bisections/{site.finished.id}/runs")
    assert len(runs) == site.finished.runs
    assert {run["host"] for run in runs} == {"gpu-17"}
    assert {run["purpose"] for run in runs} == {"anchor", "search", "verify"}
    assert site.json(f"/runs/{runs[0]['id']}")["purpose"] == "anchor"


def parse_events(text: str) -> list[dict[str, str]]:
    """Return server-sent events as dicts of their fields."""
    events = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line.partition(": ") for line in block.split("\n") if not line.startswith(":")]
        fields = {name: value for name, _, value in lines if name}
        if fields:
            events.append(fields)
    return events


def test_events_of_a_finished_bisection_end(site: Site) -> None:
    """The stream gives every event in order and closes after the last."""
    answer = site.client.get(f"{API}/bisections/{site.finished.id}/events")
    events = parse_events(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events[0]["event"] == "submitted"
    assert events[-1]["event"] == "finished"
    assert json.loads(events[-1]["data"])["outcome"] == "culprits"
    ids = [int(event["id"]) for event in events]
    assert ids == sorted(ids)


def test_events_resume_after_the_last_seen(site: Site) -> None:
    """With Last-Event-ID only later events come; after the last one, nothing is left: 204."""
    path = f"{API}/bisections/{site.finished.id}/events"
    events = parse_events(site.client.get(path).text)
    resumed = site.client.get(path, headers={"Last-Event-ID": events[3]["id"]})
    assert parse_events(resumed.text) == events[4:]
    after = site.client.get(path, headers={"Last-Event-ID": events[-1]["id"]})
    assert after.status_code == 204


def test_logs_are_read_by_offset(site: Site) -> None:
    """A log comes as plain text; the next offset gives what follows; the end is said."""
    run_id = site.running.run(12, log="one\n\x1b[31mtwo\x1b[0m\n")
    path = f"{API}/runs/{run_id}/log"
    whole = site.client.get(path)
    assert whole.text == "one\ntwo\n"
    assert whole.headers["perfbisect-log-complete"] == "true"
    rest = site.client.get(path, params={"offset": 4})
    assert rest.text == "two\n"
    # The second line is 13 bytes long: a tail that starts with it keeps it, a shorter one does not.
    assert site.client.get(path, params={"tail": 13}).text == "two\n"
    assert site.client.get(path, params={"tail": 12}).text == ""


def test_a_growing_log_is_cut_between_lines(site: Site) -> None:
    """While a build goes on, an unfinished line is kept back and comes whole with the next part."""
    build_id = site.running.build(30, state=WorkState.RUNNING, log="first\nsec")
    path = f"{API}/builds/{build_id}/log"
    part = site.client.get(path)
    assert (part.text, part.headers["perfbisect-log-complete"]) == ("first\n", "false")
    with (site.services.settings.logs_dir / f"{build_id}.log").open("a") as file:
        file.write("ond\n")
    more = site.client.get(path, params={"offset": part.headers["perfbisect-next-offset"]})
    assert more.text == "second\n"


def test_points_of_all_times_are_found(site: Site) -> None:
    """Points are filtered by benchmark, host, commit and rejection, and carry their environment."""
    everything = site.json("/points?limit=500")["items"]
    assert len(everything) == len(site.json("/points?benchmark=resnet50-train&limit=500")["items"])
    of_host = site.json("/points?host=gpu-18&limit=500")["items"]
    assert {point["bisection_id"] for point in of_host} == {site.running.id}
    commit = site.finished.sha(24)
    of_commit = site.json(f"/points?commit={commit[:12]}")["items"]
    assert {point["commit"] for point in of_commit} == {commit}
    rejected = site.json("/points?rejected=true")["items"]
    assert [point["rejected"][:3] for point in rejected] == ["the"]
    assert rejected[0]["environment"]["driver"] == "418.87"
    assert site.json("/points?until=2000-01-01T00:00:00Z")["items"] == []


def test_all_points_as_csv_are_the_points_of_all_pages(site: Site) -> None:
    """The export has as many rows as there are points."""
    text = site.client.get(f"{API}/points?format=csv").text
    assert len(text.splitlines()) - 1 == len(site.json("/points?limit=500")["items"])


def test_wheels_hosts_and_names_are_listed(site: Site) -> None:
    """Wheels by commit, hosts with what they run now, repositories, recipes and benchmarks."""
    wheels = site.json(f"/wheels?commit={site.finished.sha(24)[:10]}")["items"]
    assert [wheel["recipe"] for wheel in wheels] == ["tf2-cuda10"]
    hosts = {host["name"]: host for host in site.json("/hosts")}
    assert hosts["gpu-18"]["running"]["bisection_id"] == site.running.id
    assert hosts["gpu-17"]["running"] is None
    assert hosts["gpu-17"]["rejected"] == 1
    assert [row["name"] for row in site.json("/repositories")] == ["framework", "library"]
    recipes = site.json("/recipes")
    assert any(recipe["shipped"] and recipe["definition"]["kind"] for recipe in recipes)
    benchmarks = site.json("/benchmarks")
    assert "resnet50-train" in {benchmark["name"] for benchmark in benchmarks}


def test_reports_come_as_json_and_markdown(site: Site) -> None:
    """A report is the verdict to keep; as Markdown it has the sentence and the decisions."""
    base = f"/bisections/{site.finished.id}/report"
    assert site.json(base)["id"] == site.finished.id
    text = site.client.get(f"{API}{base}?format=md")
    assert text.headers["content-type"].startswith("text/markdown")
    assert "2 steps explain the change" in text.text
    assert "## Decisions" in text.text


def test_cancelling_is_asked_for_once_and_refused_when_finished(site: Site) -> None:
    """A running bisection can be cancelled, twice without harm; a finished one can't: 409."""
    path = f"{API}/bisections/{site.running.id}/cancel"
    assert site.client.post(path).status_code == 202
    verdict = site.client.post(path).json()
    assert verdict["cancel_requested_at"] is not None
    assert verdict["sentence"].startswith("Cancelling")
    refused = site.client.post(f"{API}/bisections/{site.finished.id}/cancel")
    assert refused.status_code == 409
    assert refused.json()["type"].endswith(":conflict")


def test_outcomes_without_culprits_have_their_reason(site: Site) -> None:
    """A result that was not reproduced says so with its numbers."""
    seed = Seed(site.services, name="calm", steps={}, n=6)
    seed.submit()
    seed.start()
    seed.run(0)
    seed.run(6)
    seed.finish(Outcome.NOT_REPRODUCED, reason="the ends differ by +0.4%")
    verdict = site.json(f"/bisections/{seed.id}")
    assert verdict["sentence"] == "Not reproduced: the ends differ by +0.4%."


def test_metrics_count_what_is_there(site: Site) -> None:
    """Prometheus gets bisections, builds and runs by state, failures by kind, and requests."""
    site.client.get(f"{API}/bisections")
    text = site.client.get("/metrics").text
    assert 'perfbisect_bisections{state="running"} 1.0' in text
    assert 'perfbisect_builds{state="failed"} 2.0' in text
    assert 'perfbisect_failures{kind="permanent"} 2.0' in text
    assert 'route="/api/v1/bisections"' in text


def test_health_and_readiness(site: Site) -> None:
    """The service says that it is alive, and that its database can be read."""
    assert site.client.get("/healthz").json()["status"] == "ok"
    ready = site.client.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]) == (200, {"database": "ok"})
