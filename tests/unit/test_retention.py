"""perfbisect.core.retention: what may go, by age and by size."""

from __future__ import annotations

import pytest

from perfbisect.core.retention import Item, Kind, Limit, choose

DAY = 86_400.0
NOW = 1000 * DAY


def item(name: str, size: int, days: float, needed: str = "") -> Item:
    return Item(Kind.WHEEL, name, size, NOW - days * DAY, name, needed)


KEPT = (
    item("new", 10, 1),
    item("needed", 100, 400, needed="an open bisection needs it"),
    item("old", 20, 40),
    item("older", 30, 50),
)


@pytest.mark.parametrize(
    ("limit", "gone"),
    [
        (Limit(), []),
        (Limit(days=45), ["older"]),
        (Limit(days=30), ["older", "old"]),
        (Limit(size=160), []),
        (Limit(size=159), ["older"]),
        (Limit(size=115), ["older", "old"]),
        (Limit(size=0), ["older", "old", "new"]),
        (Limit(size=130, days=45), ["older"]),
        (Limit(size=120, days=45), ["older", "old"]),
    ],
)
def test_the_longest_unused_go_first(limit: Limit, gone: list[str]) -> None:
    """Age decides first, then what is left must fit; what is needed stays, and takes its room."""
    assert [removal.item.name for removal in choose(KEPT, limit, NOW)] == gone


def test_each_removal_has_its_reason() -> None:
    """People are told why a thing goes."""
    by_age, by_size = choose(KEPT, Limit(size=110, days=45), NOW)
    assert by_age.reason == "not used for 50 days"
    assert "more than may be kept" in by_size.reason
