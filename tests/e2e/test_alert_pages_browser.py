"""The pages of alerts in a real browser: usable by everybody, with and without JavaScript."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from tests.helpers.alert_scenes import dead, explained, held
from tests.helpers.browsing import Tab, chromium, tab
from tests.helpers.seeding import Seed
from tests.helpers.serving import listening, opened, settings_in, shown_app

from perfbisect.services import Services
from perfbisect.store.alert_tables import AlertRow

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@dataclass
class Live:
    """A listening service with a held and an explained alert."""

    url: str
    services: Services
    finished: Seed
    held: str
    explained: str


@pytest.fixture
def live(tmp_path: Path, seeded: tuple[Path, Seed, Seed]) -> Iterator[Live]:
    data, finished, _ = seeded
    settings = settings_in(tmp_path)
    shutil.copytree(data, settings.data_dir)
    with opened(settings) as services, listening(shown_app(settings)) as url:
        waiting = held(services, "waiting")
        dead(services, waiting)
        done = explained(services, finished.on(services))
        yield Live(url, services, finished, waiting, done)


@pytest.fixture
def window(browser: Browser, live: Live) -> Iterator[Tab]:
    with tab(browser, live.url) as opened_tab:
        yield opened_tab


def test_everybody_can_use_the_pages(window: Tab, live: Live) -> None:
    """Axe finds nothing on any page of alerts, and the browser nothing to complain about."""
    for path in ("/alerts", f"/alerts/{live.held}", f"/alerts/{live.explained}",
                 "/alerts/accuracy", "/messages", f"/bisections/{live.finished.id}"):  # fmt: skip
        page = window.open(path)
        found = Axe().run(page)
        assert found.violations_count == 0, (path, found.generate_report())
        window.check()


def test_a_held_alert_is_started_by_its_button(window: Tab, live: Live) -> None:
    """One press starts it; the page then says who did."""
    page = window.open(f"/alerts/{live.held}")
    page.get_by_role("button", name="Bisect now").click()
    expect(page.locator(".verdict .badge")).to_have_text("queued")
    with live.services.database.read() as session:
        assert session.get_one(AlertRow, live.held).by_hand


def test_a_verdict_is_judged_by_its_button(window: Tab, live: Live) -> None:
    """The word is shown on the page, and counts."""
    page = window.open(f"/bisections/{live.finished.id}")
    page.get_by_label("Remark").fill("fixed by reverting it")
    page.get_by_role("button", name="It is right").click()
    expect(page.locator("#feedback")).to_contain_text("fixed by reverting it")
    page = window.open("/alerts/accuracy")
    expect(page.locator("table").first).to_contain_text("100%")
