"""The git version that a build left in its wheel."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.helpers.package_index import wheel_bytes

from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.git.values import CommitInfo
from perfbisect.packages import commit_of, git_version_of
from perfbisect.publishing.git_version import find_stamp, find_stamp_in

PIECE = 1 << 20
STAMP = b"v2.14.0-rc1-21-g4dacf3f368e"


def write(
    directory: Path, members: Mapping[str, bytes], name: str = "demo-1.0-py3-none-any.whl"
) -> Path:
    path = directory / name
    path.write_bytes(wheel_bytes(members))
    return path


def library(stamp: bytes, before: int = 5000) -> bytes:
    """Return what looks like a library's strings around a stamp."""
    return b"\x7fELF" + b"\x01" * before + b"TF_UNKNOWN\x00" + stamp + b"\x00__len__\x00"


def test_stamp_in_a_library_is_found_by_what_it_looks_like(tmp_path: Path) -> None:
    """Whatever the member is called, its stamp is read, and which member it was is told."""
    wheel = write(tmp_path, {"demo/_deep/_pywrap_any.so.2": library(STAMP), "demo/data": STAMP})
    found = find_stamp(wheel)
    assert found is not None
    assert found.git_version == "v2.14.0-rc1-21-g4dacf3f368e"
    assert found.member == "demo/_deep/_pywrap_any.so.2"


@pytest.mark.parametrize(
    "stamp",
    [
        "v1.12.1-129829-gfc5692cc5ad",
        "v1.12.1-1-g1234567",
        "jax-v0.4.20-3-gabcdef0123456789abcdef0123456789abcdef01",
        "2.14.0-0-gabcdef01",
    ],
)
def test_forms_of_stamps(tmp_path: Path, stamp: str) -> None:
    """Tags with and without prefixes and SHAs from 7 to 40 digits are taken whole."""
    assert git_version_of(write(tmp_path, {"x.so": library(stamp.encode())})) == stamp


@pytest.mark.parametrize(
    "text",
    [
        b"release-gabcdef0",
        b"some-flag-1-ghostly1",
        b"a-1-gabcdef0123456789abcdef0123456789abcdef0123",
        b"v1.2-3-gABCDEF0",
        b"nodigits-5-gabcdef0",
    ],
)
def test_what_only_resembles_a_stamp(tmp_path: Path, text: bytes) -> None:
    """No count, no hexadecimal, too long, in capitals, no version in the tag: none is a stamp."""
    assert git_version_of(write(tmp_path, {"x.so": library(text)})) is None


@pytest.mark.parametrize("shift", range(0, 40, 3))
def test_stamp_across_two_pieces_is_whole(tmp_path: Path, shift: int) -> None:
    """Where a piece ends within the stamp, the SHA is neither cut short nor lost."""
    start = PIECE - shift
    content = bytearray(b"\x00" * (PIECE + 4096))
    content[start : start + len(STAMP)] = STAMP
    assert git_version_of(write(tmp_path, {"x.so": bytes(content)})) == STAMP.decode()


def test_stamp_at_the_very_end(tmp_path: Path) -> None:
    """The last bytes of a member count, also where they are the last of a full piece."""
    for size in (100, PIECE, PIECE + 10):
        content = b"\x00" * (size - len(STAMP)) + STAMP
        assert git_version_of(write(tmp_path, {"x.so": content})) == STAMP.decode()


def test_nothing_is_read_after_the_stamp(tmp_path: Path) -> None:
    """Small libraries come first, and the larger ones are not even opened."""
    wheel = write(tmp_path, {"big.so": library(b"", PIECE), "small.so": library(STAMP)})
    data = bytearray(wheel.read_bytes())
    data[30 + len("big.so") + 50] ^= 0xFF  # the large one is damaged now
    wheel.write_bytes(data)
    assert git_version_of(wheel) == STAMP.decode()


def test_the_likely_member_is_tried_first(tmp_path: Path) -> None:
    """Of two stamps, the one in the member that the caller expects is taken."""
    other = b"v9.9.9-9-g9999999"
    wheel = write(tmp_path, {"a.so": library(other), "b.so": library(STAMP, 9000)})
    with zipfile.ZipFile(wheel) as archive:
        found = find_stamp_in(archive, wheel.name, likely="b.so")
        first = find_stamp_in(archive, wheel.name)
    assert found is not None
    assert found.git_version == STAMP.decode()
    assert first is not None
    assert first.member == "a.so"


@pytest.mark.parametrize(
    "line",
    [
        "git_version = '0fabc3ba44823f257e70ce397d989c8de5e362c1'",
        '__git_version__: str = "0fabc3ba44823f257e70ce397d989c8de5e362c1"',
        "__commit_id__ = commit_id = 'g0fabc3ba44823f257e70ce397d989c8de5e362c1'",
        ' "full-revisionid": "0fabc3ba44823f257e70ce397d989c8de5e362c1",',
        'git_revision = "0fabc3ba44823f257e70ce397d989c8de5e362c1"',
    ],
)
def test_sha_in_a_version_file(tmp_path: Path, line: str) -> None:
    """What torch, setuptools-scm, versioneer and numpy write into version.py is read."""
    source = f"# made by the build\nversion = '1.0'\n{line}\n".encode()
    wheel = write(tmp_path, {"demo/_version.py": source, "demo/a.so": library(STAMP)})
    assert git_version_of(wheel) == "0fabc3ba44823f257e70ce397d989c8de5e362c1"


def test_numbers_are_no_shas(tmp_path: Path) -> None:
    """A revision that is a decimal number is not taken for a SHA."""
    assert git_version_of(write(tmp_path, {"version.py": b"revision = '20231003'\n"})) is None


def test_the_wheels_own_version_file_comes_before_a_carried_one(tmp_path: Path) -> None:
    """A package far down in the wheel may be another project's with a stamp of its own."""
    own, carried = b"git_version = 'aaaaaaa1'", b"git_version = 'bbbbbbb1'"
    members = {"demo/_vendor/other/version.py": carried, "demo/version.py": own}
    assert git_version_of(write(tmp_path, members)) == "aaaaaaa1"


def test_sha_in_the_wheels_version(tmp_path: Path) -> None:
    """Where nothing inside tells, a local version like +git1234567 does."""
    for local in ("git1234567", "gabc1234.d20260101"):
        name = f"demo-1.0.dev3+{local}-py3-none-any.whl"
        sha = local.removeprefix("git").removeprefix("g").split(".")[0]
        assert git_version_of(write(tmp_path, {"demo/__init__.py": b""}, name)) == sha
    assert git_version_of(write(tmp_path, {"x.py": b""}, "demo-1.0+cu121-py3-none-any.whl")) is None


def test_a_wheel_without_any_stamp(tmp_path: Path) -> None:
    """A wheel that says nothing gives None, and no commit."""
    wheel = write(tmp_path, {"demo/__init__.py": b"", "demo/x.so": library(b"")})
    assert git_version_of(wheel) is None

    def resolve(prefix: str) -> CommitInfo:
        raise AssertionError(prefix)

    with pytest.raises(NotFoundError, match="does not say which commit"):
        commit_of(wheel, resolve)


def test_commit_of_a_wheel(tmp_path: Path) -> None:
    """The short SHA in the stamp is what gets resolved."""
    commit = CommitInfo("4dacf3f368e" + "0" * 29, "t", (), "s", "a", datetime.now(UTC))
    known = {"4dacf3f368e": commit}
    assert commit_of(write(tmp_path, {"x.so": library(STAMP)}), known.__getitem__) == commit


@pytest.mark.parametrize("content", [b"", b"no archive", wheel_bytes({"x.so": b"1"})[:-30]])
def test_a_file_that_is_no_wheel(tmp_path: Path, content: bytes) -> None:
    """Empty, foreign and truncated files are refused by name."""
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"demo-1\.0-.*\.whl can't be read as a wheel"):
        find_stamp(path)


def test_a_damaged_member_is_refused(tmp_path: Path) -> None:
    """A member whose content does not unpack is an error, not a wheel without a stamp."""
    wheel = write(tmp_path, {"x.so": bytes(range(256)) * 40})
    data = bytearray(wheel.read_bytes())
    data[40:60] = b"\xff" * 20
    wheel.write_bytes(data)
    with pytest.raises(BadInputError, match="can't be read as a wheel"):
        find_stamp(wheel)
