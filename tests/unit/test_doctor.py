from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from perfbisect.checks import Check, Status, dotted, existing_parent
from perfbisect.checks.machine import (
    MEMORY_WANTED,
    check_disk,
    check_memory,
    check_noise,
    check_processor,
    parse_pressure,
)
from perfbisect.checks.services import (
    check_database,
    check_docker,
    check_index,
    describe_docker,
    try_wal,
)
from perfbisect.checks.tools import check_bazel, check_compiler, check_git, check_uv, parse_version
from perfbisect.doctor import check_all, is_ready
from perfbisect.store.database import open_database


def program(directory: Path, name: str, says: str, code: int = 0) -> None:
    """Put a program on PATH that prints one line and ends."""
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("git version 2.39.5", (2, 39, 5)),
        ("bazel 0.26.1- (@non-git)", (0, 26, 1)),
        ("uv 0.8.3 (build 7)", (0, 8, 3)),
        ("no version here", ()),
        ("version 7", ()),
    ],
)
def test_versions_are_read_from_what_programs_say(text: str, version: tuple[int, ...]) -> None:
    """The first dotted number is the version; a text without one has none."""
    assert parse_version(text) == version


def test_a_version_is_written_with_dots() -> None:
    """A version goes out as it came in."""
    assert dotted(parse_version("git version 2.39.5")) == "2.39.5"


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ("git version 2.37.9", Status.MISSING),
        ("git version 2.38.0", Status.OK),
        ("git version 2.38", Status.OK),
        ("git version 10.1.2 (Apple Git-1)", Status.OK),
    ],
)
def test_git_must_be_new_enough(only: Path, says: str, status: Status) -> None:
    """git from 2.38 on will do, and numbers are compared as numbers."""
    program(only, "git", says)
    check = check_git()
    assert check.status is status
    assert check.required
    assert bool(check.advice) == (status is Status.MISSING)


def test_a_missing_git_says_how_to_get_one(only: Path) -> None:
    """Without git the line is missing, required, and says what to install."""
    check = check_git()
    assert (check.status, check.required) == (Status.MISSING, True)
    assert "apt-get install git" in check.advice


def test_a_program_that_fails_counts_as_missing(only: Path) -> None:
    """A git that is on PATH but ends with an error is no git."""
    program(only, "git", "git version 2.39.5", code=1)
    assert check_git().status is Status.MISSING


def test_one_compiler_of_two_is_not_enough(only: Path) -> None:
    """gcc without g++ is reported with what is there and what to install."""
    program(only, "gcc", "12.2.0")
    check = check_compiler()
    assert check.status is Status.MISSING
    assert check.detail == "gcc 12.2.0"
    assert not check.required


def test_bazel_is_found_or_can_be_fetched(only: Path) -> None:
    """No Bazel and no npm is missing; npm is enough; a Bazel on PATH is named with its version."""
    assert check_bazel().status is Status.MISSING
    program(only, "npm", "10.0.1")
    assert check_bazel().status is Status.OK
    program(only, "bazel", "bazel 0.26.1")
    assert "0.26.1" in check_bazel().detail


def test_uv_comes_with_perfbisect() -> None:
    """The uv that perfbisect depends on is found, and says its version."""
    check = check_uv()
    assert check.status is Status.OK
    assert parse_version(check.detail)


@pytest.mark.parametrize(
    ("load", "pressure", "status"),
    [
        (0.2, 0.0, Status.OK),
        (0.2, None, Status.OK),
        (1.9, 0.0, Status.WARNING),
        (0.2, 40.0, Status.WARNING),
    ],
)
def test_a_busy_machine_is_called_noisy(
    load: float, pressure: float | None, status: Status
) -> None:
    """Load or pressure on two cores is a warning; a kernel that tells no pressure is fine."""
    assert check_noise(load, 2, pressure).status is status


def test_pressure_is_the_ten_second_average_of_some() -> None:
    """Of the kernel's two lines and four figures the right one is taken."""
    text = "some avg10=1.16 avg60=0.27 avg300=0.55 total=1\nfull avg10=9.00 avg60=0.00 total=0\n"
    assert parse_pressure(text) == 1.16
    assert parse_pressure("") is None


@pytest.mark.parametrize(
    ("facts", "status", "word"),
    [
        ({"cores": 4, "cpu": "X", "governor": "performance"}, Status.OK, "performance"),
        ({"cores": 4, "cpu": "X"}, Status.OK, "4 cores of X"),
        ({"cores": 4, "cpu": "X", "governor": "powersave"}, Status.WARNING, "powersave"),
        ({"cores": 4, "cpu": "X", "virtual": True}, Status.WARNING, "virtual"),
        ({}, Status.OK, "unnamed"),
    ],
)
def test_an_unsteady_clock_is_a_warning(
    facts: dict[str, object], status: Status, word: str
) -> None:
    """A governor other than performance, or neighbours on the same hardware, are warned of."""
    check = check_processor(facts)
    assert check.status is status
    assert word in check.detail


def test_little_memory_is_a_warning() -> None:
    """Below 4 GiB large builds fail; from there on all is well."""
    assert check_memory(MEMORY_WANTED - 1).status is Status.WARNING
    assert check_memory(MEMORY_WANTED).status is Status.OK


def test_the_disk_is_judged_without_making_the_directory(tmp_path: Path) -> None:
    """Free space is that of the nearest directory that is there; nothing is created."""
    check = check_disk(tmp_path / "not" / "yet")
    assert check.required
    assert check.status in (Status.OK, Status.WARNING)
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_directory_is_found(tmp_path: Path) -> None:
    """A file in the way is not a directory; its parent is."""
    (tmp_path / "file").write_text("x")
    assert existing_parent(tmp_path / "file" / "below") == tmp_path
    assert existing_parent(tmp_path) == tmp_path


def test_a_database_that_is_not_there_is_fine(tmp_path: Path) -> None:
    """A SQLite file to come is tried beside its place, and no trace of the try is left."""
    check = check_database(f"sqlite:///{tmp_path / 'sub' / 'p.db'}")
    assert check.status is Status.OK
    assert "not there yet" in check.detail
    assert list(tmp_path.iterdir()) == []


def test_a_migrated_database_is_up_to_date(tmp_path: Path) -> None:
    """The schema of an opened database is the one this version needs."""
    url = f"sqlite:///{tmp_path / 'p.db'}"
    open_database(url).close()
    check = check_database(url)
    assert (check.status, check.detail) == (Status.OK, f"{url}, schema up to date")


def test_an_old_schema_says_what_to_run(tmp_path: Path) -> None:
    """A database without this version's tables is a warning with the command that mends it."""
    file = tmp_path / "p.db"
    sqlite3.connect(file).close()
    file.touch()
    check = check_database(f"sqlite:///{file}")
    assert check.status is Status.WARNING
    assert "perfbisect db upgrade" in check.advice


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    """Rubbish where the database should be is missing, with SQLite's own words."""
    file = tmp_path / "p.db"
    file.write_text("rubbish" * 1000)
    check = check_database(f"sqlite:///{file}")
    assert check.status is Status.MISSING
    assert "not a database" in check.detail


def test_a_server_that_does_not_answer_keeps_its_password() -> None:
    """An unreachable PostgreSQL is missing, and the password is not shown."""
    pytest.importorskip("psycopg")
    check = check_database("postgresql+psycopg://u:secret@127.0.0.1:1/x?connect_timeout=2")
    assert check.status is Status.MISSING
    assert "secret" not in check.detail + check.advice


def test_rubbish_is_no_database_url() -> None:
    """A URL that can't be parsed is reported, not raised."""
    assert check_database("rubbish").status is Status.MISSING


def test_the_journal_works_on_this_disk(tmp_path: Path) -> None:
    """The write-ahead log works in a writable directory, and fails with words elsewhere."""
    assert try_wal(tmp_path) == "wal"
    assert try_wal(tmp_path / "absent") not in ("wal", "")
    assert list(tmp_path.iterdir()) == []


def test_an_absent_engine_is_missing(tmp_path: Path) -> None:
    """Nothing behind the engine's socket: missing, not required, and no exception."""
    check = check_docker(f"unix://{tmp_path / 'docker.sock'}")
    assert (check.status, check.required) == (Status.MISSING, False)
    assert "Docker" in check.advice


def test_an_engine_is_described() -> None:
    """An engine's version, API and storage are named; lacking control groups are warned of."""
    version = {"Version": "20.10.24", "ApiVersion": "1.41"}
    check = describe_docker(version, {"Driver": "overlay2", "OSType": "linux"})
    assert check.status is Status.OK
    assert check.detail == "engine 20.10.24, API 1.41, overlay2 storage"
    assert describe_docker(version, {"MemoryLimit": False}).status is Status.WARNING
    assert describe_docker(version, {"OSType": "windows"}).status is Status.WARNING


def test_an_index_that_is_not_there_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index behind a closed port does not answer; the advice names the setting."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    check = check_index(timeout=5)
    assert check.status is Status.WARNING
    assert "UV_DEFAULT_INDEX" in check.advice


def test_readiness_is_about_what_is_required() -> None:
    """A missing option leaves the machine ready; a missing requirement does not."""
    option = Check("GPUs", Status.MISSING, "none")
    need = Check("git", Status.MISSING, "not on PATH", required=True)
    slow = Check("disk", Status.WARNING, "3 GiB", required=True)
    assert is_ready([option, slow])
    assert not is_ready([option, need])


def test_everything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks come back, each once, and each that is not ok says what to do."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
    checks = check_all(data_dir=tmp_path / "data", database_url="")
    names = [check.name for check in checks]
    assert len(set(names)) == len(names) == 14
    assert all(check.advice for check in checks if check.status is not Status.OK)
    assert str(tmp_path / "data") in next(c.detail for c in checks if c.name == "database")
    assert os.listdir(tmp_path) == []
