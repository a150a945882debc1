"""Exports of all points: the same as the pages of the API, written without growing memory."""

from __future__ import annotations

import csv
import gc
import tracemalloc
from collections.abc import Iterator

import httpx
import pytest
from tests.helpers.many_points import seed_points
from tests.helpers.serving import API, Site, listening, opened, settings_in, shown_app

#: More than a batch, and four times as many.
FEW, MANY = 1_500, 6_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[int, str]]]:
    """The address of a service with two bisections: one has few points, one has many."""
    settings = settings_in(tmp_path_factory.mktemp("many"))
    with opened(settings) as services:
        bisections = {count: seed_points(services, count, commits=12) for count in (FEW, MANY)}
    with listening(shown_app(settings)) as base:
        yield f"{base}{API}", bisections


def peak_of(url: str) -> tuple[int, int]:
    """Return the most bytes that were held at once while an export came, and its lines."""
    lines = 0
    gc.collect()
    tracemalloc.start()
    try:
        with httpx.stream("GET", url, timeout=120) as answer:
            assert answer.status_code == 200
            for chunk in answer.iter_bytes():
                lines += chunk.count(b"\n")
        return tracemalloc.get_traced_memory()[1], lines
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("path", "extra"),
    [("bisections/{}/points?format=csv", 1), ("points?format=ndjson&bisection={}", 0)],
)
def test_memory_does_not_grow_with_the_rows(
    served: tuple[str, dict[int, str]], path: str, extra: int
) -> None:
    """Four times as many points take about as much memory at once as a few."""
    base, bisections = served
    # What is loaded on the first use is no growth.
    httpx.get(f"{base}/{path.format(bisections[FEW])}", timeout=120)
    few, few_lines = peak_of(f"{base}/{path.format(bisections[FEW])}")
    many, many_lines = peak_of(f"{base}/{path.format(bisections[MANY])}")
    assert (few_lines, many_lines) == (FEW + extra, MANY + extra)
    assert many < 1.5 * few, (few, many)


def test_an_export_is_in_order_of_the_axis_and_whole(site: Site) -> None:
    """Every point that the API lists is in it once, commit after commit."""
    path = f"/bisections/{site.finished.id}/points"
    listed = {each["id"]: each for each in site.json(f"{path}?limit=500")["items"]}
    text = site.client.get(f"{API}{path}?format=csv").text
    rows = list(csv.DictReader(text.splitlines()))
    assert [int(row["position"]) for row in rows] == sorted(
        each["position"] for each in listed.values()
    )
    assert sorted(row["run_id"] for row in rows) == sorted(
        each["run_id"] for each in listed.values()
    )


def test_an_export_of_no_bisection_is_not_begun(site: Site) -> None:
    """An unknown bisection is a problem, not an empty file."""
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    answer = site.client.get(f"{API}/bisections/{unknown}/points?format=csv")
    assert answer.status_code == 404
    assert answer.json()["field"] == "bisection_id"
