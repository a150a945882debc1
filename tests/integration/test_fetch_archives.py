"""``perfbisect fetch-archives``: a real repository, a real host, and archives that are gone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.archive_host import ArchiveHost, archive_host
from tests.helpers.command_line import call
from tests.helpers.repositories import Workshop

from perfbisect.archive_download import ArchiveFetcher
from perfbisect.archive_search import archives_between
from perfbisect.core.archives import Archive

ONE, TWO, THREE = b"one" * 1000, b"two" * 1000, b"three" * 100_000


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def host() -> Iterator[ArchiveHost]:
    with archive_host() as serving:
        yield serving


def rule(name: str, content: bytes, *urls: str) -> str:
    listed = ", ".join(f'"{url}"' for url in urls)
    return f'tf_http_archive(name = "{name}", sha256 = "{sum_of(content)}", urls = [{listed}])\n'


@pytest.fixture
def workshop(tmp_path: Path, host: ArchiveHost) -> Workshop:
    """Three commits: the second moves an archive's address, the third wants another version."""
    host.files = {"/new/one-1.0.tar.gz": ONE, "/two/v1.0.zip": TWO, "/three/v1.0.zip": THREE}
    made = Workshop(tmp_path / "repository")
    workspace = "tensorflow/workspace.bzl"
    gone = rule("one", ONE, f"{host.url}/old/one-1.0.tar.gz")
    made.commit("One", {"WORKSPACE": 'workspace(name = "w")\n', workspace: gone})
    moved = rule("one", ONE, f"{host.url}/new/one-1.0.tar.gz")
    two = rule("two", TWO, f"{host.url}/two/v1.0.zip")
    made.commit("Two", {workspace: moved + two})
    three = rule("three", THREE, f"{host.url}/three/v1.0.zip")
    lost = rule("lost", b"lost", f"{host.url}/lost.tar.gz", f"{host.url}/mirror/lost.tar.gz")
    puzzle = 'http_archive(name = "puzzle", sha256 = LOADED, urls = ["https://e.org/p.zip"])\n'
    files = {"third_party/three.bzl": three, workspace: moved + lost, "WORKSPACE": puzzle}
    made.commit("Three", files)
    return made


def fetch(workshop: Workshop, tmp_path: Path, *more: str) -> list[str]:
    ends = ["--good", "HEAD~2", "--bad", "HEAD"]
    data = ["--data-dir", str(tmp_path / "data"), "--distdir", str(tmp_path / "distdir")]
    return ["fetch-archives", "--repo", str(workshop.path), *ends, *data, *more]


def test_every_version_in_the_range_is_read(workshop: Workshop) -> None:
    """What only a commit in the middle names is found too, and one archive is one."""
    first = workshop.git("rev-parse", "HEAD~2")
    found = archives_between(workshop.path / ".git", first, workshop.head)
    names = {archive.name for archive in found.archives}
    assert names == {"one-1.0.tar.gz", "v1.0.zip", "lost.tar.gz"}
    assert len(found.archives) == 4
    assert found.puzzles == ("WORKSPACE line 1: http_archive(puzzle)",)


def test_the_range_is_fetched_and_the_dead_are_listed(
    workshop: Workshop, host: ArchiveHost, tmp_path: Path
) -> None:
    """Addresses are tried in order, content is verified, and what is nowhere is said."""
    ended = call(fetch(workshop, tmp_path, "--json"))
    assert ended.code == 1
    rows = {row["sha256"]: row for row in ended.json["archives"]}
    one = rows[sum_of(ONE)]
    assert one["source"] == f"{host.url}/new/one-1.0.tar.gz"
    assert one["dead"] == [{"url": f"{host.url}/old/one-1.0.tar.gz", "why": "HTTP 404 Not Found"}]
    lost = rows[sum_of(b"lost")]
    assert lost["path"] is None
    assert [each["url"].removeprefix(host.url) for each in lost["dead"]] == [
        "/lost.tar.gz",
        "/mirror/lost.tar.gz",
    ]
    assert ended.json["not_understood"] == ["WORKSPACE line 1: http_archive(puzzle)"]
    distdir = tmp_path / "distdir"
    kept = {path.read_bytes() for path in distdir.rglob("*.*") if path.is_file()}
    assert kept == {ONE, TWO, THREE}
    # Two archives have one name: the second lies apart.
    apart = [path.parent for path in distdir.rglob("v1.0.zip")]
    assert sorted(path == distdir for path in apart) == [False, True]


def test_what_is_there_is_not_fetched_again(
    workshop: Workshop, host: ArchiveHost, tmp_path: Path
) -> None:
    """A second call asks only for what is missing."""
    call(fetch(workshop, tmp_path))
    host.asked.clear()
    ended = call(fetch(workshop, tmp_path))
    assert {path for path, _ in host.asked} == {"/lost.tar.gz", "/mirror/lost.tar.gz"}
    assert "3 archives in" in ended.out
    assert "0 of them new, 1 lost" in ended.out


def test_dry_run_fetches_nothing(workshop: Workshop, host: ArchiveHost, tmp_path: Path) -> None:
    """The plan names what is missing, and nobody is asked for it."""
    ended = call(fetch(workshop, tmp_path, "--dry-run", "--json"))
    assert ended.code == 0
    assert len(ended.json["missing"]) == 4
    assert host.asked == []


def test_a_broken_download_goes_on_where_it_was(host: ArchiveHost, tmp_path: Path) -> None:
    """What came before the connection broke is kept, and the next address gives the rest."""
    host.files = {"/a/x.zip": THREE, "/b/x.zip": THREE}
    host.breaks = {"/a/x.zip": 100_000}
    archive = Archive(sum_of(THREE), (f"{host.url}/a/x.zip", f"{host.url}/b/x.zip"))
    fetched = ArchiveFetcher(tmp_path).fetch(archive)
    assert fetched.path is not None
    assert fetched.path.read_bytes() == THREE
    (first, second) = host.asked
    assert first == ("/a/x.zip", 0)
    assert second[0] == "/b/x.zip"
    assert 0 < second[1] <= 100_000


def test_other_content_is_never_kept(host: ArchiveHost, tmp_path: Path) -> None:
    """An address that has other bytes by now is as good as dead, and the next one is tried."""
    host.files = {"/a/x.zip": TWO, "/b/x.zip": ONE}
    archive = Archive(sum_of(ONE), (f"{host.url}/a/x.zip", f"{host.url}/b/x.zip"))
    fetched = ArchiveFetcher(tmp_path).fetch(archive)
    assert fetched.source.endswith("/b/x.zip")
    assert f"its SHA-256 is {sum_of(TWO)}" in fetched.dead[0].why
    assert fetched.path is not None
    assert fetched.path.read_bytes() == ONE
