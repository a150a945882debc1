"""The rough word about how long a bisection will still take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.helpers.serving import Site

from perfbisect.web.remaining import SEARCH_RUNS, VERIFY_RUNS, doubt, seconds_left


@dataclass
class Work:
    seconds: float | None
    state: str = "succeeded"


def strip(*shares: float) -> dict[str, Any]:
    return {"step_probability": [[number, share] for number, share in enumerate(shares)]}


def test_doubt_is_counted_in_bits() -> None:
    """Eight equal places are three bits; a settled place is none."""
    assert doubt([1 / 8] * 8) == pytest.approx(3)
    assert doubt([0.0, 1.0, 0.995]) == 0


def test_less_doubt_takes_less_time() -> None:
    """Each halving of what is in doubt takes work away, and verification is left at the end."""
    builds, runs = [Work(100)], [Work(10), Work(1000, "failed"), Work(None, "running")]
    left = [seconds_left(strip(*[1 / n] * n), 0, builds, runs) for n in (256, 64, 8, 2)]
    assert all(each is not None for each in left)
    assert left == sorted(left, key=lambda each: each or 0, reverse=True)
    assert len(set(left)) == 4
    assert seconds_left(strip(0.999), 0, builds, runs) == VERIFY_RUNS * 10
    assert seconds_left(strip(0.999), 1, builds, runs) == 0
    assert seconds_left(strip(0.5, 0.5), 1, builds, runs) == 2 * (100 + SEARCH_RUNS * 10)


def test_nothing_is_said_without_knowledge() -> None:
    """Before the ends are measured, or before anything was run, there is no word."""
    assert seconds_left(None, 0, [Work(1)], [Work(1)]) is None
    assert seconds_left(strip(), 0, [Work(1)], [Work(1)]) is None
    assert seconds_left(strip(0.5), 0, [Work(1)], [Work(None, "running")]) is None


def test_the_page_tells_and_leads_on(site: Site) -> None:
    """A running page tells what is left; each page leads to the same request with changes."""
    running = site.client.get(f"/bisections/{site.running.id}").text
    assert "of work left" in running
    page = site.client.get(f"/bisections/{site.finished.id}").text
    assert "of work left" not in page
    again = page.partition('href="/new?')[2].partition('"')[0].replace("&amp;", "&")
    form = site.client.get(f"/new?{again}").text
    assert f'name="good" value="{site.finished.sha(0)[:10]}"' in form
    assert 'name="threshold" value="80%"' in form
    assert '/commits/19#patch">diff</a>' in page
