"""Clusters, artifact stores and databases that can't be right are refused, and nothing is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.command_line import call

from perfbisect.commands.options import make_settings
from perfbisect.commands.working import object_store_bytes
from perfbisect.errors import BadInputError
from perfbisect.services import open_artifacts
from perfbisect.settings import Settings
from perfbisect.storage import checked_url, configured_url
from perfbisect.store.database import open_database
from perfbisect.store.host_health import take_out
from perfbisect.store.work import remember_host


@pytest.mark.parametrize(
    "address", ["not an address", "head", "head:", "head:0", "head:65536", ":6379", "ray://head:1"]
)
def test_heads_of_clusters_that_are_none(address: str, tmp_path: Path) -> None:
    """Whoever would speak to a cluster refuses an address that is none, and makes nothing."""
    data = ["--data-dir", str(tmp_path / "data")]
    for command in (
        ["worker", "--build-slots", "1", "--ray-address", address, *data],
        ["serve", "--engine", "ray", "--ray-address", address, *data],
    ):
        ended = call(command)
        assert ended.code == 2
        assert "PERFBISECT_RAY_ADDRESS" in ended.err
        assert f"(--ray-address) is 'host:port', as in 'head:6379', not '{address}'" in ended.err
    assert not (tmp_path / "data").exists()


def test_heads_of_clusters() -> None:
    """Names and addresses with a port are fine, and the cluster of this machine's own node."""
    for address in ("head:6379", "10.0.0.7:6379", "gpu-1.lab:1", "[fd00::7]:6379", "auto", ""):
        assert Settings(ray_address=address).ray_address == address


def test_a_worker_needs_a_head(tmp_path: Path) -> None:
    """A machine can't join the cluster whose node it is itself."""
    ended = call(["worker", "--pool=p", "--ray-address=auto", "--data-dir", str(tmp_path / "data")])
    assert ended.code == 2
    assert "--ray-address: the cluster's head is needed" in ended.err


def test_sizes_of_object_stores(tmp_path: Path) -> None:
    """An object store has a size as others are written, and no less than Ray takes."""
    assert object_store_bytes("100000000") == 100_000_000
    assert object_store_bytes("1GiB") == 1024**3
    worker = ["worker", "--pool=p", "--ray-address=head:1", "--data-dir", str(tmp_path / "data")]
    for text, why in (("lots", "is not a size like"), ("1m", "is less than 75 MiB")):
        ended = call([*worker, "--object-store", text])
        assert ended.code == 2
        assert f"--object-store: '{text}' {why}" in ended.err


def test_schemes_of_artifacts_are_written_small() -> None:
    """A scheme in capitals is the same one; without two slashes it is none."""
    assert checked_url("S3://Bucket/X") == "s3://Bucket/X"
    assert checked_url("FILE:///srv/A") == "file:///srv/A"
    for wrong in ("file:/srv/a", "s3:bucket/x", "GS:/x", "s3://bucket/\nx"):
        with pytest.raises(ValueError, match=r"begin with|control characters"):
            checked_url(wrong)


@pytest.mark.parametrize(
    "url", ["s3://u:hush@b/x", "S3://hush@b", "az://u:hush@b", "s3://b/x?key=hush", "s3://[hush@b"]
)
def test_credentials_in_addresses_are_not_shown(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address with credentials is refused without them, from a variable and from the file."""
    (tmp_path / "perfbisect.toml").write_text(f'[storage]\nartifacts = "{url}"\n')
    with pytest.raises(BadInputError, match="keep credentials") as in_file:
        configured_url(tmp_path)
    monkeypatch.setenv("PERFBISECT_ARTIFACTS", url)
    with pytest.raises(BadInputError, match=r"PERFBISECT_ARTIFACTS\): keep credentials") as in_name:
        make_settings()
    for caught in (in_file.value, in_name.value):
        assert "hush" not in f"{caught.message} {caught.value}"


def test_folders_of_artifacts_that_are_none(tmp_path: Path) -> None:
    """A file in the place of the folder, or of one above it, is bad input, with the setting."""
    file = tmp_path / "file"
    file.touch()
    for wrong in (file, file / "below"):
        settings = Settings(data_dir=tmp_path / "data", artifacts=f"file://{wrong}")
        with pytest.raises(BadInputError, match=r"PERFBISECT_ARTIFACTS.*Not a directory"):
            open_artifacts(settings)


def test_looking_what_would_go_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc --dry-run` leaves a shared folder that is not there as it is; `gc` itself makes it."""
    monkeypatch.setenv("PERFBISECT_ARTIFACTS", f"file://{tmp_path / 'shared'}")
    (tmp_path / "data").mkdir()
    command = ["gc", "--data-dir", str(tmp_path / "data")]
    assert call([*command, "--dry-run"]).code == 0
    assert not (tmp_path / "shared").exists()
    assert call(command).code == 0
    assert (tmp_path / "shared").is_dir()


def test_hosts_of_no_database(tmp_path: Path) -> None:
    """`perfbisect host` with a data directory that is mistyped makes none."""
    data = ["--data-dir", str(tmp_path / "typo")]
    for command in (["list"], ["out", "a", "--reason=r"], ["back", "a"]):
        ended = call(["host", *command, *data])
        assert ended.code == 2
        assert "there is no database at" in ended.err
    assert not (tmp_path / "typo").exists()


def test_reasons_stay_on_one_line(tmp_path: Path) -> None:
    """A host that is out already is told with its reason, without what a terminal would obey."""
    settings = Settings(data_dir=tmp_path)
    database = open_database(settings.url)
    with database.write() as session:
        remember_host(session, "a", "default", {})
        session.flush()
        take_out(session, "a", by="tester", reason="hot\n\x1b[2Jfan")
    database.close()
    ended = call(["host", "out", "a", "--reason=again", "--data-dir", str(tmp_path)])
    assert ended.code == 2
    assert "host a is out already: hot ?[2Jfan\n" in ended.err
