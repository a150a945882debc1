"""The page of a nightly series in a real browser: drawn, by keyboard, in the dark, unscripted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from tests.helpers.browsing import chromium, tab
from tests.helpers.serving import listening, opened, settings_in, shown_app

from perfbisect import series
from perfbisect.nightly.points import NightPoint

pytestmark = pytest.mark.browser

FIRST = date(2019, 7, 1)
#: First day of each level, images/s.
LEVELS = ((0, 9000.0), (30, 2900.0), (45, 7600.0))
MISSING = (31, 32, 33)


@dataclass
class Shown:
    url: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    directory = tmp_path_factory.mktemp("series")
    settings = settings_in(directory, project_dir=directory)
    with opened(settings) as services:
        definition = series.SeriesDefinition(unit="images/s")
        series.record_points(services, "summer", points(), source="api", definition=definition)
        series.search(services)
    with listening(shown_app(settings)) as url:
        yield Shown(url)


def points() -> list[NightPoint]:
    random = np.random.default_rng(7)
    return [
        NightPoint(
            night=FIRST + timedelta(days=day),
            value=next(level for first, level in LEVELS[::-1] if day >= first)
            * math.exp(0.01 * random.standard_normal()),
            version=f"1.15.0.dev{FIRST + timedelta(days=day):%Y%m%d}",
        )
        for day in range(55)
        if day not in MISSING
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_series_is_drawn_and_read_by_keyboard(
    browser: Browser, shown: Shown, scheme: str
) -> None:
    """The chart is drawn, arrow keys read night after night, and nothing is against the rules."""
    with tab(browser, shown.url, color_scheme=scheme) as opened_tab:
        page = opened_tab.open("/series")
        page.get_by_role("link", name="summer").click()
        page.wait_for_selector("#chart-box[data-nights='52']")
        box = page.locator("#chart-box canvas")
        drawn = box.evaluate(
            "(c) => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        assert drawn > 20
        page.locator(".u-over").focus()
        page.keyboard.press("Home")
        expect(page.locator("#readout")).to_contain_text("2019-07-01")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#readout")).to_contain_text("2019-07-02")
        expect(page.get_by_role("heading", name="2,900 images/s")).to_have_count(0)
        expect(page.locator("#changes-title + ul li")).to_have_count(2)
        violations = Axe().run(page).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []
        opened_tab.check()


def test_the_series_is_readable_without_scripts(browser: Browser, shown: Shown) -> None:
    """Without JavaScript there are the drawing, the changes in words, and a table of the nights."""
    with tab(browser, shown.url, java_script_enabled=False) as opened_tab:
        page = opened_tab.open("/series/summer")
        assert page.locator("svg.fallback .p-band").count() == 2
        assert page.locator("svg.fallback .p-missing").count() == 1
        expect(page.get_by_text("No value: 2019-08-01 to 2019-08-03")).to_be_visible()
        expect(page.get_by_text("still 1").first).to_be_visible()
        assert page.locator("#nights-title ~ .scroll tbody tr").count() == 52


def test_the_series_fits_a_phone(browser: Browser, shown: Shown) -> None:
    """On a narrow screen nothing but tables is wider than the page."""
    with tab(browser, shown.url, viewport={"width": 390, "height": 844}) as opened_tab:
        page = opened_tab.open("/series/summer")
        page.wait_for_selector("#chart-box[data-nights='52']")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        opened_tab.check()
