"""Pages in a real browser: drawn, live, operable by keyboard, safe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from tests.helpers.browsing import Tab, chromium, tab
from tests.helpers.conducting import PROJECT, make_conductor, make_repository
from tests.helpers.scenes import seed_experiment
from tests.helpers.seeding import Seed
from tests.helpers.serving import listening, opened, settings_in, shown_app
from tests.helpers.tokens import guarded

from perfbisect.api import create_app
from perfbisect.conductor import Conductor
from perfbisect.core.access import Scope
from perfbisect.core.states import BisectionState, Outcome, WorkState
from perfbisect.services import Services
from perfbisect.store import bisections
from perfbisect.store.jobs import experiment
from perfbisect.store.tables import ExperimentRow
from perfbisect.testing import ScriptedBuilder, ScriptedRunner

pytestmark = pytest.mark.browser

ATTACK = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@dataclass
class Live:
    """A listening service, and hands on its database."""

    url: str
    services: Services
    finished: Seed
    running: Seed
    experiment: str

    @property
    def paths(self) -> list[str]:
        finished, running = self.finished, self.running
        return [
            "/",
            "/new",
            f"/bisections/{finished.id}",
            f"/bisections/{running.id}",
            f"/bisections/{finished.id}/commits/31",
            f"/logs/builds/{finished.known_build}",
            f"/logs/runs/{running.known_run}",
            f"/logs/builds/{finished.known_build}?q=build",
            "/points?benchmark=resnet50-train",
            "/wheels",
            "/hosts",
            "/experiments",
            "/login",
            f"/experiments/{self.experiment}",
            "/about",
            "/no-such-page",
        ]


@pytest.fixture
def live(tmp_path: Path, seeded: tuple[Path, Seed, Seed]) -> Iterator[Live]:
    data, finished, running = seeded
    settings = settings_in(tmp_path)
    shutil.copytree(data, settings.data_dir)
    with opened(settings) as services, listening(shown_app(settings)) as url:
        experiment = seed_experiment(finished.on(services))
        yield Live(url, services, finished.on(services), running.on(services), experiment)


@pytest.fixture
def window(browser: Browser, live: Live) -> Iterator[Tab]:
    with tab(browser, live.url) as opened:
        yield opened


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1360), ("dark", 1360), ("light", 360), ("dark", 2000)]
)
def test_every_page_is_drawn_without_a_complaint(
    browser: Browser, live: Live, scheme: str, width: int
) -> None:
    """Light, dark, narrow, wide: no error, no violation of the policy, nothing sticks out."""
    size = {"width": width, "height": 900}
    with tab(browser, live.url, viewport=size, color_scheme=scheme) as window:
        for path in live.paths:
            page = window.open(path)
            expect(page.locator("h1")).to_be_visible()
            if "/bisections/" in path and "/commits/" not in path:
                expect(page.locator(".chart canvas")).to_have_count(2)
            assert overflow(page) <= 0, path
            if path == "/no-such-page":
                window.errors.clear()  # the browser reports the status itself
            window.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, live: Live, scheme: str) -> None:
    """Contrast, names, roles and structure of every page are as axe wants them."""
    with tab(browser, live.url, color_scheme=scheme) as window:
        for path in live.paths:
            page = window.open(path)
            if "/bisections/" in path and "/commits/" not in path:
                expect(page.locator(".chart canvas")).to_have_count(2)
            found = Axe().run(page)
            assert found.violations_count == 0, (path, found.generate_report())


def test_nothing_moves_when_the_page_comes_alive(window: Tab, live: Live) -> None:
    """The chart takes the place that was kept for it: no layout shift while loading."""
    page = window.open(f"/bisections/{live.finished.id}")
    expect(page.locator(".chart canvas")).to_have_count(2)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.shifted") < 0.01


def test_the_page_follows_to_the_verdict_without_reload(window: Tab, live: Live) -> None:
    """What the conductor writes appears by itself: values, decisions, at last the verdict."""
    seed = live.running
    page = window.open(f"/bisections/{seed.id}")
    page.evaluate("window.sameDocument = true")
    expect(page.locator("#measured tbody tr")).to_have_count(3)
    page.locator("#work summary").first.click()
    seed.run(30, reason="the other half")
    seed.believe({30: 0.4})
    expect(page.locator("#measured tbody tr")).to_have_count(4)
    expect(page.locator("#decisions")).to_contain_text("the other half")
    expect(page.locator("#work details").first).to_have_attribute("open", "")
    seed.run(31)
    seed.finish(Outcome.CULPRITS, [(30, 31)])
    expect(page.locator("h1")).to_contain_text("is a regression")
    expect(page.locator(".culprit")).to_have_count(1)
    expect(page.locator("#page")).to_have_attribute("data-state", "finished")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert page.evaluate("window.sameDocument")
    window.check()


def test_the_chart_follows_too(window: Tab, live: Live) -> None:
    """A commit measured while the page is open can be read off the chart."""
    seed = live.running
    page = window.open(f"/bisections/{seed.id}")
    page.get_by_role("application").focus()
    seed.run(40)
    seed.believe({30: 0.4})
    expect(page.locator("#chart-box")).to_have_attribute("data-points", "8")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#readout")).to_contain_text("Position 40")


def test_a_bisection_is_cancelled_by_its_button(window: Tab, live: Live) -> None:
    """One click cancels; the page says so and the button is gone."""
    page = window.open(f"/bisections/{live.running.id}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("h1")).to_contain_text("Cancelling")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    window.check()


def test_everything_is_reached_by_keyboard(window: Tab, live: Live) -> None:
    """Tab reaches the chart, arrows read it, Enter opens the commit, links go back."""
    page = window.open(f"/bisections/{live.finished.id}")
    chart = page.get_by_role("application")
    expect(chart).to_be_visible()
    for _ in range(30):
        page.keyboard.press("Tab")
        if chart.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Home")
    expect(page.locator("#readout")).to_contain_text("Position 0")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#readout")).to_contain_text("Position 12")
    expect(page.locator("#readout")).to_contain_text("95% interval")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live.url}/bisections/{live.finished.id}/commits/12")
    window.check()


def test_a_click_on_the_chart_opens_the_commit(window: Tab, live: Live) -> None:
    """Clicking near a commit opens it; dragging zooms instead."""
    page = window.open(f"/bisections/{live.finished.id}")
    chart = page.get_by_role("application")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50, steps=5)
    page.mouse.up()
    expect(page).to_have_url(f"{live.url}/bisections/{live.finished.id}")
    page.mouse.click(box["x"] + 3, box["y"] + 50)
    page.wait_for_url("**/commits/*")
    # The axis begins at position 9 now: the first commit in sight is 12.
    assert page.url.endswith("/commits/12")


def test_the_verdict_is_there_without_javascript(browser: Browser, live: Live) -> None:
    """Without scripts: the sentence, a drawn chart, the table; and cancelling still works."""
    with tab(browser, live.url, java_script_enabled=False) as window:
        page = window.open(f"/bisections/{live.finished.id}")
        expect(page.locator("h1")).to_contain_text("2 steps explain the change")
        expect(page.locator("svg.fallback")).to_be_visible()
        expect(page.locator("#measured")).to_contain_text("does not build or run")
        page = window.open(f"/bisections/{live.running.id}")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("h1")).to_contain_text("Cancelling")


def test_a_log_is_followed_while_it_grows(window: Tab, live: Live) -> None:
    """Lines appear as they are written, with their colours and without other escapes."""
    seed = live.running
    page = window.open(f"/logs/runs/{seed.known_run}")
    expect(page.locator("#log")).to_have_text("epoch 1\n")
    log = live.services.settings.logs_dir / f"{seed.known_run}.log"
    with log.open("a") as file:
        file.write("\x1b[32mepoch 2\x1b[0m\nimages/sec: 42\n")
    expect(page.locator("#log")).to_have_text("epoch 1\nepoch 2\nimages/sec: 42\n")
    expect(page.locator("#log .f-2")).to_have_text("epoch 2")
    window.check()


def test_attacks_are_shown_as_text(window: Tab, live: Live) -> None:
    """Messages, authors, hosts, reasons and logs that are attacks run nothing and are readable."""
    seed = Seed(
        live.services,
        name=ATTACK,
        host=ATTACK,
        author=ATTACK,
        subjects=dict.fromkeys(range(7), ATTACK),
        n=6,
        steps={3: 0.5},
    )
    seed.submit(requested_by=ATTACK)
    seed.start()
    for position in (0, 6, 2, 3):
        seed.run(position, reason=ATTACK, log=ATTACK + "\n")
    seed.build(4, state=WorkState.FAILED, cause=ATTACK)
    seed.finish(Outcome.CULPRITS, [(2, 3)])
    for path in (
        f"/bisections/{seed.id}",
        f"/bisections/{seed.id}/commits/3",
        f"/logs/runs/{seed.known_run}",
        "/",
        "/hosts",
        "/points",
    ):
        page = window.open(path)
        expect(page.get_by_text("onerror=alert(1)").first).to_be_attached()
        window.check()
    page = window.open(f"/bisections/{seed.id}")
    page.get_by_role("application").focus()
    page.keyboard.press("Home")
    expect(page.locator("#readout")).to_contain_text("onerror=alert(1)")
    window.check()


def test_a_form_is_followed_to_its_verdict(browser: Browser, tmp_path: Path) -> None:
    """Filled in by keyboard, watched live to the verdict, then culprit and log are opened."""
    repository = make_repository(tmp_path / "repository", 12)
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    settings = settings_in(
        tmp_path, project_dir=tmp_path, allowed_repositories=[str(repository.path)]
    )

    def value(sha: str) -> float:
        return 9000.0 if repository.position(sha) < 7 else 4500.0

    def make(services: Services) -> Conductor:
        runner = ScriptedRunner(value, seconds=0.05)
        return make_conductor(services, ScriptedBuilder(seconds=0.05), runner, tmp_path)

    with listening(create_app(settings, make=make)) as url, tab(browser, url) as window:
        page = window.open("/")
        expect(page.get_by_role("heading", name="No bisections yet")).to_be_visible()
        page.get_by_role("link", name="New bisection").first.click()
        for label, text in {
            "Repository": repository.path,
            "Good revision": repository.shas[0],
            "Bad revision": repository.shas[-1],
            "Recipe": "scripted",
            "Benchmark": "scripted",
        }.items():
            page.get_by_label(label, exact=True).focus()
            page.keyboard.type(str(text))
            page.keyboard.press("Tab")
        expect(page.locator("#equivalent")).to_contain_text("--benchmark scripted")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("is a regression", timeout=60_000)
        expect(page.locator("#page")).to_have_attribute("data-state", "finished")
        page.locator(".culprit h3 a").click()
        expect(page.locator("h1")).to_have_text("commit 7")
        page.get_by_role("link", name="log").first.click()
        expect(page.locator("#log")).to_contain_text("value: 4500")
        window.check()


def test_an_experiment_is_followed_without_reload(window: Tab, live: Live) -> None:
    """What happens to an experiment appears on its page by itself, to the end."""
    made = seed_experiment(live.finished, finished=False)
    page = window.open(f"/experiments/{made}")
    page.evaluate("window.sameDocument = true")
    expect(page.locator("#page")).to_have_attribute("data-state", "running")
    with live.services.database.write() as session:
        row = session.get_one(ExperimentRow, made)
        row.state, row.outcome = BisectionState.FINISHED, Outcome.ANSWERED
        row.verdict = {**(row.verdict or {}), "sentence": "Answered: it came back."}
        bisections.add_event(session, experiment(made), "finished", {})
    expect(page.locator("h1")).to_contain_text("it came back")
    expect(page.locator("#page")).to_have_attribute("data-state", "finished")
    assert page.evaluate("window.sameDocument")
    window.check()


def test_an_experiment_is_followed_where_streams_are_held_back(window: Tab, live: Live) -> None:
    """Behind a proxy that passes no stream on, the page looks for itself now and then."""
    window.page.route("**/changes?*", lambda route: None)
    made = seed_experiment(live.finished, finished=False)
    page = window.open(f"/experiments/{made}")
    page.evaluate("window.sameDocument = true")
    with live.services.database.write() as session:
        row = session.get_one(ExperimentRow, made)
        row.state, row.outcome = BisectionState.FINISHED, Outcome.ANSWERED
        row.verdict = {**(row.verdict or {}), "sentence": "Answered: it came back."}
    expect(page.locator("h1")).to_contain_text("it came back")
    assert page.evaluate("window.sameDocument")


def test_one_logs_in_by_token_and_out_again(browser: Browser, tmp_path: Path) -> None:
    """A stranger is led to the login and back; an admin sees tokens, and what was done."""
    with guarded(tmp_path) as door:
        settings = door.services.settings
        with listening(shown_app(settings)) as url, tab(browser, url) as window:
            page = window.open("/audit")
            expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            page.keyboard.type(door.secrets[Scope.ADMIN])
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Who did what")).to_be_visible()
            expect(page.get_by_role("cell", name="login", exact=True)).to_be_visible()
            assert Axe().run(page).violations_count == 0
            page = window.open("/tokens")
            assert Axe().run(page).violations_count == 0
            page.get_by_role("button", name="Revoke a-read").click()
            expect(page.get_by_text("revoked")).to_be_visible()
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            window.check()
