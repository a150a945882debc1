"""A thousand alerts in a minute, duplicates and malformed ones among them."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select
from tests.helpers.alerting import AT_ONCE, Scene, scene
from tests.helpers.serving import listening, shown_app

from perfbisect.core.alert_states import AlertState, NoticeResult
from perfbisect.store.alert_tables import AlertRow, NoticeRow
from perfbisect.store.tables import BisectionRow

#: Real changes: as many ranges, each told for three benchmarks.
CHANGES = 4
BENCHMARKS = ("strong", "weak", "other")
NIGHT = datetime(2026, 11, 30, 6, tzinfo=UTC)


@dataclass
class Storm:
    """Payloads, and how many alerts of which kind are in them."""

    payloads: list[tuple[str, bytes]] = field(default_factory=list)
    real: int = 0
    malformed: int = 0

    def add(self, path: str, body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.payloads.append((path, raw))


def alert(here: Scene, change: int, benchmark: str, size: float) -> dict[str, Any]:
    """Return what Alertmanager tells of one change on one benchmark."""
    shas = here.repository.shas
    return {
        "status": "firing",
        "labels": {"alertname": "Dropped", "benchmark": benchmark, "change_nr": str(change)},
        "annotations": {
            "repository": str(here.repository.path),
            "recipe": "scripted",
            "good": shas[change],
            "bad": shas[-1 - change],
            "change": str(size),
        },
        "startsAt": (NIGHT + timedelta(days=change)).isoformat(),
        "fingerprint": f"{benchmark}-{change}",
    }


def make_storm(here: Scene, total: int = 1000) -> Storm:
    """Return ``total`` alerts: real ones over and over, malformed ones, bodies that are none."""
    storm = Storm()
    real = [
        alert(here, change, benchmark, -0.5 if benchmark == "strong" else -0.2)
        for change in range(CHANGES)
        for benchmark in BENCHMARKS
    ]
    broken = [
        {**real[0], "startsAt": "yesterday"},
        {**real[0], "labels": {"a": 1}},
        {**real[0], "annotations": {"change": "much"}},
        "not an alert",
    ]
    while storm.real + storm.malformed < total:
        turn = len(storm.payloads)
        match turn % 5:
            case 0:
                storm.add("alertmanager", {"version": "4", "alerts": [*real, broken[turn % 4]]})
                storm.real, storm.malformed = storm.real + len(real), storm.malformed + 1
            case 1:
                storm.add("grafana", {"alerts": [{**each, "fingerprint": f"g-{each['fingerprint']}"}
                                                 for each in real[:6]]})  # fmt: skip
                storm.real += 6
            case 2:
                storm.add("alertmanager", [b"{", b"\xff\xfe", b"[]", b'{"alerts": 3}'][turn % 4])
                storm.malformed += 1
            case 3:
                storm.add("alertmanager", {"alerts": [broken[turn % 4]]})
                storm.malformed += 1
            case _:
                storm.add("alertmanager", {"version": "4", "alerts": real})
                storm.real += len(real)
    return storm


def test_a_storm_is_weathered(tmp_path: Path) -> None:
    """No answer is a 5xx; each real change gets one bisection; every alert is accounted for."""
    config = AT_ONCE.replace('"0s"', '"1h"') + "budget_per_day = 100\n"
    steps = {name: {5: 0.5} for name in BENCHMARKS}
    with scene(tmp_path, steps, config=config, working=False) as here:
        storm = make_storm(here)
        stop = threading.Event()

        def look() -> None:
            while not stop.wait(0.05):
                here.desk.look()

        # The desk looks all the while, as it does in a server.
        desk = threading.Thread(target=look)
        with listening(shown_app(here.services.settings)) as url, httpx.Client() as client:

            def send(payload: tuple[str, bytes]) -> int:
                path, body = payload
                answer = client.post(
                    f"{url}/api/v1/alerts/{path}", content=body, timeout=60,
                    headers={"content-type": "application/json"},
                )  # fmt: skip
                return answer.status_code

            desk.start()
            with ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(send, storm.payloads))
            stop.set()
            desk.join()
            shown = client.get(f"{url}/alerts", timeout=60)
        # An hour later the gathering is over.
        here.clock.ahead = timedelta(hours=1, minutes=1)
        here.desk.look()
        with here.services.database.read() as session:
            notices = dict(
                session.execute(
                    select(NoticeRow.result, func.count()).group_by(NoticeRow.result)
                ).all()
            )
            alerts = session.scalars(select(AlertRow)).all()
            bisections = session.scalars(select(BisectionRow)).all()
    assert set(statuses) == {202, 422}
    assert shown.status_code == 200
    assert storm.real + storm.malformed >= 1000
    assert notices[NoticeResult.REJECTED] == storm.malformed
    told = notices[NoticeResult.ACCEPTED] + notices[NoticeResult.REPEATED]
    assert told == storm.real
    # Every real change once, however many sources and benchmarks told of it.
    assert len(bisections) == CHANGES
    assert len({(row.good_sha, row.bad_sha) for row in bisections}) == CHANGES
    assert {row.benchmark["name"] for row in bisections} == {"strong"}
    assert sum(row.notices for row in alerts) == storm.real
    assert {row.state for row in alerts} == {AlertState.BISECTING}
