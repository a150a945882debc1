"""``Idempotency-Key`` on every POST of the API: the operations come from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select
from tests.helpers.alert_scenes import dead, held
from tests.helpers.conducting import PROJECT, SmallRepository, make_factor_repository
from tests.helpers.scenes import seed_experiment, seed_finished, seed_running
from tests.helpers.serving import API, client_of, opened, settings_in, shown_app
from tests.helpers.tokens import bearer, make_token

from perfbisect.core.access import Scope
from perfbisect.services import Services
from perfbisect.store.tables import Base

#: Where what somebody sent is written down, however often.
_WRITTEN_DOWN = {"audit", "once"}


@dataclass
class Place:
    """A service with something to do for every operation."""

    client: TestClient
    services: Services
    repository: SmallRepository
    bisections: list[str]
    experiments: list[str]
    alerts: list[str]
    messages: list[str]

    def rows(self) -> dict[str, int]:
        """Return how many rows each table has."""
        with self.services.database.read() as session:
            return {
                table.name: session.scalar(select(func.count()).select_from(table)) or 0
                for table in Base.metadata.sorted_tables
                if table.name not in _WRITTEN_DOWN
            }

    def body(self, **changes: Any) -> dict[str, Any]:
        """Return a submission over the whole history."""
        return {
            "repository": str(self.repository.path),
            "recipe": "scripted",
            "benchmark": "scripted",
            "good": self.repository.shas[0],
            "bad": self.repository.shas[-1],
        } | changes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One place for all: each operation leaves the others' things alone."""
    directory = tmp_path_factory.mktemp("place")
    repository = make_factor_repository(directory / "repository", {3: 0.5}, 6)
    (directory / "perfbisect.toml").write_text(PROJECT)
    settings = settings_in(
        directory, project_dir=directory, allowed_repositories=[str(repository.path)]
    )
    with opened(settings) as services, client_of(shown_app(settings)) as client:
        finished = seed_finished(services)
        running = [seed_running(services, name=f"r{number}", n=4).id for number in range(2)]
        alerts = [held(services, f"benchmark-{number}") for number in range(4)]
        for name in ("one", "two"):
            make_token(services, name, Scope.READ)
        client.headers.update(bearer(make_token(services, "admin", Scope.ADMIN)))
        yield Place(
            client,
            services,
            repository,
            [finished.id, *running],
            [seed_experiment(finished, finished=False) for _ in range(2)],
            alerts,
            [dead(services, alert) for alert in alerts[2:]],
        )


#: Path, body, and another path or body: what is asked for with the same key the second time.
Asked = tuple[str, Any, str, Any]


def _alert(name: str) -> dict[str, Any]:
    return {"fingerprint": name, "started_at": "2026-11-30T06:00:00Z", "title": name}


def _webhook(name: str) -> dict[str, Any]:
    alert = {"labels": {"alertname": name}, "startsAt": "2026-11-30T06:00:00Z"}
    return {"version": "4", "alerts": [{**alert, "fingerprint": name, "status": "firing"}]}


def _submitted(place: Place) -> Asked:
    path = f"{API}/bisections"
    return path, place.body(), path, place.body(min_effect="5%")


def _tried(place: Place, **changes: Any) -> dict[str, Any]:
    common = {key: place.body()[key] for key in ("repository", "recipe", "benchmark")}
    arm = {"base": place.repository.shas[-1], "revert": [place.repository.shas[3]]}
    return {**common, "arms": [arm], **changes}


def _two(paths: list[str], body: Any = None) -> Asked:
    return paths[0], body, paths[1], body


def _differing(path: str, first: Any, second: Any) -> Asked:
    return path, first, path, second


#: Operation -> what it is asked.
ASKED: dict[str, Callable[[Place], Asked]] = {
    "submitBisection": _submitted,
    "rerunBisection": lambda place: _differing(
        f"{API}/bisections/{_new(place)}/rerun",
        {"changes": {"min_effect": "4%"}},
        {"changes": {"min_effect": "6%"}},
    ),
    "cancelBisection": lambda place: _two(
        [f"{API}/bisections/{each}/cancel" for each in place.bisections[1:]]
    ),
    "submitExperiment": lambda place: _differing(
        f"{API}/experiments", _tried(place), _tried(place, min_effect="5%")
    ),
    "cancelExperiment": lambda place: _two(
        [f"{API}/experiments/{each}/cancel" for each in place.experiments]
    ),
    "estimateBisection": lambda place: _differing(
        f"{API}/estimates",
        {"bisection": place.body(), "trials": 1},
        {"bisection": place.body(), "trials": 2},
    ),
    "addNightlyPoints": lambda _: _differing(
        f"{API}/nightly/keyed/points",
        {"night": "2026-11-29", "value": 100.0},
        {"night": "2026-11-29", "value": 101.0},
    ),
    "receiveAlertmanager": lambda _: _differing(
        f"{API}/alerts/alertmanager", _webhook("a"), _webhook("b")
    ),
    "receiveGrafana": lambda _: _differing(f"{API}/alerts/grafana", _webhook("a"), _webhook("b")),
    "receiveAlert": lambda _: _differing(f"{API}/alerts/generic", _alert("a"), _alert("b")),
    "startAlert": lambda place: _differing(
        f"{API}/alerts/{place.alerts[0]}/start", {"pool": "gpu"}, {"pool": "cpu"}
    ),
    "dismissAlert": lambda place: _differing(
        f"{API}/alerts/{place.alerts[1]}/dismiss", {"comment": "known"}, {"comment": "unknown"}
    ),
    "redeliverMessage": lambda place: _two(
        [f"{API}/messages/{each}/redeliver" for each in place.messages]
    ),
    "giveFeedback": lambda place: _differing(
        f"{API}/bisections/{place.bisections[0]}/feedback", {"right": True}, {"right": False}
    ),
    "revokeToken": lambda _: _two([f"{API}/tokens/{name}/revoke" for name in ("one", "two")]),
}


def _new(place: Place) -> str:
    """Return the id of a bisection whose request can be sent again."""
    answer = place.client.post(f"{API}/bisections", json=place.body(min_effect="8%"))
    return str(answer.json()["id"])


def posts(client: TestClient) -> dict[str, dict[str, Any]]:
    """Return the operations that are asked for by POST."""
    document = client.get(f"{API}/openapi.json").json()
    return {
        methods["post"]["operationId"]: methods["post"]
        for methods in document["paths"].values()
        if "post" in methods
    }


def test_every_post_is_known_and_takes_a_key(place: Place) -> None:
    """A new POST needs the header, and its line in this file."""
    operations = posts(place.client)
    assert set(operations) == set(ASKED)
    for name, operation in operations.items():
        headers = [each["name"] for each in operation["parameters"] if each["in"] == "header"]
        assert headers == ["Idempotency-Key"], (name, headers)


@pytest.mark.parametrize("operation", sorted(ASKED))
def test_a_key_acts_once_and_stands_for_one_request(place: Place, operation: str) -> None:
    """Sent twice with one key it acts once; the key with anything else is a conflict."""
    path, body, other_path, other_body = ASKED[operation](place)
    headers = {"Idempotency-Key": f"key-{operation}"}
    first = place.client.post(path, json=body, headers=headers)
    assert first.status_code in (200, 201, 202), first.text
    rows = place.rows()
    second = place.client.post(path, json=body, headers=headers)
    assert (second.status_code, second.json()) == (first.status_code, first.json())
    assert place.rows() == rows
    clash = place.client.post(other_path, json=other_body, headers=headers)
    assert clash.status_code in (409, 422), clash.text
    assert clash.json()["field"] == "Idempotency-Key"
    assert place.rows() == rows


def test_what_failed_may_be_sent_again_with_its_key(place: Place) -> None:
    """A key whose action was refused is free: once it can be done, it is done."""
    alert = held(place.services, "refused")
    path, headers = f"{API}/alerts/{alert}/start", {"Idempotency-Key": "refused"}
    wrong = place.client.post(path, json={"good": "\x00"}, headers=headers)
    assert wrong.status_code == 422, wrong.text
    right = place.client.post(path, json={"good": "3e0ad8a004"}, headers=headers)
    assert right.status_code == 200, right.text
    assert right.json()["state"] == "queued"
