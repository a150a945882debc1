"""Artifacts in a shared folder and in a bucket of a real S3 server."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.conducting import PROJECT, make_conductor, make_repository, request_for
from tests.helpers.object_store import BUCKET, client, s3_server
from tests.helpers.serving import client_of, opened, shown_app

from perfbisect.checks import Status
from perfbisect.checks.storage import check_artifacts
from perfbisect.errors import BadInputError, DamagedError, NotFoundError, TransientError
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.storage import checked_url, configured_url
from perfbisect.store.artifact_cache import GRACE, ArtifactCache
from perfbisect.store.artifacts import FsspecArtifactStore, key_of
from perfbisect.store.tables import BuildRow, WheelRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

TEXT = b"what a build left " * 1000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


class Kept:
    """A place for artifacts, and a way into it behind the store's back."""

    def __init__(self, url: str, fs: Any) -> None:
        self.url = url
        self._fs = fs
        self._root = url.partition("://")[2]

    def overwrite(self, key: str, content: bytes) -> None:
        self._fs.pipe_file(f"{self._root}/{key}", content)

    def names(self) -> list[str]:
        return [str(name) for name in self._fs.find(self._root)]


@pytest.fixture(params=["folder", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "folder":
        import fsspec

        return Kept(f"file://{tmp_path}/shared", fsspec.filesystem("file"))
    request.getfixturevalue("server")
    return Kept(f"s3://{BUCKET}/{tmp_path.name}", client())


def written(path: Path, content: bytes = TEXT) -> Path:
    path.write_bytes(content)
    return path


def test_what_one_machine_stores_another_reads(kept: Kept, tmp_path: Path) -> None:
    """The key is the content's digest, the copy is the content, and storing twice is one object."""
    here = FsspecArtifactStore(kept.url, tmp_path / "here")
    there = FsspecArtifactStore(kept.url, tmp_path / "there")
    assert not there.exists(key_of("0" * 64))
    key = here.put(written(tmp_path / "a.whl"))
    assert there.put(written(tmp_path / "b.whl")) == key
    assert there.exists(key)
    copy = there.fetch(key)
    assert copy.read_bytes() == TEXT
    assert copy.is_relative_to(tmp_path / "there")
    assert len(kept.names()) == 1
    there.remove(key)
    here.remove(key)
    with pytest.raises(NotFoundError, match=key):
        here.fetch(key)


def test_a_changed_object_is_named_and_never_used(kept: Kept, tmp_path: Path) -> None:
    """Content that is not its digest's is refused, also of the same size; put again, it is good."""
    here = FsspecArtifactStore(kept.url, tmp_path / "here")
    key = here.put(written(tmp_path / "a.whl"))
    for content in (TEXT[:-1] + b"!", TEXT[: len(TEXT) // 2], b""):
        kept.overwrite(key, content)
        there = FsspecArtifactStore(kept.url, tmp_path / "there")
        with pytest.raises(DamagedError, match=key):
            there.fetch(key)
        assert [path for path in (tmp_path / "there").rglob("*") if path.is_file()] == []
        assert here.put(tmp_path / "a.whl") == key
        assert there.fetch(key).read_bytes() == TEXT
        there.remove(key)
        here.put(tmp_path / "a.whl")


def test_a_damaged_copy_is_fetched_again(kept: Kept, tmp_path: Path) -> None:
    """A copy on this machine that was torn or changed is noticed, and replaced by the content."""
    here = FsspecArtifactStore(kept.url, tmp_path / "here")
    key = here.put(written(tmp_path / "a.whl"))
    for content in (b"torn", b"x" * len(TEXT)):
        here.fetch(key).write_bytes(content)
        again = FsspecArtifactStore(kept.url, tmp_path / "here")
        assert again.fetch(key).read_bytes() == TEXT
        assert here.fetch(key).read_bytes() == TEXT


def test_an_upload_in_parts_shows_when_it_is_complete(server: str, tmp_path: Path) -> None:
    """Parts of an object whose sender died are not the object."""
    key = key_of("ab" * 32)
    s3 = client()
    begun = s3.call_s3("create_multipart_upload", Bucket=BUCKET, Key=f"torn/{key}")
    s3.call_s3(
        "upload_part", Bucket=BUCKET, Key=f"torn/{key}", UploadId=begun["UploadId"], PartNumber=1,
        Body=b"x" * 5_300_000,
    )  # fmt: skip
    store = FsspecArtifactStore(f"s3://{BUCKET}/torn", tmp_path / "here")
    assert not store.exists(key)
    with pytest.raises(NotFoundError):
        store.fetch(key)


_KILLED = """
import resource, signal, sys
from pathlib import Path
from perfbisect.store.artifacts import FsspecArtifactStore

store = FsspecArtifactStore(sys.argv[1], Path(sys.argv[2]))
# The kernel kills whoever writes more than so many bytes to a file: in the middle of the copy.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
store.put(Path(sys.argv[3]))
"""


def test_a_killed_upload_leaves_nothing_under_its_key(tmp_path: Path) -> None:
    """A process that dies while it copies into a folder leaves a partial file that nobody sees."""
    file = written(tmp_path / "a.whl", b"x" * 3_000_000)
    url = f"file://{tmp_path}/shared"
    program = [sys.executable, "-c", _KILLED, url, str(tmp_path / "other"), str(file)]
    assert subprocess.run(program, check=False, timeout=120).returncode == -signal.SIGXFSZ
    partial = list((tmp_path / "shared" / "partial").iterdir())
    assert [path.stat().st_size for path in partial] == [1_000_000]
    store = FsspecArtifactStore(url, tmp_path / "here")
    assert [path for path in (tmp_path / "shared" / "sha256").rglob("*") if path.is_file()] == []
    key = store.put(file)
    assert store.fetch(key).read_bytes() == b"x" * 3_000_000


def test_the_doctor_tries_the_store(kept: Kept) -> None:
    """What it stores it reads back and deletes; a bucket that is not there is missing."""
    assert check_artifacts(kept.url).status is Status.OK
    assert kept.names() == []
    missing = check_artifacts(f"{kept.url.partition(':')[0]}:///proc/no-such")
    assert (missing.status, missing.required) == (Status.MISSING, True)


def test_a_store_that_is_away_is_named(server: str, tmp_path: Path) -> None:
    """Without its bucket, storing and reading fail for now, and say which store it is."""
    store = FsspecArtifactStore("s3://no-such-bucket/x", tmp_path / "here")
    with pytest.raises(TransientError, match="artifact store s3://no-such-bucket"):
        store.put(written(tmp_path / "a.whl"))
    with pytest.raises(BadInputError, match="'file:///proc/no/such' can't be used"):
        FsspecArtifactStore("file:///proc/no/such", tmp_path / "here")


def test_copies_are_bounded(tmp_path: Path) -> None:
    """The longest unused copies go beyond the limit, but none that was used within a day."""
    moment = [0.0]
    cache = ArtifactCache(tmp_path / "cache", 25, lambda: moment[0])
    for number, days in enumerate((0.0, 0.5, 1.0, 1.2)):
        moment[0] = days * GRACE
        cache.add(f"sha256/{number}", written(tmp_path / "a", b"0123456789"))
    kept = sorted(path.name for path in (tmp_path / "cache" / "sha256").iterdir())
    assert kept == ["1", "2", "3"]
    assert cache.find("sha256/1") is not None
    moment[0] = 3.0 * GRACE
    cache.find("sha256/0")
    cache.prune()
    assert sorted(path.name for path in (tmp_path / "cache" / "sha256").iterdir()) == ["1", "3"]


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("az://bucket/x", "begin with file://, s3:// or gs://"),
        ("/srv/artifacts", "begin with file://"),
        ("file://srv/artifacts", "absolute path"),
        ("s3:///x", "name a bucket"),
        ("s3://key:secret@bucket/x", "credentials"),
    ],
)
def test_addresses_that_are_none(url: str, right: str, tmp_path: Path) -> None:
    """An address that can't be right is refused with what would be, wherever it stands."""
    with pytest.raises(ValueError, match=right):
        checked_url(url)
    (tmp_path / "perfbisect.toml").write_text(f'[storage]\nartifacts = "{url}"\n')
    with pytest.raises(BadInputError, match=right):
        configured_url(tmp_path)


def test_tables_that_are_none(tmp_path: Path) -> None:
    """Unknown keys and values that are no text are refused; without the table nothing is said."""
    file = tmp_path / "perfbisect.toml"
    assert configured_url(tmp_path) == ""
    for text, right in (
        ("[storage]\nartefacts = 1", "did you mean 'artifacts'"),
        ("[storage]\nartifacts = 1", "should be text"),
        ("storage = 1", "should be a table"),
        ("[storage", "not TOML"),
    ):
        file.write_text(text)
        with pytest.raises(BadInputError, match=right):
            configured_url(tmp_path)


def searched(services: Services, here: Path, repository: Any, benchmark: str) -> ScriptedBuilder:
    """Conduct a bisection to its culprit; return the builder that was asked."""
    bisection_id = submit(
        services,
        request_for(repository, benchmark=benchmark),
        requested_by="tester",
        origin="command line",
        base_dir=here,
        allow_local=True,
    ).id
    runner = ScriptedRunner(
        lambda sha: 9000.0 if repository.position(sha) < 2 else 5000.0, noise=0.01
    )
    builder = ScriptedBuilder()
    conductor = make_conductor(services, builder, runner, here)
    conductor.conduct_until_finished(bisection_id)
    conductor.stop()
    return builder


@pytest.mark.parametrize("kept", ["s3"], indirect=True)
def test_two_services_share_wheels_and_logs(kept: Kept, tmp_path: Path) -> None:
    """With data directories of their own, the second uses the first's wheels without building,
    shows its logs, and builds again only the wheel that was changed in the store."""
    repository = make_repository(tmp_path / "repository", 2)
    project = tmp_path / "project"
    project.mkdir()
    other = PROJECT.partition("[benchmark.scripted]")[2].replace('"true"', '"true again"')
    (project / "perfbisect.toml").write_text(
        f'{PROJECT}\n[benchmark.other]{other}\n[storage]\nartifacts = "{kept.url}"\n'
    )

    def settings(name: str) -> Settings:
        return Settings(
            data_dir=tmp_path / name,
            project_dir=project,
            database_url=f"sqlite:///{tmp_path}/team.db",
        )

    with opened(settings("one")) as one:
        built = {each.tree for each in searched(one, project, repository, "scripted").requests}
        assert len(built) == 3
        with one.database.read() as session:
            build = session.scalars(select(BuildRow).order_by(BuildRow.id)).first()
            wheel = session.scalars(select(WheelRow).order_by(WheelRow.id)).first()
        assert build is not None
        assert wheel is not None
    kept.overwrite(wheel.artifact, b"not what was built")
    with opened(settings("two")) as two:
        asked = [each.tree for each in searched(two, project, repository, "other").requests]
        assert asked == [wheel.tree]
        assert two.artifacts.fetch(wheel.artifact).read_text().splitlines()[1] == wheel.tree
    with client_of(shown_app(settings("two"))) as reader:
        log = reader.get(f"/api/v1/builds/{build.id}/log")
        assert log.text == f"building {build.commit_sha}\n"
        kept.overwrite(str(build.log_artifact), b"not what was written")
    with client_of(shown_app(settings("three"))) as reader:
        answer = reader.get(f"/api/v1/builds/{build.id}/log")
        assert answer.status_code == 503
        assert str(build.log_artifact) in answer.json()["detail"]
