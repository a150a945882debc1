"""perfbisect.core.python_releases: as of when build requirements are chosen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perfbisect.core.python_releases import requirements_date

JUNE_2019 = int(datetime(2019, 6, 8, tzinfo=UTC).timestamp())
JUNE_2024 = int(datetime(2024, 6, 8, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("commit", "python", "date"),
    [
        (JUNE_2019, (3, 7), "2019-06-08"),
        (JUNE_2019, (3, 11), "2022-10-24"),
        (JUNE_2024, (3, 11), "2024-06-08"),
        (JUNE_2019, None, "2019-06-08"),
    ],
)
def test_the_later_of_commit_and_python(
    commit: int, python: tuple[int, int] | None, date: str
) -> None:
    """Requirements are of the commit's date unless the Python is younger."""
    assert requirements_date(commit, python).date().isoformat() == date
