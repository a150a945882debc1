"""Directories that hostile code wrote to, read and removed by the server."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from perfbisect.building import artifacts
from perfbisect.building.artifacts import NoResultError, result_of
from perfbisect.running.archives import MAX_UNPACKED, unpack
from perfbisect.running.failures import RunFailed
from perfbisect.running.leftovers import collect
from perfbisect.untrusted import glob_files, hand_over, is_own_file, remove, remove_quietly

SECRET = "what only the server may read"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the server, and a directory around it."""
    path = tmp_path / "server" / "secret.txt"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """What a build or a run wrote to."""
    path = tmp_path / "out"
    path.mkdir()
    return path


def nest(top: Path, depth: int) -> None:
    """Make directories below each other, deeper than a path can say."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_wheel_that_is_a_link_is_no_result(out: Path, secret: Path) -> None:
    """A link named like a wheel does not carry a file of the server into the store."""
    (out / "x-1.0-py3-none-any.whl").symlink_to(secret)
    with pytest.raises(NoResultError, match="link in place of its wheel"):
        result_of(out, epoch=0)


def test_a_directory_of_artifacts_that_is_a_link_is_not_entered(out: Path, secret: Path) -> None:
    """What a link in the place of the artifacts leads to is not packed."""
    (out / "artifacts").symlink_to(secret.parent)
    with tarfile.open(result_of(out, epoch=0)) as tar:
        (member,) = tar.getmembers()
    assert member.issym()
    assert member.size == 0


def test_the_archive_is_not_written_through_a_link(out: Path, secret: Path) -> None:
    """A link in the place of the archive does not make the server overwrite its own file."""
    (out / "artifacts.tar.gz").symlink_to(secret)
    (out / "result").write_text("a result")
    archive = result_of(out, epoch=0)
    assert secret.read_text() == SECRET
    assert not archive.is_symlink()
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["result"]


def test_a_pipe_is_no_result(out: Path) -> None:
    """A pipe named like a wheel would be waited for without end; it is left out."""
    os.mkfifo(out / "x-1.0-py3-none-any.whl")
    with pytest.raises(NoResultError, match="neither a wheel nor artifacts"):
        result_of(out, epoch=0)


def test_a_sparse_file_counts_in_full(out: Path) -> None:
    """A file that claims a terabyte and takes no space is not packed."""
    with (out / "hole").open("wb") as file:
        file.truncate(artifacts.MAX_BYTES + 1)
    with pytest.raises(NoResultError, match="more than"):
        result_of(out, epoch=0)


def test_an_archive_that_claims_more_than_it_may_is_refused(out: Path) -> None:
    """What an archive says that it holds is counted before anything of it is written."""
    archive = out / "bomb.tar"
    member = tarfile.TarInfo("hole")
    member.size = MAX_UNPACKED + 1
    archive.write_bytes(member.tobuf())
    inside = out / "inside"
    inside.mkdir()
    with pytest.raises(RunFailed, match="holds more than"):
        unpack(archive, inside)
    assert list(inside.iterdir()) == []


def test_links_and_pipes_of_a_run_are_not_read(out: Path, secret: Path) -> None:
    """Neither a link, nor what is behind one, nor a pipe is taken for a file of the run."""
    (out / "link").symlink_to(secret)
    (out / "behind").symlink_to(secret.parent)
    os.mkfifo(out / "pipe")
    (out / "plain").write_text("1")
    assert glob_files(out, "*") == [out / "plain"]
    assert glob_files(out, "behind/*") == []
    assert not is_own_file(out / "behind" / "secret.txt", out)
    assert list(collect(["**/*", "*"], out).files) == ["plain"]


def test_directories_nested_to_break_programs(out: Path) -> None:
    """What is deeper than the stack hides no result, can be handed over, and can be removed."""
    (out / "result.txt").write_text("1")
    (out / "shut").mkdir()
    (out / "shut" / "file").write_text("1")
    nest(out, 1200)
    assert out / "result.txt" in glob_files(out, "**/*.txt")
    hand_over(out, os.geteuid())
    (out / "shut").chmod(0)
    remove(out)
    assert not out.exists()
    remove(out)
    remove_quietly(out)


def test_removing_follows_no_link(out: Path, secret: Path) -> None:
    """Removing a directory removes the links in it, and not what they lead to."""
    (out / "link").symlink_to(secret.parent)
    remove(out)
    assert secret.read_text() == SECRET


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_handing_over_follows_no_link(out: Path, secret: Path) -> None:
    """A directory is given to another user with its links, and nothing outside of it is."""
    (out / "link").symlink_to(secret)
    (out / "d").mkdir()
    hand_over(out, 10001)
    assert os.lstat(out / "link").st_uid == os.stat(out / "d").st_uid == 10001
    assert secret.stat().st_uid == 0
