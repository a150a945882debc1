"""A real browser for tests, which remembers everything that went wrong on a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
]

#: Remembers violations of the content security policy and layout shifts.
_WATCH = """
window.violations = [];
window.shifted = 0;
addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""

# The machine may be busy: what a page shows by itself is given time.
expect.set_options(timeout=60_000)


@dataclass
class Tab:
    """A page, and what went wrong on it."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a page of the service."""
        self.page.goto(self.url + path)
        return self.page

    def check(self) -> None:
        """Insist that nothing went wrong so far."""
        assert self.errors == []
        assert self.page.evaluate("window.violations || []") == []

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def watch(self) -> None:
        """Start to remember."""
        self.page.add_init_script(_WATCH)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        self.page.on("dialog", self._refuse)

    def _refuse(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the system's Chromium; skip where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, url: str, **options: Any) -> Iterator[Tab]:
    """Yield a tab with a profile of its own."""
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    opened = Tab(context.new_page(), url)
    opened.watch()
    yield opened
    context.close()
