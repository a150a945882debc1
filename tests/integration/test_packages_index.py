"""A project's wheels from an index over HTTP, and git versions read from parts of files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.package_index import FakeIndex, serving, wheel_bytes

from perfbisect.core.states import Find
from perfbisect.errors import BadInputError, NotFoundError, TransientError
from perfbisect.git.values import CommitInfo, moment
from perfbisect.packages import (
    IndexAccess,
    Published,
    PublishedRange,
    WheelCache,
    as_of,
    place_on_commits,
    published,
    read_stamps,
)
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.publishing.index import TRIES, PackageIndex

NIGHTS = ("20260101", "20260102", "20260104")


def name_of(version: str, package: str = "demo_nightly") -> str:
    return f"{package}-{version}-py3-none-any.whl"


@pytest.fixture
def index() -> Iterator[FakeIndex]:
    """Three releases, and three nightlies with stamps of the commits 1…, 2… and 3…."""
    fake = FakeIndex()
    for version in ("1.0", "1.1", "1.2"):
        fake.files[name_of(version, "demo")] = wheel_bytes({"demo.py": version.encode()})
    for number, night in enumerate(NIGHTS, 1):
        name = name_of(f"2.0.dev{night}")
        stamp = f"v1.0-{number}-g{number}234567".encode()
        filler = bytes(range(256)) * 1000
        members = {"a.so": b"x", "big.so": filler * 9 + b"\0", "demo/core.so": filler + stamp}
        fake.files[name] = wheel_bytes(members, compression=0)
        fake.extra[name] = {"upload-time": f"2026-01-0{number}T06:00:00Z"}
    with serving(fake):
        yield fake


def releases(index: FakeIndex, good: str = "1.0", bad: str = "1.2") -> PublishedRange:
    return published("demo", good, bad, access=index.access)


def nights(index: FakeIndex) -> tuple[Published, ...]:
    first, last = f"2.0.dev{NIGHTS[0]}", f"2.0.dev{NIGHTS[-1]}"
    return published("Demo.Nightly", first, last, access=index.access).wheels


def test_json_and_html_tell_the_same_versions_and_digests(index: FakeIndex) -> None:
    """An index that only speaks HTML serves as well, without sizes and times."""
    from_json = releases(index).wheels
    index.html = True
    from_html = releases(index).wheels
    assert [wheel.version for wheel in from_json] == ["1.0", "1.1", "1.2"]
    assert [(wheel.url, wheel.sha256) for wheel in from_html] == [
        (wheel.url, wheel.sha256) for wheel in from_json
    ]
    assert from_json[0].size == len(index.files[name_of("1.0", "demo")])
    assert from_html[0].size is None


def test_upload_times_date_the_dependencies(index: FakeIndex) -> None:
    """A day after its upload is the date for a wheel's dependencies, its night's end if unknown."""
    first = nights(index)[0]
    index.html = True
    undated = nights(index)[0]
    assert str(as_of(first)) == "2026-01-02 06:00:00+00:00"
    assert str(as_of(undated)) == "2026-01-03 00:00:00+00:00"
    assert as_of(releases(index).wheels[0]) is None


def test_fix_reads_the_ends_the_other_way_round(index: FakeIndex) -> None:
    """With find = fix the later version is the good end."""
    found = published("demo", "1.2", "1.0", find=Find.FIX, access=index.access)
    assert [wheel.version for wheel in found.wheels] == ["1.0", "1.1", "1.2"]


def test_unknown_project_suggests_a_well_known_one(index: FakeIndex) -> None:
    """A misspelt name gets a suggestion, and is asked for once only."""
    with pytest.raises(NotFoundError, match=r"no project 'tensorflow-cpo' \(did you mean 'tensorf"):
        published("TensorFlow_CPO", "1.0", "1.1", access=index.access)
    assert len(index.asked) == 1


def test_a_name_that_is_none_is_not_sent(index: FakeIndex) -> None:
    """What can't be a project's name never becomes part of a URL."""
    with pytest.raises(BadInputError, match=r"'\.\./admin' is no name of a project"):
        published("../admin", "1.0", "1.1", access=index.access)
    assert index.asked == []


def test_trouble_that_passes_is_waited_for(index: FakeIndex) -> None:
    """An index that is overloaded for two requests is asked a third time."""
    index.statuses = [503, 429]
    with PackageIndex(index.access, first_wait=0.01) as client:
        page = client.project("demo")
    assert len(page.packages) == 3
    assert len(index.asked) == 3


def test_trouble_that_stays_is_transient(index: FakeIndex) -> None:
    """After the last try the error says what the index answered, and that it may pass."""
    index.statuses = [502] * TRIES
    with (
        PackageIndex(index.access, first_wait=0.01) as client,
        pytest.raises(TransientError, match="status 502"),
    ):
        client.project("demo")
    assert index.statuses == []


def test_waiting_ends_when_cancelled(index: FakeIndex) -> None:
    """A cancelled request does not wait for its next try."""
    index.statuses = [503] * TRIES
    cancel = CancelToken()
    cancel.cancel()
    with PackageIndex(index.access, first_wait=60) as client, pytest.raises(CancelledWork):
        client.project("demo", cancel)


def test_nobody_at_the_address_is_transient() -> None:
    """A refused connection is worth another try, and the message names the host."""
    access = IndexAccess("http://127.0.0.1:9/simple/", "given")
    with (
        PackageIndex(access, first_wait=0.01) as client,
        pytest.raises(TransientError, match=r"127\.0\.0\.1:9 can't be reached"),
    ):
        client.project("demo")


def test_an_address_that_is_no_index(index: FakeIndex) -> None:
    """A server that answers with something else is said to be no index."""
    index.files["demo"] = b"something else"
    access = IndexAccess(f"{index.url}/files/", "given")
    with (
        PackageIndex(access, first_wait=0.01) as client,
        pytest.raises(BadInputError, match="does not answer as a package index does"),
    ):
        client.project("demo")


def test_credentials_go_to_the_index_and_nowhere_else(index: FakeIndex) -> None:
    """The index's host gets them with every request; another host never sees them."""
    index.secret = base64.b64encode(b"me:secret").decode()
    with pytest.raises(BadInputError, match="credentials are missing or wrong"):
        releases(index)
    other = FakeIndex(files={"x.whl": b"content"})
    access = IndexAccess(index.access.url, "given", "me", "secret")
    with serving(other), PackageIndex(access) as client:
        assert len(client.project("demo").packages) == 3
        with client.opened(f"{other.url}/files/x.whl") as answer:
            assert answer.content == b"content"
    assert "Authorization" not in other.asked[0].headers


def test_stamps_are_read_from_parts_of_files(index: FakeIndex, tmp_path: Path) -> None:
    """The git version of each night is found without downloading the wheel."""
    cache = WheelCache(tmp_path, index.access)
    seen: list[tuple[int, int, str]] = []
    stamps = read_stamps(
        nights(index),
        index.access,
        cache,
        progress=lambda done, total, wheel: seen.append((done, total, wheel.version)),
    )
    assert [stamp.git_version if stamp else None for stamp in stamps.values()] == [
        "v1.0-1-g1234567",
        "v1.0-2-g2234567",
        "v1.0-3-g3234567",
    ]
    assert seen == [(number, 3, f"2.0.dev{night}") for number, night in enumerate(NIGHTS, 1)]
    assert all("Range" in request.headers for request in index.asked[1:])
    assert cache.usage().wheels == 0


def test_the_member_of_one_night_is_asked_first_in_the_next(
    index: FakeIndex, tmp_path: Path
) -> None:
    """After the first night, a night costs its table of contents and one member."""
    read_stamps(nights(index), index.access, WheelCache(tmp_path, index.access))
    first, *others = (len(index.asked_for(name_of(f"2.0.dev{night}"))) for night in NIGHTS)
    assert others == [2, 2]
    # The first was also asked whether parts are sent, and for a member without a stamp.
    assert first == 4


def test_without_ranges_wheels_are_downloaded(index: FakeIndex, tmp_path: Path) -> None:
    """Where a server sends whole files only, the stamp is read from the cached wheel."""
    index.ranges = False
    cache = WheelCache(tmp_path, index.access)
    stamps = read_stamps(nights(index)[:1], index.access, cache)
    assert [stamp and stamp.git_version for stamp in stamps.values()] == ["v1.0-1-g1234567"]
    assert cache.usage().wheels == 1


def test_reading_stamps_ends_when_cancelled(index: FakeIndex, tmp_path: Path) -> None:
    """The token is looked at before every wheel."""
    cancel = CancelToken()
    wheels = nights(index)
    with pytest.raises(CancelledWork):
        read_stamps(
            wheels,
            index.access,
            WheelCache(tmp_path, index.access),
            cancel,
            progress=lambda done, total, wheel: cancel.cancel(),
        )
    assert index.asked_for(name_of(f"2.0.dev{NIGHTS[1]}")) == []


def test_nights_lie_on_the_commit_axis(index: FakeIndex, tmp_path: Path) -> None:
    """Listing, stamps and candidates together give position -> version."""
    wheels = nights(index)
    stamps = read_stamps(wheels, index.access, WheelCache(tmp_path, index.access))
    shas = [digit * 8 + "0" * 32 for digit in "9182"]
    shas[1], shas[3] = "1234567" + "a" * 33, "3234567" + "b" * 33
    candidates = [
        CommitInfo(sha, "tree", (), "subject", "author", moment(str(1767000000 + number)))
        for number, sha in enumerate(shas)
    ]
    placement = place_on_commits(candidates, wheels, stamps)
    assert placement.wheels == {1: f"2.0.dev{NIGHTS[0]}", 3: f"2.0.dev{NIGHTS[2]}"}
    assert [item.name for item in placement.unplaced] == [f"2.0.dev{NIGHTS[1]}"]
