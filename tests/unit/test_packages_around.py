"""From the files of a project's page to the wheels that may be of a range of commits."""

from __future__ import annotations

from datetime import UTC, datetime

from packaging.tags import Tag
from pypi_simple import DistributionPackage

from perfbisect.publishing.listing import choose_around
from perfbisect.publishing.target import Target

TARGET = Target((Tag("py3", "none", "any"),), "3.11.4")
FIRST, LAST = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)


def wheel(version: str, day: datetime | None, *, yanked: bool = False) -> DistributionPackage:
    filename = f"demo-{version}-py3-none-any.whl"
    return DistributionPackage(
        filename=filename,
        url=f"https://index.example/{filename}",
        project="demo",
        version=version,
        package_type="wheel",
        digests={"sha256": "a" * 64},
        requires_python=None,
        has_sig=None,
        is_yanked=yanked,
        upload_time=day,
    )


def test_wheels_are_chosen_by_their_dates() -> None:
    """Whatever was published between the dates is taken, in the order of publication."""
    files = [
        wheel("2.0", datetime(2026, 3, 20, tzinfo=UTC)),
        wheel("2.1.dev20260302", datetime(2026, 3, 2, tzinfo=UTC)),
        wheel("1.0", datetime(2026, 2, 28, tzinfo=UTC)),
        wheel("3.0", datetime(2026, 4, 1, tzinfo=UTC)),
        wheel("1.9", datetime(2026, 3, 10, tzinfo=UTC), yanked=True),
    ]
    found = choose_around("demo", files, FIRST, LAST, TARGET)
    assert [each.version for each in found.wheels] == ["2.1.dev20260302", "2.0"]
    assert found.package == "demo"
    assert found.skipped == ()


def test_an_index_without_dates() -> None:
    """A nightly has the day in its version; what has no date at all is left out and said so."""
    files = [wheel("2.0", None), wheel("2.1.dev20260302", None)]
    found = choose_around("demo", files, FIRST, LAST, TARGET)
    assert [each.version for each in found.wheels] == ["2.1.dev20260302"]
    assert [(each.version, each.reason) for each in found.skipped] == [
        ("2.0", "the index does not tell when it was published")
    ]
