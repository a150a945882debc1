"""Power loss and torn files: what is on the disk is a moment of the database, and no wheel is half.

A power cut is simulated by what it leaves: the database as it was, and a write-ahead log that ends
anywhere, or of which any page was not written.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update
from tests.helpers.conducting import (
    SmallRepository,
    make_conductor,
    make_repository,
    open_services,
    request_for,
)

from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.database import Database
from perfbisect.store.tables import (
    BisectionRow,
    BuildRow,
    CandidateRow,
    DecisionRow,
    PointRow,
    RunRow,
    WheelRow,
)
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

COMMITS = 8


@dataclass(frozen=True)
class Cut:
    """The files of a database in the middle of a bisection, as the kernel has them."""

    database: bytes
    log: bytes

    def written(self, directory: Path, log: bytes) -> Database:
        """Open what a power cut would have left."""
        directory.mkdir()
        (directory / "perfbisect.db").write_bytes(self.database)
        (directory / "perfbisect.db-wal").write_bytes(log)
        return Database(Settings(data_dir=directory).url)


@pytest.fixture
def repository(tmp_path: Path) -> SmallRepository:
    return make_repository(tmp_path / "repository", COMMITS)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = open_services(tmp_path)
    yield opened
    opened.close()


def start(services: Services, repository: SmallRepository, tmp_path: Path) -> str:
    return submit(
        services,
        request_for(repository),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    ).id


def runner_of(repository: SmallRepository) -> ScriptedRunner:
    return ScriptedRunner(
        lambda sha: 9000.0 if repository.position(sha) < 5 else 5000.0, noise=0.004, seed=3
    )


@pytest.fixture
def cut(services: Services, repository: SmallRepository, tmp_path: Path) -> Cut:
    """The files after a whole bisection whose transactions are all still in the log."""
    file = services.settings.data_dir / "perfbisect.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # A reader keeps the log from being written back, as a slow page does.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM bisections").fetchone()
        bisection_id = start(services, repository, tmp_path)
        conductor = make_conductor(services, ScriptedBuilder(), runner_of(repository), tmp_path)
        conductor.conduct_until_finished(bisection_id)
        conductor.stop()
        return Cut(file.read_bytes(), file.with_name("perfbisect.db-wal").read_bytes())


def counted(database: Database) -> tuple[int, int, int]:
    """Check that a database is whole; return how many candidates, runs and points there are."""
    with database.read() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        assert session.execute(text("PRAGMA foreign_key_check")).all() == []
        candidates = session.scalar(select(func.count()).select_from(CandidateRow)) or 0
        bisections = session.scalars(select(BisectionRow)).all()
        succeeded = set(session.scalars(select(RunRow.id).where(RunRow.state == "succeeded")))
        measured = session.scalars(select(PointRow.run_id)).all()
        built = session.scalars(select(BuildRow.id).where(BuildRow.state == "succeeded")).all()
        wheels = session.scalars(select(WheelRow.build_id)).all()
        decided = set(session.scalars(select(DecisionRow.work_id)))
        work = {*session.scalars(select(RunRow.id)), *session.scalars(select(BuildRow.id))}
    # Each transaction is there whole or not at all.
    assert candidates == (COMMITS + 1) * len(bisections)
    assert succeeded == set(measured)
    assert sorted(built) == sorted(map(str, wheels))
    assert work <= decided
    for row in bisections:
        assert (row.state == "finished") == (row.verdict is not None and row.outcome is not None)
    return candidates, len(work), len(measured)


def test_a_log_that_ends_anywhere(cut: Cut, tmp_path: Path) -> None:
    """Cut off at any byte, the log gives a moment of the bisection, later ones the longer it is."""
    assert len(cut.log) > 200_000
    random_ = random.Random(4)
    ends = sorted(random_.randrange(len(cut.log)) for _ in range(60))
    before = (0, 0, 0)
    seen = set()
    for number, end in enumerate([0, 16, *ends, len(cut.log)]):
        database = cut.written(tmp_path / f"cut-{number}", cut.log[:end])
        found = counted(database)
        database.close()
        assert all(later >= earlier for earlier, later in zip(before, found, strict=True))
        before = found
        seen.add(found)
    assert (0, 0, 0) in seen
    assert len(seen) > 10


def test_pages_of_the_log_that_were_not_written(cut: Cut, tmp_path: Path) -> None:
    """Where the disk wrote later pages of the log and not earlier ones, what follows is ignored."""
    random_ = random.Random(5)
    for number in range(30):
        at = random_.randrange(32, len(cut.log) - 4096)
        hole = bytes(4096) if number % 2 else random_.randbytes(512)
        torn = cut.log[:at] + hole + cut.log[at + len(hole) :]
        database = cut.written(tmp_path / f"torn-{number}", torn)
        counted(database)
        database.close()


def test_a_bisection_goes_on_after_a_power_cut(
    cut: Cut, services: Services, repository: SmallRepository, tmp_path: Path
) -> None:
    """From a log that ends in the middle, the search comes to its answer, with each point once."""
    whole = cut.written(tmp_path / "whole", cut.log)
    _, _, points = counted(whole)
    whole.close()
    half = tmp_path / "half"
    end = len(cut.log)
    while True:
        end -= len(cut.log) // 10
        shutil.rmtree(half, ignore_errors=True)
        database = cut.written(half, cut.log[:end])
        _, _, left = counted(database)
        database.close()
        if 0 < left < points - 2:
            break
    later = Services.open(Settings(data_dir=half, project_dir=tmp_path))
    with later.database.read() as session:
        bisection_id = session.scalars(select(BisectionRow.id)).one()
    # Wheels whose rows are there and whose files are not are built again.
    conductor = make_conductor(later, ScriptedBuilder(), runner_of(repository), half)
    shutil.copytree(services.settings.mirrors_dir, half / "mirrors", dirs_exist_ok=True)
    # The process that held them is this one, which lives on here and would not after a power cut.
    gone = f"{socket.gethostname()}:1:0.0:0"
    with later.database.write() as session:
        session.execute(update(BisectionRow).values(lease_owner=gone))
        for table in (BuildRow, RunRow):
            session.execute(update(table).values(owner=gone))
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    with later.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
        assert row.verdict is not None
        assert row.verdict["culprits"][0]["commits"] == [repository.shas[5]]
    counted(later.database)
    later.close()


def test_a_commit_is_on_the_disk_before_it_is_told(services: Services) -> None:
    """Every connection has WAL and synchronous=FULL: each commit waits for the disk."""
    with services.database.read() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA synchronous")) == 2
        assert session.scalar(text("PRAGMA foreign_keys")) == 1


def test_a_database_whose_first_page_is_gone_says_so(cut: Cut, tmp_path: Path) -> None:
    """A torn main file is no database any more: that is an error, not an empty database."""
    directory = tmp_path / "torn"
    directory.mkdir()
    (directory / "perfbisect.db").write_bytes(bytes(4096) + cut.database[4096:])
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(directory / "perfbisect.db").execute("SELECT * FROM bisections")


@pytest.mark.parametrize("damage", ["cut off", "altered", "gone"])
def test_a_torn_wheel_is_built_again(
    services: Services, repository: SmallRepository, tmp_path: Path, damage: str
) -> None:
    """A wheel whose stored content is not what its SHA-256 says never runs: it is built again."""
    first = start(services, repository, tmp_path)
    builder = ScriptedBuilder()
    conductor = make_conductor(services, builder, runner_of(repository), tmp_path)
    conductor.conduct_until_finished(first)
    conductor.stop()
    built = len(builder.requests)
    with services.database.read() as session:
        wheels = session.scalars(select(WheelRow)).all()
    for wheel in wheels:
        stored = services.settings.artifacts_dir / wheel.artifact
        content = stored.read_bytes()
        stored.unlink()
        if damage == "cut off":
            stored.write_bytes(content[:-9])
        elif damage == "altered":
            stored.write_bytes(b"x" + content[1:])
        # The file beside it is the same one by another name, unless the disk lost that too.
        shutil.rmtree(services.settings.cache_dir / "wheels", ignore_errors=True)
    again = Services.open(services.settings)
    runner = runner_of(repository)
    second = submit(
        again,
        request_for(repository, min_effect="5%", benchmark=_other_benchmark()),
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    ).id
    conductor = make_conductor(again, builder, runner, tmp_path)
    conductor.conduct_until_finished(second)
    conductor.stop()
    with again.database.read() as session:
        row = session.get_one(BisectionRow, second)
    assert row.verdict is not None
    assert row.verdict["culprits"][0]["commits"] == [repository.shas[5]]
    assert len(builder.requests) > built
    for request in runner.requests:
        assert request.wheel.read_text().splitlines()[0] in repository.shas
    again.close()


def _other_benchmark() -> dict[str, object]:
    return {
        "name": "second",
        "command": "true second",
        "unit": "images/s",
        "metric": {"reader": "regex", "pattern": "images/sec: ([0-9.]+)"},
    }
