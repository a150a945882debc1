"""When each Python came out: build requirements older than it can't know it."""

from __future__ import annotations

from datetime import UTC, datetime

#: First release of each minor version.
_RELEASED = {
    (3, 8): (2019, 10, 14),
    (3, 9): (2020, 10, 5),
    (3, 10): (2021, 10, 4),
    (3, 11): (2022, 10, 24),
    (3, 12): (2023, 10, 2),
    (3, 13): (2024, 10, 7),
    (3, 14): (2025, 10, 7),
}


def requirements_date(commit: int, python: tuple[int, int] | None) -> datetime:
    """Return as of when build requirements are chosen: the commit's date, or the Python's if later.

    A setuptools of 2019 does not start on a Python of 2022, so that a commit of 2019 is built on it
    with the requirements of the day that this Python came out.

    Args:
        commit: date of the commit, seconds since 1970.
        python: version of the Python that builds; None: not known.
    """
    dated = datetime.fromtimestamp(commit, UTC)
    released = _RELEASED.get(python) if python else None
    return max(dated, datetime(*released, tzinfo=UTC)) if released else dated
