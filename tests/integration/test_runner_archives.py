"""LocalRunner on archives of artifacts in place of wheels."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from tests.helpers.running import failure, make_request, make_wheel, success

from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelToken
from perfbisect.runner import LocalRunner


def make_archive(path: Path, members: dict[str, bytes], link: str = "") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755
            tar.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo("link")
            info.type = tarfile.SYMTYPE
            info.linkname = link
            tar.addfile(info)
    return path


def test_archive_of_artifacts(tmp_path: Path) -> None:
    """{artifact} is the directory of what the build left, unpacked once."""
    script = b"#!/bin/sh\necho images/sec: 42\n"
    archive = make_archive(tmp_path / "artifacts.tar.gz", {"bin/bench": script})
    request = make_request(tmp_path, archive, "", command="{artifact}/bin/bench {jobs}")
    assert success(LocalRunner().run(request, CancelToken())).value == 42.0
    (unpacked,) = (p for p in (tmp_path / "cache" / "archives").iterdir() if p.is_dir())
    (unpacked / "content" / "bin" / "bench").write_text("#!/bin/sh\necho images/sec: 43\n")
    assert success(LocalRunner().run(request, CancelToken())).value == 43.0


@pytest.mark.parametrize(
    ("members", "link"),
    [
        ({"../outside": b"x"}, ""),
        ({"b/../../outside": b"x"}, ""),
        ({"a": b"x"}, "/etc/passwd"),
        ({"a": b"x"}, "../../outside"),
        ({"a": b"x"}, "a/b/c/../../../../outside"),
    ],
)
def test_archive_that_reaches_outside(tmp_path: Path, members: dict[str, bytes], link: str) -> None:
    """Archives that name paths outside of their directory are refused and write nothing there."""
    archive = make_archive(tmp_path / "artifacts.tar.gz", members, link)
    request = make_request(tmp_path, archive, "", command="{artifact}/a")
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.PERMANENT
    assert "can't be unpacked" in failed.cause
    assert not list(tmp_path.rglob("outside"))


def test_links_inside_are_fine(tmp_path: Path) -> None:
    """A link to another member of the archive is unpacked as it is."""
    script = b"#!/bin/sh\necho images/sec: 42\n"
    archive = make_archive(tmp_path / "artifacts.tar.gz", {"bin/bench": script}, "bin/bench")
    request = make_request(tmp_path, archive, "", command="{artifact}/link")
    assert success(LocalRunner().run(request, CancelToken())).value == 42.0


def test_damaged_archive(tmp_path: Path) -> None:
    """An archive cut short is broken for good."""
    whole = make_archive(tmp_path / "artifacts.tar.gz", {"a": os.urandom(100_000)})
    whole.write_bytes(whole.read_bytes()[:50_000])
    failed = failure(LocalRunner().run(make_request(tmp_path, whole, ""), CancelToken()))
    assert failed.kind is FailureKind.PERMANENT


def test_artifact_of_a_wheel(tmp_path: Path) -> None:
    """A command that wants artifacts where the recipe makes a wheel is told so."""
    wheel = make_wheel(tmp_path / "wheels", {"tiny/__init__.py": ""})
    request = make_request(tmp_path, wheel, "", command="{artifact}/bench")
    failed = failure(LocalRunner().run(request, CancelToken()))
    assert failed.kind is FailureKind.OURS
    assert "leaves no archive" in failed.cause
