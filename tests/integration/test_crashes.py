"""kill -9 at every state transition, before and after its commit: what is stored is enough.

The transitions come from the state tables in the code. Three scenes reach them all; each is played
by one forked process after another (a real conductor, desk, sender and series on a real database,
with scripted builds and runs), and every process is killed at a place where none was before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from tests.helpers.alerting import Inbox, receiving
from tests.helpers.crashing.alarming import ALERTS, SECRET, STARTED
from tests.helpers.crashing.searching import CULPRIT, KEYS, opened_repository
from tests.helpers.crashing.series_scene import ENDS, FULL, states_of
from tests.helpers.crashing.transitions import MACHINES, NEVER, Transition, allowed
from tests.helpers.crashing.watch import AFTER, BEFORE
from tests.helpers.crashing.world import reopened, settings_in

from perfbisect.core import alert_states, series_states, states
from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow, AnnouncementRow, FindingRow, MessageRow
from perfbisect.store.database import Database
from perfbisect.store.series_tables import SeriesChangeRow, SeriesNightRow, SeriesPointRow
from perfbisect.store.tables import (
    Base,
    BisectionRow,
    BuildRow,
    EnumText,
    ExperimentRow,
    PointRow,
    RunRow,
)

ROOT = Path(__file__).resolve().parents[2]
SCENES = ("searching", "alarming", "following")


@dataclass(frozen=True)
class Played:
    """What came of all scenes."""

    directory: Path
    #: The last answer: places are counted over all scenes.
    answer: dict[str, Any]
    problems: dict[str, str]
    inbox: Inbox

    def opened(self, scene: str) -> Services:
        directory = self.directory / scene
        return reopened(directory, Database(settings_in(directory).url))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Play the scenes, one after the other, by processes of one parent."""
    directory = tmp_path_factory.mktemp("crashes")
    with receiving() as inbox:
        times: Counter[str] = Counter()

        def answer() -> None:
            # Each message is refused for now, then for good, and taken when it is sent once more.
            identity = inbox.got[-1][0]["webhook-id"]
            times[identity] += 1
            inbox.answers.append({1: 503, 2: 410}.get(times[identity], 204))

        inbox.on_request = answer
        environment = {
            **os.environ,
            "CRASH_HOOK": inbox.url,
            "CRASH_SECRET": SECRET,
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(directory),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        (directory / "template").mkdir()
        with (directory / "stderr").open("wb") as stderr, subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.crashing.lives", str(directory / "template")],
            env=environment,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process:  # fmt: skip
            answers = {scene: _play(process, directory / scene) for scene in SCENES}
            process.stdin.close()  # type: ignore[union-attr]
            assert process.wait(60) == 0
        problems = {scene: each["problem"] for scene, each in answers.items() if each["problem"]}
        said = (directory / "stderr").read_text()[-4000:] if problems else ""
        assert not problems, f"{problems}\n{said}"
        yield Played(directory, answers[SCENES[-1]], problems, inbox)


def _play(process: subprocess.Popen[str], directory: Path) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    asked = {"scene": directory.name, "directory": str(directory)}
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, (directory.parent / "stderr").read_text()[-4000:]
    found: dict[str, Any] = json.loads(line)
    return found


# ---------------------------------------------------------------------- the tables


def test_every_state_is_watched() -> None:
    """Each table with a state has its machine here, and each machine in the code its table."""
    stated = {
        mapper.class_
        for mapper in Base.registry.mappers
        if isinstance(getattr(mapper.columns.get("state"), "type", None), EnumText)
    }
    assert stated == {machine.table for machine in MACHINES}
    drawn = [
        value
        for module in (states, alert_states, series_states)
        for name, value in vars(module).items()
        if name.endswith("_TRANSITIONS")
    ]
    watched = [machine.transitions for machine in MACHINES]
    assert all(any(table is each for each in watched) for table in drawn)


def test_what_never_happens_is_allowed_by_a_table() -> None:
    """The list of transitions that nobody makes holds nothing that is not in the tables."""
    assert set(NEVER) <= allowed()
    assert all(NEVER.values())


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("transition", sorted(allowed() - set(NEVER)), ids=str)
def test_killed_at(played: Played, transition: Transition, when: str) -> None:
    """A process was killed here, and those after it brought everything to its end."""
    assert f"{when} {transition}" in played.answer["killed"]


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("machine", [machine.name for machine in MACHINES])
def test_killed_at_birth(played: Played, machine: str, when: str) -> None:
    """A process was killed when the first row of its kind was about to be, or just, stored."""
    birth = f"{when} {machine}: nothing"
    assert [each for each in played.answer["killed"] if each.startswith(birth)]


def test_nothing_happens_that_no_table_allows(played: Played) -> None:
    """Every transition that was committed in all those lives is in the tables."""
    seen = {place.partition(" ")[2] for place in played.answer["seen"]}
    changes = {each for each in seen if ": nothing -> " not in each}
    assert changes == {str(each) for each in allowed() - set(NEVER)}


# ---------------------------------------------------------------------- what is left


@pytest.mark.parametrize("scene", SCENES)
def test_everything_has_ended_with_a_reason_and_nothing_is_left(played: Played, scene: str) -> None:
    """Each row is at its end and says why; no lease, directory or half-stored file is left."""
    services = played.opened(scene)
    with services.database.read() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        jobs = [*session.scalars(select(BisectionRow)), *session.scalars(select(ExperimentRow))]
        work = [*session.scalars(select(BuildRow)), *session.scalars(select(RunRow))]
    services.close()
    assert jobs
    for job in jobs:
        assert (job.state, job.lease_owner) == ("finished", None)
        assert job.verdict is not None
        assert job.verdict["reason"]
    for row in work:
        assert row.state in ("succeeded", "failed", "cancelled", "lost")
        assert row.cause or row.state in ("succeeded", "cancelled")
        assert row.finished_at is not None
    settings = services.settings
    assert list(settings.work_dir.iterdir()) == []
    assert [path for path in settings.artifacts_dir.glob("partial/*") if path.is_file()] == []


@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_measured_twice_or_lost(played: Played, scene: str) -> None:
    """Each run that succeeded has one point, no other has any, and no tree was built twice."""
    services = played.opened(scene)
    with services.database.read() as session:
        measured = session.scalars(select(PointRow.run_id)).all()
        runs = session.scalars(select(RunRow.id).where(RunRow.state == "succeeded")).all()
        built = session.execute(
            select(BuildRow.tree, BuildRow.recipe_digest).where(BuildRow.state == "succeeded")
        ).all()
    services.close()
    assert sorted(measured) == sorted(runs)
    assert len(set(built)) == len(built)


def test_the_answer_of_a_search_that_was_killed(played: Played) -> None:
    """The culprit is found and proven; what was to be cancelled is; each was submitted once."""
    services = played.opened("searching")
    with services.database.read() as session:
        rows = {row.idempotency_key: row for row in session.scalars(select(BisectionRow))}
        count = len(session.scalars(select(BisectionRow.id)).all())
    services.close()
    assert set(rows) == set(KEYS)
    assert count == len(KEYS)
    verdict = rows.pop("proved").verdict
    assert verdict is not None
    shas = opened_repository(played.directory / "searching" / "repository").shas
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == [shas[CULPRIT]]
    assert culprit["proof"]["verdict"] == "proven by revert and pick"
    assert {row.outcome for row in rows.values()} == {"cancelled"}


def test_the_alerts_of_a_desk_that_was_killed(played: Played) -> None:
    """Each alert is where it ends, with its culprit; each message was taken by its receiver."""
    services = played.opened("alarming")
    with services.database.read() as session:
        rows = session.scalars(select(AlertRow)).all()
        culprits = {row.id: row.commits for row in session.scalars(select(FindingRow))}
        announced = session.scalars(select(AnnouncementRow.spread_at)).all()
        messages = session.scalars(select(MessageRow)).all()
        submitted = session.scalars(select(BisectionRow.idempotency_key)).all()
    services.close()
    shas = opened_repository(played.directory / "alarming" / "repository").shas
    assert {row.fingerprint: row.state for row in rows} == {
        name: told.end for name, told in ALERTS.items()
    }
    assert all(row.reason and row.started_at == STARTED for row in rows)
    found = {row.fingerprint: culprits[row.finding_id] for row in rows if row.finding_id}
    fifth, second = [shas[5]], [shas[2]]
    assert found == {
        "strong": fifth, "weak": fifth, "other": second, "follower": fifth, "completed": fifth,
    }  # fmt: skip
    assert None not in announced
    assert {row.state for row in messages} == {"delivered"}
    assert len({(row.target, row.dedupe_key) for row in messages}) == len(messages)
    # A receiver may hear of a message more than once, always under the same id.
    assert set(played.inbox.ids()) >= {f"msg_{row.id}" for row in messages}
    assert len(set(submitted)) == len(submitted)


def test_the_series_of_a_clock_that_was_killed(played: Played) -> None:
    """Each change ends as its nights say, is told once, and a night measured here has one point."""
    services = played.opened("following")
    ends = {name: states_of(services, name) for name in ENDS}
    with services.database.read() as session:
        changes = session.scalars(select(SeriesChangeRow)).all()
        nights = session.scalars(select(SeriesNightRow)).all()
        own = session.scalars(
            select(SeriesPointRow.night).where(SeriesPointRow.source == "own")
        ).all()
        told = session.scalars(select(AlertRow.fingerprint)).all()
    services.close()
    assert ends == ENDS
    assert all(row.reason for row in changes)
    assert all(row.reason for row in nights)
    assert own == [FULL]
    real = [row.id for row in changes if row.state in ("confirmed", "closed")]
    assert sorted(told) == sorted(real)
