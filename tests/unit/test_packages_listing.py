"""From the files of a project's page to the wheels between two versions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from packaging.tags import Tag
from pypi_simple import DistributionPackage

from perfbisect.core.states import Find
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.publishing.listing import choose_range
from perfbisect.publishing.target import Target
from perfbisect.publishing.values import Published, PublishedRange

TARGET = Target(
    (
        Tag("cp311", "cp311", "manylinux_2_28_x86_64"),
        Tag("cp311", "cp311", "manylinux_2_17_x86_64"),
        Tag("py3", "none", "any"),
    ),
    "3.11.4",
)
SHA = "a" * 64


def wheel(
    version: str,
    tags: str = "cp311-cp311-manylinux_2_17_x86_64",
    *,
    yanked: str | None = None,
    requires: str | None = None,
    sha256: str | None = SHA,
    name: str = "demo",
) -> DistributionPackage:
    filename = f"{name}-{version}-{tags}.whl"
    return DistributionPackage(
        filename=filename,
        url=f"https://index.example/{filename}",
        project=name,
        version=version.split("-")[0],
        package_type="wheel",
        digests={"sha256": sha256} if sha256 else {"md5": "b" * 32},
        requires_python=requires,
        has_sig=None,
        is_yanked=yanked is not None,
        yanked_reason=yanked,
        size=1000,
        upload_time=datetime(2026, 1, 1, tzinfo=UTC),
    )


def sdist(version: str) -> DistributionPackage:
    name = f"demo-{version}.tar.gz"
    return DistributionPackage(
        name, f"https://index.example/{name}", "demo", version, "sdist", {}, None, None
    )


def chosen(
    files: list[DistributionPackage],
    good: str,
    bad: str,
    *,
    find: Find = Find.ALL,
    prereleases: bool | None = None,
) -> PublishedRange:
    return choose_range("demo", files, good, bad, TARGET, find=find, prereleases=prereleases)


def versions(found: PublishedRange) -> list[str]:
    return [item.version for item in found.wheels]


def test_versions_are_in_their_own_order_and_ends_included() -> None:
    """1.10 comes after 1.9, what lies outside of the ends is left out, and so are pre-releases."""
    names = ["1.10.0", "1.9.0", "1.8.0", "1.11.0", "1.10.0rc1", "1.12.0"]
    found = chosen([wheel(name) for name in names], "1.8.0", "1.11.0")
    assert versions(found) == ["1.8.0", "1.9.0", "1.10.0", "1.11.0"]
    assert [(item.version, item.reason) for item in found.skipped] == [
        ("1.10.0rc1", "a pre-release")
    ]


def test_what_the_index_says_is_kept() -> None:
    """URL, digest, size and time of upload of a file are those of the page."""
    found = chosen([wheel("1.0", requires=">=3.9"), wheel("1.1")], "1.0", "1.1")
    assert found.wheels[0] == Published(
        package="demo",
        version="1.0",
        filename="demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        url="https://index.example/demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        sha256=SHA,
        size=1000,
        upload_time=datetime(2026, 1, 1, tzinfo=UTC),
        requires_python=">=3.9",
    )


def test_published_survives_json() -> None:
    """A wheel written as plain values is read back equal, with and without a time."""
    first = chosen([wheel("1.0"), wheel("1.1")], "1.0", "1.1").wheels[0]
    assert Published.from_dict(first.to_dict()) == first
    timeless = Published("demo", "1.0", "demo-1.0-py3-none-any.whl", "https://x.example", SHA)
    assert Published.from_dict(timeless.to_dict()) == timeless


def test_nightlies_are_in_the_order_of_their_dates() -> None:
    """A night of the old version after one of the new is later; releases are not among nights."""
    names = [
        "2.1.0.dev20260102",
        "2.2.0.dev20260103",
        "2.1.0.dev20260104",
        "2.1.0",
        "2.2.0.dev20260105",
        "2.1.0rc1",
    ]
    found = chosen([wheel(name) for name in names], "2.1.0.dev20260102", "2.2.0.dev20260105")
    assert versions(found) == [
        "2.1.0.dev20260102",
        "2.2.0.dev20260103",
        "2.1.0.dev20260104",
        "2.2.0.dev20260105",
    ]
    assert found.skipped == ()


def test_a_day_names_its_nightly() -> None:
    """2026-01-02 is the night of that day; of two versions of a day it is the later one."""
    names = ["2.1.0.dev20260102", "2.1.0.dev20260104", "2.2.0.dev20260104", "2.2.0.dev20260106"]
    files = [wheel(name) for name in names]
    found = chosen(files, "2026-01-02", "2026-01-04")
    assert versions(found) == names[:3]
    with pytest.raises(NotFoundError, match=r"of 2026-01-05 of demo; nearest are 2026-01-04, 2"):
        chosen(files, "2026-01-02", "2026-01-05")
    with pytest.raises(NotFoundError, match="it has no nightlies that fit here"):
        chosen([wheel("1.0")], "2026-01-02", "1.0")


def test_a_page_without_files() -> None:
    """An empty page (a login page that passes for an index) is said to list nothing."""
    with pytest.raises(NotFoundError, match="lists no files of 'demo'"):
        chosen([], "1.0", "1.1")


def test_prereleases_come_when_asked_for_or_when_both_ends_are() -> None:
    """Between releases they need a word; between release candidates they are meant."""
    files = [wheel(name) for name in ["1.0", "1.1rc0", "1.1rc1", "1.1rc2", "1.1"]]
    assert versions(chosen(files, "1.0", "1.1", prereleases=True)) == [
        "1.0",
        "1.1rc0",
        "1.1rc1",
        "1.1rc2",
        "1.1",
    ]
    assert versions(chosen(files, "1.1rc0", "1.1rc2")) == ["1.1rc0", "1.1rc1", "1.1rc2"]
    assert versions(chosen(files, "1.1rc1", "1.1")) == ["1.1rc1", "1.1"]


def test_versions_that_do_not_fit_are_skipped_with_the_reason() -> None:
    """Yanked, for others, sources only, another Python, no digest: each is reported."""
    files = [
        wheel("1.0"),
        wheel("1.1", yanked="broken\x1b metadata"),
        wheel("1.2", "cp39-cp39-manylinux_2_17_x86_64"),
        wheel("1.3", "cp311-cp311-win_amd64"),
        sdist("1.4"),
        wheel("1.5", requires=">=3.12"),
        wheel("1.6", sha256=None),
        wheel("1.7"),
    ]
    found = chosen(files, "1.0", "1.7")
    assert versions(found) == ["1.0", "1.7"]
    assert {item.version: item.reason for item in found.skipped} == {
        "1.1": "yanked: broken� metadata",
        "1.2": "no wheel for cp311 on manylinux_2_28_x86_64; there are only those for cp39",
        "1.3": "no wheel for cp311 on manylinux_2_28_x86_64; there are only those for win_amd64",
        "1.4": "there are no wheels, only sources",
        "1.5": "demo-1.5-cp311-cp311-manylinux_2_17_x86_64.whl requires Python >=3.12",
        "1.6": "the index gives no SHA-256 of demo-1.6-cp311-cp311-manylinux_2_17_x86_64.whl",
    }


def test_best_wheel_of_a_version_is_taken() -> None:
    """The most specific tag wins, and of its builds the last; a yanked file does not count."""
    files = [
        wheel("1.0-99", "py3-none-any"),
        wheel("1.0-2", "cp311-cp311-manylinux_2_28_x86_64"),
        wheel("1.0-10", "cp311-cp311-manylinux_2_28_x86_64"),
        wheel("1.0-11", "cp311-cp311-manylinux_2_28_x86_64", yanked=""),
        wheel("1.1"),
    ]
    found = chosen(files, "1.0", "1.1")
    assert found.wheels[0].filename == "demo-1.0-10-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_a_yanked_end_is_taken_and_noted() -> None:
    """Who names a yanked version gets it, as with installers, and is told."""
    found = chosen([wheel("1.0", yanked="slow"), wheel("1.1")], "1.0", "1.1")
    assert versions(found) == ["1.0", "1.1"]
    assert found.notes == ("the good end 1.0 is yanked: slow",)


def test_local_versions_are_found_without_their_suffix() -> None:
    """An index whose versions all end in +cpu knows 1.0 when it has one 1.0."""
    files = [wheel("1.0+cpu"), wheel("1.1+cpu")]
    assert versions(chosen(files, "1.0", "1.1")) == ["1.0+cpu", "1.1+cpu"]


def test_fix_has_the_bad_end_first() -> None:
    """With find = fix the good end is the later one."""
    files = [wheel(name) for name in ["1.0", "1.1", "1.2"]]
    found = chosen(files, "1.2", "1.0", find=Find.FIX)
    assert versions(found) == ["1.0", "1.1", "1.2"]


@pytest.mark.parametrize(
    ("good", "bad", "find", "message"),
    [
        ("1.0", "1.0.0", Find.ALL, "good and bad are the same version 1.0: there is nothing"),
        (
            "1.2",
            "1.0",
            Find.ALL,
            "bad 1.0 is older than good 1.2; swap them, or ask for find = fix",
        ),
        ("1.0", "1.2", Find.FIX, "good 1.0 is older than bad 1.2; swap them, or ask for find = fi"),
        ("new", "1.2", Find.ALL, "good: 'new' is no version of demo; right is one like '1.2'"),
        ("1.0", "1.3", Find.ALL, "bad: demo 1.3: there are no wheels, only sources"),
    ],
)
def test_ends_that_can_not_be_right(good: str, bad: str, find: Find, message: str) -> None:
    """Equal, swapped, unreadable and wheel-less ends are refused in words that help."""
    files = [*(wheel(name) for name in ["1.0", "1.1", "1.2"]), sdist("1.3")]
    with pytest.raises(BadInputError) as caught:
        chosen(files, good, bad, find=find)
    assert message in str(caught.value)
    assert caught.value.field in ("good", "bad")


def test_unknown_version_names_its_neighbours() -> None:
    """Two versions on each side of the one that is missing are named, if they have a wheel here."""
    files = [wheel(name) for name in ["1.0", "1.1", "1.2", "1.4", "1.6"]]
    files.append(wheel("1.5", "cp39-cp39-win_amd64"))
    with pytest.raises(NotFoundError, match=r"nearest are 1\.1, 1\.2, 1\.4, 1\.6$"):
        chosen(files, "1.3", "1.6")


def test_project_without_any_fitting_wheel() -> None:
    """Where nothing fits there are no neighbours to name."""
    files = [wheel("1.0", "cp39-cp39-win_amd64")]
    with pytest.raises(NotFoundError, match="it has none that fit here"):
        chosen(files, "1.3", "1.0")


def test_files_of_other_projects_and_strange_names_are_ignored() -> None:
    """A page's file that is not the project's, or has a path for a name, is never taken."""
    files = [wheel("1.0"), wheel("1.1"), wheel("1.2")]
    foreign = wheel("1.1", name="other")
    crooked = wheel("1.3", "cp311-cp311-manylinux_2_17_x86_64.x/../../../manylinux_2_28_x86_64")
    found = chosen([*files[:1], foreign, crooked, files[2]], "1.0", "1.2")
    assert versions(found) == ["1.0", "1.2"]
    with pytest.raises(BadInputError):
        chosen([*files, crooked], "1.0", "1.3")


def test_target_of_another_python() -> None:
    """Another CPython's wheels rank in its own target only; a malformed version is refused."""
    old = Target.of_python("3.9")
    tag = Tag("cp39", "cp39", next(iter(sorted(old.platforms - {"any"}))))
    assert old.rank([tag]) is not None
    assert Target.of_python("3.12").rank([tag]) is None
    assert not old.allows(">=3.10")
    with pytest.raises(BadInputError, match="'cp39' is not a version"):
        Target.of_python("cp39")


def test_unreadable_requires_python_forbids_nothing() -> None:
    """A specifier nobody can read does not exclude a wheel."""
    assert TARGET.allows(">=3.8.*;what")
