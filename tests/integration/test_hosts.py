"""Hosts that drift are taken out, with a message that pages, API and command line show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update
from tests.helpers.command_line import call
from tests.helpers.seeding import Seed
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.core.states import Purpose
from perfbisect.errors import ConflictError, NotFoundError
from perfbisect.host_watch import HostWatch
from perfbisect.services import Services
from perfbisect.store.database import now
from perfbisect.store.host_health import BY_DRIFT, hosts_out, judge_host, put_back, take_out
from perfbisect.store.host_tables import HostHealthRow
from perfbisect.store.tables import PointRow


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with opened(settings_in(tmp_path)) as services:
        yield services


@pytest.fixture
def seed(services: Services) -> Seed:
    """A bisection whose ends were measured seventeen times each, in turn."""
    made = Seed(services)
    made.submit()
    for position in (0, made.n):
        made.build(position)
    for number in range(34):
        made.run(0 if number % 2 else made.n, purpose=Purpose.ANCHOR)
    return made


def move(services: Services, seed: Seed, share: float) -> None:
    """Let the host's last twenty values be off."""
    with services.database.write() as session:
        points = session.scalars(select(PointRow).order_by(PointRow.id.desc()).limit(20)).all()
        for point in points:
            point.value *= share


def judged(services: Services, host: str) -> HostHealthRow:
    with services.database.write() as session:
        return judge_host(session, host)


def out(services: Services) -> dict[str, str]:
    with services.database.read() as session:
        return hosts_out(session)


def test_a_drifting_host_is_taken_out_and_put_back(
    services: Services, seed: Seed, tmp_path: Path
) -> None:
    """By its own repeats, with a message everywhere; put back, what was before counts no more."""
    steady = judged(services, seed.host)
    assert steady.health is not None
    assert steady.health["score"] >= 70
    assert out(services) == {}
    move(services, seed, 0.9)
    row = judged(services, seed.host)
    assert row.out_by == BY_DRIFT
    assert list(out(services)) == [seed.host]
    message = out(services)[seed.host]
    assert "the same wheels measure -" in message

    with client_of(shown_app(services.settings)) as client:
        (told,) = client.get("/api/v1/hosts").json()
        assert told["health"]["reason"] == message
        assert told["health"]["score"] <= 50
        page = client.get("/hosts").text
        assert "taken out" in page
        assert message in page

    where = ["--data-dir", str(services.settings.data_dir)]
    listed = call(["host", "list", "--json", *where])
    assert json.loads(listed.out)["hosts"][0]["reason"] == message
    assert message in call(["host", "list", *where]).out
    assert call(["host", "back", seed.host, *where]).code == 0
    assert out(services) == {}
    assert judged(services, seed.host).health is None
    assert "taken out" not in page_of(services)


def page_of(services: Services) -> str:
    with client_of(shown_app(services.settings)) as client:
        return client.get("/hosts").text


def test_hosts_are_taken_out_by_hand(services: Services, seed: Seed) -> None:
    """With a reason, once; an unknown host, or one that measures, is told as such."""
    where = ["--data-dir", str(services.settings.data_dir)]
    assert call(["host", "out", seed.host, "--reason", "a fan", *where]).code == 0
    assert out(services) == {seed.host: "a fan"}
    assert "a fan" in page_of(services)
    assert call(["host", "out", seed.host, "--reason", " ", *where]).code == 2
    with services.database.write() as session:
        with pytest.raises(ConflictError, match="out already: a fan"):
            take_out(session, seed.host, by="me", reason="again")
        put_back(session, seed.host)
        with pytest.raises(ConflictError, match="not out"):
            put_back(session, seed.host)
        with pytest.raises(NotFoundError, match="no host 'elsewhere'"):
            take_out(session, "elsewhere", by="me", reason="again")


def test_the_watch_looks_now_and_then(services: Services, seed: Seed) -> None:
    """A host is judged after a run, not after each; a host that is not there is no error."""
    moment = [0.0]
    watch = HostWatch(services.database, every=300.0, clock=lambda: moment[0])
    watch.look(seed.host)
    move(services, seed, 0.9)
    watch.look(seed.host)
    assert out(services) == {}
    moment[0] = 300.0
    watch.look(seed.host)
    assert list(out(services)) == [seed.host]
    watch.look("elsewhere")


def test_old_values_do_not_count(services: Services, seed: Seed) -> None:
    """What was measured more than 30 days ago says nothing of a host."""
    with services.database.write() as session:
        session.execute(update(PointRow).values(measured_at=now() - timedelta(days=31)))
    assert judged(services, seed.host).health is None
