"""Screenshots of the main pages of a running service, for docs/pages.md.

    perfbisect demo --serve --port 8080
    python docs/make_screenshots.py http://127.0.0.1:8080

The newest bisection with culprits is shown. Needs Chromium and the development dependencies.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}


def newest_answer(url: str) -> dict[str, Any]:
    """Return the newest bisection that found culprits."""
    address = f"{url}/api/v1/bisections?outcome=culprits&limit=1"
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - the caller's own service
        items = json.load(answer)["items"]
    if not items:
        sys.exit(f"{url} has no bisection with culprits: run 'perfbisect demo --serve' first")
    chosen: dict[str, Any] = items[0]
    return chosen


def shoot(page: Page, url: str, name: str, *, whole: bool) -> None:
    """Write one page as docs/images/NAME.png."""
    page.goto(url)
    page.wait_for_load_state("networkidle")
    if "/bisections/" in url and "/commits/" not in url:
        page.locator(".chart canvas").last.wait_for()
    page.screenshot(path=IMAGES / f"{name}.png", full_page=whole)


def main(url: str) -> None:
    """Write all of them."""
    IMAGES.mkdir(exist_ok=True)
    answer = newest_answer(url)
    bisection = f"{url}/bisections/{answer['id']}"
    with urllib.request.urlopen(f"{url}/api/v1/bisections/{answer['id']}") as told:  # noqa: S310
        verdict = json.load(told)
    commit = f"{bisection}/commits/{verdict['culprits'][-1]['position']}"
    experiment = f"{url}/experiments/{verdict['proof']['experiment']}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, address, size, scheme, whole in (
            ("list", f"{url}/", WIDE, "light", False),
            ("bisection", bisection, WIDE, "light", True),
            ("bisection-dark", bisection, WIDE, "dark", False),
            ("bisection-narrow", bisection, NARROW, "light", False),
            ("commit", commit, WIDE, "light", False),
            ("experiment", experiment, WIDE, "light", False),
            ("hosts", f"{url}/hosts", WIDE, "light", False),
            ("points", f"{url}/points?benchmark={verdict['benchmark']}", WIDE, "dark", False),
            ("new", f"{url}/new", WIDE, "light", True),
        ):
            context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            shoot(context.new_page(), address, name, whole=whole)
            context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
