"""`db backup` and `db restore`: whole or not at all, while servers write; the unfit is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sqlite3
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from tests.helpers.command_line import call
from tests.helpers.seeding import Seed
from tests.helpers.serving import client_of, opened, settings_in, shown_app

from perfbisect.errors import BadInputError, ConflictError
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store import backup, leases
from perfbisect.store.database import Database, now, process_owner
from perfbisect.store.lease_tables import LeaseRow
from perfbisect.store.tables import BisectionRow, PointRow, RunRow


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    """Services whose database holds a bisection with a few points."""
    with opened(settings) as services:
        seed = Seed(services, n=6)
        seed.submit()
        seed.start()
        for position in (0, 6, 3):
            seed.run(position)
        yield services


def points(url: str) -> list[str]:
    database = Database(url)
    with database.read() as session:
        found = session.scalars(select(PointRow.id).order_by(PointRow.id)).all()
    database.close()
    return list(found)


def test_a_backup_brings_everything_back(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """What is backed up is there again in an empty place, and the pages show it."""
    saved = call(["db", "backup", str(tmp_path / "saved"), f"--data-dir={settings.data_dir}",
                  "--json"])  # fmt: skip
    assert saved.code == 0, saved.err
    assert saved.json["kind"] == "sqlite"
    elsewhere = settings_in(tmp_path / "elsewhere")
    told = call(["db", "restore", str(tmp_path / "saved"), f"--data-dir={elsewhere.data_dir}"])
    assert told.code == 0, told.err
    assert points(elsewhere.url) == points(settings.url)
    with client_of(shown_app(elsewhere)) as client:
        (item,) = client.get("/api/v1/bisections").json()["items"]
        assert client.get(f"/bisections/{item['id']}").status_code == 200


def test_a_backup_of_a_database_that_is_written_to(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """Beside a server that writes without a pause, each backup is a moment: every run that
    succeeded has its point, and nothing that was committed before is missing."""
    stop = threading.Event()

    seed = Seed(services, n=6, name="second", host="gpu-18")
    seed.submit()

    def write() -> None:
        while not stop.is_set():
            seed.run(seed.runs % 7)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            before = len(points(settings.url))
            file = tmp_path / f"saved-{number}"
            backup.back_up(settings.url, file)
            copy = settings_in(tmp_path / f"copy-{number}")
            backup.put_back(copy.url, file)
            database = Database(copy.url)
            with database.read() as session:
                assert session.scalar(text("PRAGMA integrity_check")) == "ok"
                assert not session.execute(text("PRAGMA foreign_key_check")).all()
                succeeded = session.scalars(
                    select(RunRow.id).where(RunRow.state == "succeeded")
                ).all()
                measured = session.scalars(select(PointRow.run_id)).all()
            database.close()
            assert sorted(succeeded) == sorted(measured)
            assert len(measured) >= before
    finally:
        stop.set()
        writer.join()


def test_nothing_is_replaced_unless_told(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """A database, and a backup, that are there stay there without --force; with it they go."""
    file = tmp_path / "saved"
    backup.back_up(settings.url, file)
    with pytest.raises(ConflictError, match="--force"):
        backup.back_up(settings.url, file)
    backup.back_up(settings.url, file, force=True)
    before = points(settings.url)
    Seed(services, n=4, name="later", host="gpu-18").submit()
    with pytest.raises(ConflictError, match="--force"):
        backup.put_back(settings.url, file)
    backup.put_back(settings.url, file, force=True)
    assert points(settings.url) == before
    with services.database.read() as session:
        assert len(session.scalars(select(BisectionRow.id)).all()) == 1
    assert "database itself" in refused(
        lambda: backup.back_up(settings.url, settings.data_dir / "perfbisect.db", force=True)
    )


def refused(what: object) -> str:
    with pytest.raises(BadInputError) as caught:
        what()  # type: ignore[operator]
    return caught.value.message


def test_a_database_that_is_worked_on_is_not_replaced(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """While a process holds a lease, restoring is refused, and names the process."""
    file = tmp_path / "saved"
    backup.back_up(settings.url, file)
    owner = process_owner()
    with services.database.write() as session:
        row = session.scalars(select(BisectionRow)).one()
        row.lease_owner, row.lease_expires_at = owner, now().replace(year=2999)
    with pytest.raises(ConflictError, match="stop the servers first") as caught:
        backup.put_back(settings.url, file, force=True)
    assert owner in caught.value.message


def test_a_newer_schema_is_refused(services: Services, settings: Settings, tmp_path: Path) -> None:
    """A backup of a newer version is refused, with both versions; nothing is created."""
    file = tmp_path / "saved"
    with services.database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    backup.back_up(settings.url, file)
    elsewhere = settings_in(tmp_path / "elsewhere")
    told = call(["db", "restore", str(file), f"--data-dir={elsewhere.data_dir}"])
    assert told.code == 2
    assert "9999" in told.err
    assert not (elsewhere.data_dir / "perfbisect.db").exists()


def test_torn_and_altered_backups_are_refused(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """Cut off anywhere, or with any byte changed, a backup is refused and nothing is touched."""
    file, broken = tmp_path / "saved", tmp_path / "broken"
    backup.back_up(settings.url, file)
    whole = file.read_bytes()
    random_ = random.Random(9)
    before = points(settings.url)
    damaged = [whole[: random_.randrange(len(whole))] for _ in range(10)]
    for _ in range(20):
        at = random_.randrange(len(whole) - 100)
        damaged.append(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    harmless = 0
    for content in damaged:
        broken.write_bytes(content)
        try:
            backup.put_back(settings.url, broken, force=True)
        except BadInputError:
            continue
        # Bytes of the ZIP format that say nothing: the content had the right SHA-256.
        harmless += 1
    assert harmless < 5
    assert points(settings.url) == before
    (tmp_path / "none.zip").write_text("no backup")
    assert "no backup" in refused(lambda: backup.put_back(settings.url, tmp_path / "none.zip"))
    assert "no file" in refused(lambda: backup.put_back(settings.url, tmp_path / "missing"))


def test_content_that_was_swapped_is_refused(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """A ZIP file whose content is not what its own description says is refused."""
    file, other = tmp_path / "saved", tmp_path / "other"
    about = backup.back_up(settings.url, file)
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(other, "w") as changed:
        changed.writestr("perfbisect.json", archive.read("perfbisect.json"))
        changed.writestr("database", archive.read("database")[:-1] + b"x")
        told = json.loads(archive.read("perfbisect.json"))
    assert told["sha256"] == about.sha256
    assert "SHA-256" in refused(lambda: backup.put_back(settings.url, other, force=True))
    with zipfile.ZipFile(other, "w") as changed:
        changed.writestr("perfbisect.json", json.dumps({**told, "kind": "postgresql"}))
        changed.writestr("database", b"")
    assert "postgresql" in refused(lambda: backup.put_back(settings.url, other, force=True))


def test_a_damaged_database_is_set_aside(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """Restoring over a file that is no database any more keeps it under another name."""
    file = tmp_path / "saved"
    backup.back_up(settings.url, file)
    before = points(settings.url)
    services.close()
    place = settings.data_dir / "perfbisect.db"
    place.write_bytes(b"x" * 8192)
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(place).execute("SELECT * FROM bisections")
    with pytest.raises(ConflictError, match="damaged"):
        backup.put_back(settings.url, file)
    backup.put_back(settings.url, file, force=True)
    assert points(settings.url) == before
    (aside,) = settings.data_dir.glob("perfbisect.db.damaged-*")
    assert aside.read_bytes() == b"x" * 8192


def test_there_must_be_a_database(tmp_path: Path) -> None:
    """Backing up what is not there says so, and creates nothing."""
    told = call(["db", "backup", str(tmp_path / "saved"), f"--data-dir={tmp_path / 'data'}"])
    assert told.code == 2
    assert "no database" in told.err
    assert list(tmp_path.iterdir()) == []


def lasting(services: Services, name: str, holder: str) -> None:
    """Have somebody hold a lease for an hour."""
    with services.database.write() as session:
        assert leases.take(session, name, holder, 3600) is not None


@pytest.mark.parametrize("name", [leases.CONDUCTOR, "process:elsewhere:7:1.00:abcd"])
def test_an_idle_server_is_not_restored_under(
    services: Services, settings: Settings, tmp_path: Path, name: str
) -> None:
    """A server without work holds a lease too: restoring says whose, until when, what to do."""
    file = tmp_path / "saved"
    backup.back_up(settings.url, file)
    lasting(services, name, "elsewhere:7:1.00:abcd")
    with pytest.raises(ConflictError, match=r"stop the servers first.*lapses, at 2") as caught:
        backup.put_back(settings.url, file, force=True)
    assert "elsewhere:7:1.00:abcd" in caught.value.message
    with services.database.write() as session:
        leases.revoke(session, ["elsewhere:7:1.00:abcd"])
        for row in session.scalars(select(LeaseRow)):
            row.expires_at = now()
    backup.put_back(settings.url, file, force=True)


def test_the_log_of_another_database_is_not_replayed(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """Where a database was moved away without its log, the log is set aside, not replayed."""
    file, place = tmp_path / "saved", settings.data_dir / "perfbisect.db"
    backup.back_up(settings.url, file)
    before = points(settings.url)
    with services.database.write() as session:
        session.execute(text("DELETE FROM points"))
    log = place.with_name("perfbisect.db-wal").read_bytes()
    assert log, "this test needs a log that was not yet written back"
    services.close()
    place.unlink()
    for suffix in ("-wal", "-shm", "-journal"):
        place.with_name(place.name + suffix).write_bytes(log if suffix == "-wal" else b"")
    backup.put_back(settings.url, file)
    assert points(settings.url) == before
    (aside,) = settings.data_dir.glob("perfbisect.db.left-*-wal")
    assert aside.read_bytes() == log


def repacked(file: Path, target: Path, content: bytes | None = None, **changes: Any) -> Path:
    """Write a backup that says something else, and whose SHA-256 is right."""
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(target, "w") as changed:
        told = json.loads(archive.read("perfbisect.json"))
        data = archive.read("database") if content is None else content
        told |= {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), **changes}
        changed.writestr("perfbisect.json", json.dumps(told))
        changed.writestr("database", data)
    return target


def test_a_refused_backup_leaves_a_damaged_database_where_it_is(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """Nothing is set aside before the backup was unpacked and checked."""
    file, place = tmp_path / "saved", settings.data_dir / "perfbisect.db"
    backup.back_up(settings.url, file)
    services.close()
    place.write_bytes(b"x" * 8192)
    before = sorted(settings.data_dir.iterdir())
    bad = repacked(file, tmp_path / "bad", sha256="0" * 64)
    assert "SHA-256" in refused(lambda: backup.put_back(settings.url, bad, force=True))
    assert sorted(settings.data_dir.iterdir()) == before
    assert place.read_bytes() == b"x" * 8192


@pytest.mark.parametrize(
    "change", [{"schema": [1]}, {"size": "many"}, {"size": -1}, {"at": None}, {"kind": {}}]
)
def test_descriptions_of_other_types_are_refused(
    services: Services, settings: Settings, tmp_path: Path, change: dict[str, Any]
) -> None:
    """A description with a value of another type is refused by the name of what is wrong."""
    file = tmp_path / "saved"
    backup.back_up(settings.url, file)
    bad = repacked(file, tmp_path / "bad", **change)
    assert f"{next(iter(change))}: " in refused(
        lambda: backup.put_back(settings.url, bad, force=True)
    )


@pytest.mark.parametrize("told", ["[" * 50_000, "[" * 100_000, "[]", "7", "\ud800", "{}", ""])
def test_descriptions_that_are_none_are_refused(
    settings: Settings, tmp_path: Path, told: str
) -> None:
    """Nested without end, too long, or no description at all: an error, not a traceback."""
    bad = tmp_path / "bad"
    with zipfile.ZipFile(bad, "w") as changed:
        changed.writestr("perfbisect.json", told.encode(errors="surrogatepass"))
        changed.writestr("database", b"")
    assert "can't be used" in refused(lambda: backup.put_back(settings.url, bad))
    assert not (settings.data_dir / "perfbisect.db").exists()


def test_content_must_be_a_database_of_the_schema_it_says(
    services: Services, settings: Settings, tmp_path: Path
) -> None:
    """An empty file, somebody else's database, and another schema than is said are refused."""
    file, other, bad = tmp_path / "saved", tmp_path / "other.db", tmp_path / "bad"
    about = backup.back_up(settings.url, file)
    before = points(settings.url)
    with contextlib.closing(sqlite3.connect(other)) as foreign:
        foreign.execute("CREATE TABLE alembic_version (version_num TEXT)")
        foreign.execute("INSERT INTO alembic_version VALUES (?)", [about.schema])
        foreign.commit()
    for content in (b"", other.read_bytes()):
        repacked(file, bad, content)
        said = refused(lambda: backup.put_back(settings.url, bad, force=True))
        assert "no database of perfbisect" in said
    repacked(file, bad, schema="0001")
    said = refused(lambda: backup.put_back(settings.url, bad, force=True))
    assert "says schema 0001" in said
    assert about.schema in said
    assert points(settings.url) == before


@pytest.mark.parametrize("name", ["100%", "50%41", "why?mode=ro", "a#b", "a b&c"])
def test_directories_of_any_name(tmp_path: Path, name: str) -> None:
    """Letters that mean something in a URL mean nothing in the name of a directory."""
    settings = settings_in(tmp_path / name)
    with opened(settings):
        pass
    file = tmp_path / name / "saved"
    backup.back_up(settings.url, file)
    with pytest.raises(ConflictError, match="--force"):
        backup.put_back(settings.url, file)
    backup.put_back(settings.url, file, force=True)
    (settings.data_dir / "perfbisect.db").unlink()
    backup.put_back(settings.url, file)
    assert points(settings.url) == []
    assert [each.name for each in tmp_path.iterdir()] == [name]
