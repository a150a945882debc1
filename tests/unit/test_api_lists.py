"""Lists: filters, exports, answers that are sent again only if they changed, streams."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from tests.helpers.scenes import seed_experiment
from tests.helpers.seeding import Seed
from tests.helpers.serving import API, Site

from perfbisect.core.states import BisectionState
from perfbisect.store import bisections
from perfbisect.store.database import now
from perfbisect.store.jobs import experiment
from perfbisect.store.tables import ExperimentRow


def ids(site: Site, path: str) -> list[str]:
    """Return the ids of a list."""
    return [item["id"] for item in site.json(path)["items"]]


def moment(seed: Seed, hours: float) -> str:
    """Return a time relative to a bisection's submission, fit for an address."""
    return (seed.started + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_bisections_are_filtered(site: Site) -> None:
    """Each filter keeps what fits and leaves out the rest."""
    finished, running = site.finished, site.running
    both = [running.id, finished.id]
    for query, kept in {
        "": both,
        "repository=framework": [finished.id],
        "repository=https://example.org/library.git": [running.id],
        f"culprit={finished.sha(19)[:8]}": [finished.id],
        f"culprit={finished.sha(20)[:12]}": [],
        f"commit={finished.sha(20)[:12]}": [finished.id],
        f"commit={running.sha(3).upper()}": [running.id],
        "commit=%25": [],
        "benchmark=resnet50-train": both,
        f"benchmark={running.benchmark_digest}": [running.id],
        "benchmark=other": [],
        "host=gpu-17": [finished.id],
        "host=gpu-18": [running.id],
        "requested_by=nightly": [running.id],
        "state=running": [running.id],
        "outcome=culprits": [finished.id],
        f"since={moment(finished, -1)}": both,
        f"since={moment(finished, 1)}": [],
        f"until={moment(finished, -1)}": [],
        "q=GPU": [],
        f"q=library {running.sha(0)[:10]}": [running.id],
    }.items():
        assert ids(site, f"/bisections?{query}") == kept, query


def test_experiments_are_filtered(site: Site) -> None:
    """The same filters find experiments, and the bisection they belong to does."""
    made = seed_experiment(site.finished)
    with site.services.database.write() as session:
        session.execute(update(ExperimentRow).values(culprit_position=19))
    finished = site.finished
    for query, kept in {
        "": [made],
        "repository=framework": [made],
        "repository=library": [],
        f"culprit={finished.sha(19)[:9]}": [made],
        f"culprit={finished.sha(18)}": [],
        "benchmark=resnet50-train": [made],
        "requested_by=release-team": [made],
        "requested_by=nightly": [],
        "state=finished&outcome=answered": [made],
        f"bisection={finished.id}": [made],
        f"bisection={site.running.id}": [],
        "host=gpu-17": [],
        "q=reverting": [made],
        "q=nowhere": [],
    }.items():
        assert ids(site, f"/experiments?{query}") == kept, query


def test_pages_take_the_same_filters(site: Site) -> None:
    """A page's address filters like the API's, by whole days; nonsense does not filter."""
    finished, running = site.finished, site.running
    for query, kept in {
        f"culprit={finished.sha(19)[:8]}": {finished.id},
        f"commit={running.sha(3)[:10]}": {running.id},
        "host=gpu-18": {running.id},
        f"since={finished.started:%Y-%m-%d}&until={finished.started:%Y-%m-%d}": {
            finished.id,
            running.id,
        },
        "until=2001-01-01": set(),
        "until=someday&state=asleep": {finished.id, running.id},
    }.items():
        text = site.client.get(f"/?{query}").text
        shown = {each.id for each in (finished, running) if f'href="/bisections/{each.id}"' in text}
        assert shown == kept, query


@pytest.mark.parametrize("kind", ["bisections", "experiments"])
def test_results_are_sent_again_only_if_they_changed(site: Site, kind: str) -> None:
    """Verdicts, reports and charts are 304 with their ETag, until something changes."""
    job = site.running.id if kind == "bisections" else seed_experiment(site.running, finished=False)
    base = f"{API}/{kind}/{job}"
    paths = [base, f"{base}/report?format=md", f"{base}/report"]
    if kind == "bisections":
        paths.append(f"{base}/chart")
    tags = {}
    for path in paths:
        tags[path] = site.client.get(path).headers["etag"]
        again = site.client.get(path, headers={"If-None-Match": f'"other", W/{tags[path]}'})
        assert (again.status_code, again.content) == (304, b""), path
    site.client.post(f"{base}/cancel")
    answer = site.client.get(base, headers={"If-None-Match": tags[base]})
    assert answer.status_code == (200 if kind == "bisections" else 304)


@pytest.mark.parametrize("path", ["/points", "/bisections/{}/points"])
def test_points_are_exported_whole(site: Site, path: str) -> None:
    """CSV and JSON lines hold every point that pages of JSON hold, and the filters count."""
    address = API + path.format(site.finished.id)
    client = site.client
    paged: list[dict[str, Any]] = []
    after = ""
    while True:
        page = client.get(address, params={"limit": 7, "host": "gpu-17", "after": after}).json()
        paged += page["items"]
        after = page["next"]
        if after is None:
            break
    lines = client.get(address, params={"format": "ndjson", "host": "gpu-17"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    if "bisections" in path:
        # Pages come in order of time, the file in order of the axis.
        paged.sort(key=lambda point: (point["position"], point["id"]))
    assert [json.loads(line) for line in lines.text.splitlines()] == paged
    csv = client.get(address, params={"format": "csv", "host": "gpu-17"}).text
    assert len(csv.splitlines()) == len(paged) + 1 == site.finished.runs + 1


def test_events_of_an_experiment_are_followed_and_resumed(site: Site) -> None:
    """The stream has what happened after the last id seen, ends with the end, then is 204."""
    made = seed_experiment(site.finished, finished=False)
    job = experiment(made)
    with site.services.database.write() as session:
        for kind in ("started", "run_finished", "finished"):
            bisections.add_event(session, job, kind, {"n": kind})
        row = session.get_one(ExperimentRow, made)
        row.state, row.finished_at = BisectionState.FINISHED, now()
    path = f"{API}/experiments/{made}/events"
    whole = site.client.get(path)
    assert whole.headers["content-type"].startswith("text/event-stream")
    kinds = [line[7:] for line in whole.text.splitlines() if line.startswith("event: ")]
    assert kinds == ["started", "run_finished", "finished"]
    numbers = [line[4:] for line in whole.text.splitlines() if line.startswith("id: ")]
    rest = site.client.get(path, headers={"Last-Event-ID": numbers[1]}).text
    assert "event: finished" in rest
    assert "run_finished" not in rest
    assert site.client.get(path, headers={"Last-Event-ID": numbers[2]}).status_code == 204
    assert "event: finished" in site.client.get(f"/experiments/{made}/changes").text
    assert site.client.get(f"{API}/experiments/{site.finished.id}/events").status_code == 404


def test_a_rerun_says_which_change_is_wrong(site: Site) -> None:
    """Changes are checked like a new request, and the field at fault is named."""
    path = f"{API}/bisections/{site.finished.id}/rerun"
    for changes, field in (
        ({"confidence": 2}, "changes.confidence"),
        ({"unheard": 1}, "changes.unheard"),
        ({"repository": "elsewhere"}, "repository"),
    ):
        answer = site.client.post(path, json={"changes": changes})
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert len(ids(site, "/bisections")) == 2
