"""Pages without a browser: what is on them, escaping, forms."""

from __future__ import annotations

import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.helpers.scenes import seed_experiment
from tests.helpers.seeding import Seed
from tests.helpers.serving import Site

from perfbisect.core.states import Outcome, WorkState
from perfbisect.security import CSRF_COOKIE, CSRF_FIELD
from perfbisect.web.plot import nice_ticks, plot_of
from perfbisect.web.templating import STATIC_DIR, roughly

ATTACK = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """Collects elements, their attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(site: Site, path: str, status: int = 200) -> Reader:
    answer = site.client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == status, answer.text
    return Reader(answer.text)


def pages(site: Site) -> list[str]:
    """Return the address of every kind of page."""
    finished, running = site.finished.id, site.running.id
    build = site.json(f"/bisections/{finished}/builds")[0]["id"]
    run = site.json(f"/bisections/{running}/runs")[-1]["id"]
    return [
        "/",
        "/?state=running",
        "/?q=nothing-like-this",
        "/new",
        f"/bisections/{finished}",
        f"/bisections/{running}",
        f"/bisections/{finished}/commits/0",
        f"/bisections/{finished}/commits/29",
        f"/bisections/{finished}/commits/5",
        f"/logs/builds/{build}",
        f"/logs/runs/{run}",
        "/experiments",
        f"/experiments/{seed_experiment(site.finished)}",
        "/points",
        "/wheels",
        "/hosts",
        "/about",
    ]


def test_every_page_is_there_and_has_one_heading(site: Site) -> None:
    """Every page renders, names itself, and has exactly one first-level heading."""
    for path in pages(site):
        page = page_of(site, path)
        tags = [tag for tag, _ in page.elements]
        assert tags.count("h1") == 1, path
        assert tags.count("main") == 1, path
        assert tags.count("title") == 1, path


def test_no_page_needs_what_the_policy_forbids(site: Site) -> None:
    """No inline script, style or handler, and nothing from elsewhere: the policy forbids them."""
    for path in pages(site):
        for tag, attributes in page_of(site, path).elements:
            assert "style" not in attributes, (path, tag)
            assert not [name for name in attributes if name.startswith("on")], (path, tag)
            assert tag != "style", path
            if tag == "script":
                assert (attributes.get("src") or "").startswith("/static/"), path
            if tag in ("link", "img"):
                assert not (attributes.get("href") or "").startswith("http"), path


def test_every_link_leads_somewhere(site: Site) -> None:
    """Every link on the pages is answered."""
    seen: set[str] = set()
    for path in pages(site):
        for tag, attributes in page_of(site, path).elements:
            target = attributes.get("href") or attributes.get("src") or ""
            if tag in ("a", "link", "script") and target.startswith("/"):
                seen.add(target)
    for target in sorted(seen):
        assert site.client.get(target).status_code == 200, target


def test_the_verdict_is_readable_without_javascript(site: Site) -> None:
    """Sentence, culprits, chart, measured commits, decisions and cost are in the page itself."""
    page = page_of(site, f"/bisections/{site.finished.id}")
    assert "2 steps explain the change" in page.text
    assert "One of 3 commits" in page.text
    assert "✓ verified, 4 fresh runs" in page.text
    assert "does not build or run" in page.text
    assert "interleaved with the bad end" in page.text
    assert "10 builds, 27 runs" in page.text
    dots = [attrs["d"] or "" for _, attrs in page.elements if attrs.get("class") == "p-dots"]
    assert dots[0].count("M") == site.finished.runs - 1  # one is rejected


def test_a_list_of_steps_begins_with_the_commits_own_name(site: Site) -> None:
    """A sentence that begins with the name of a commit keeps it as it is, without a capital."""
    culprit = site.finished.sha(19)[:10]
    page = page_of(site, f"/bisections/{site.finished.id}")
    assert f"{culprit} a regression" in page.text
    assert culprit.capitalize() not in page.text


def test_points_of_one_name_and_several_definitions_are_told_apart(site: Site) -> None:
    """Values of different definitions are not drawn together; each has a link that draws it."""
    page = page_of(site, "/points?benchmark=resnet50-train")
    assert "Several definitions have this name" in page.text
    link = f"/points?benchmark={site.finished.benchmark_digest}"
    assert link in [attrs.get("href") for _, attrs in page.elements]
    assert ("svg", "Values over time; the table below has them as text") in [
        (tag, attrs.get("aria-label")) for tag, attrs in page_of(site, link).elements
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "1s"), (44, "44s"), (599, "10m"), (2699, "45m"), (7300, "2h"), (400_000, "4d15h")],
)
def test_estimates_have_no_more_digits_than_they_deserve(seconds: float, words: str) -> None:
    """What is left is told roughly: nobody knows it to the second."""
    assert roughly(seconds) == words


def test_a_running_page_shows_what_is_under_way(site: Site) -> None:
    """While it runs, the page links the live logs of what is under way and can be cancelled."""
    page = page_of(site, f"/bisections/{site.running.id}")
    assert "Building position 36" in page.text
    assert "live log" in page.text
    actions = [attrs.get("action") for tag, attrs in page.elements if tag == "form"]
    assert actions == [f"/bisections/{site.running.id}/cancel"]


def test_a_build_shows_how_far_it_is(site: Site) -> None:
    """A log that tells of steps makes a bar, on the bisection's page and on that of the log."""
    builds = site.json(f"/bisections/{site.running.id}/builds")
    build = next(each["id"] for each in builds if each["state"] == "running")
    paths = [f"/bisections/{site.running.id}", f"/logs/builds/{build}"]
    assert "<progress" not in site.client.get(paths[0]).text
    log = site.services.settings.logs_dir / f"{build}.log"
    log.write_text("[1,250 / 5,000] Compiling conv.cc\n")
    for path in paths:
        page = page_of(site, path)
        bars = [attrs for tag, attrs in page.elements if tag == "progress"]
        assert [bar["value"] for bar in bars] == ["0.25"]
        assert "1,250 of 5,000 steps" in page.text


def test_experiments_show_their_arms(site: Site) -> None:
    """An experiment shows each arm's change, what can't be applied, and where it belongs."""
    experiment = seed_experiment(site.finished)
    page = page_of(site, f"/experiments/{experiment}")
    assert "reverting it brings the value back" in page.text
    assert "revert on the later end" in page.text
    assert "+60.4%" in page.text
    assert "kernels/conv.cc" in page.text
    listed = page_of(site, "/experiments")
    assert "proves a bisection's culprits" in listed.text
    culprits = page_of(site, f"/bisections/{site.finished.id}")
    assert "proven by revert" in culprits.text
    targets = {attrs.get("href") for _, attrs in culprits.elements}
    assert f"/experiments/{experiment}" in targets


def test_experiments_are_cancelled_by_their_form(site: Site) -> None:
    """A running experiment is cancelled with the page's token only; attacks on it are text."""
    experiment = seed_experiment(site.running, finished=False, name=ATTACK, failure=ATTACK)
    path = f"/experiments/{experiment}"
    assert ATTACK in page_of(site, path).text
    assert "img" not in [tag for tag, _ in page_of(site, path).elements]
    assert site.client.post(f"{path}/cancel", data={CSRF_FIELD: "guess"}).status_code == 403
    done = site.client.post(f"{path}/cancel", data={CSRF_FIELD: token_of(site, path)})
    assert (done.status_code, done.headers["location"]) == (303, path)
    assert "form" not in [tag for tag, _ in page_of(site, path).elements]


def test_the_empty_list_teaches(site: Site) -> None:
    """Before the first bisection, the list says how to start one."""
    page = page_of(site, "/?q=nothing-like-this")
    assert "Nothing fits these filters" in page.text


def hostile(site: Site) -> Seed:
    """A bisection in which every text that others write is an attack."""
    seed = Seed(
        site.services,
        name=ATTACK,
        host=f"host-{ATTACK}",
        author=ATTACK,
        subjects=dict.fromkeys(range(7), ATTACK),
        n=6,
        steps={3: 0.5},
    )
    seed.submit(requested_by=ATTACK, origin="api")
    seed.start()
    for position in (0, 6, 2, 3):
        seed.run(position, reason=ATTACK, log=f"{ATTACK}\n\x1b]0;title\x07{ATTACK}\n")
    seed.run(3, rejected=ATTACK)
    seed.build(4, state=WorkState.FAILED, cause=ATTACK, log=ATTACK)
    seed.finish(Outcome.CULPRITS, [(2, 3)], reason=ATTACK)
    return seed


def test_what_others_write_is_text(site: Site) -> None:
    """Attacks in messages, authors, hosts, causes and logs appear as text on every page."""
    seed = hostile(site)
    runs = site.json(f"/bisections/{seed.id}/runs")
    builds = site.json(f"/bisections/{seed.id}/builds")
    for path in (
        "/",
        f"/?q={ATTACK}",
        f"/bisections/{seed.id}",
        f"/bisections/{seed.id}/commits/3",
        f"/bisections/{seed.id}/commits/4",
        f"/logs/runs/{runs[0]['id']}",
        f"/logs/builds/{builds[-1]['id']}",
        "/points",
        "/hosts",
        "/new?repository=" + ATTACK,
        "/new/equivalent?repository=" + ATTACK,
    ):
        page = page_of(site, path)
        assert not [attrs for tag, attrs in page.elements if tag == "img"], path
        scripts = [attrs for tag, attrs in page.elements if tag == "script"]
        assert all((attrs.get("src") or "").startswith("/static/") for attrs in scripts), path
        everything = page.text + " ".join(
            value or "" for _, attrs in page.elements for value in attrs.values()
        )
        assert "onerror=alert(1)" in everything, path


def token_of(site: Site, path: str) -> str:
    """Open a form and return its token; the client keeps the cookie."""
    fields = [
        attrs
        for tag, attrs in page_of(site, path).elements
        if tag == "input" and attrs.get("name") == CSRF_FIELD
    ]
    return fields[0]["value"] or ""


def test_cancelling_needs_the_forms_token(site: Site) -> None:
    """Without the token of a page a form changes nothing; with it, the bisection is cancelled."""
    path = f"/bisections/{site.running.id}"
    token = token_of(site, path)
    assert site.client.post(f"{path}/cancel", data={}).status_code == 403
    assert site.client.post(f"{path}/cancel", data={CSRF_FIELD: "guess"}).status_code == 403
    assert site.json(f"/bisections/{site.running.id}")["cancel_requested_at"] is None
    done = site.client.post(f"{path}/cancel", data={CSRF_FIELD: token})
    assert (done.status_code, done.headers["location"]) == (303, path)
    page = page_of(site, path)
    assert "Cancelling" in page.text
    assert "form" not in [tag for tag, _ in page.elements]


def test_the_form_says_what_is_wrong_and_keeps_what_was_typed(site: Site) -> None:
    """A form that can't be right comes back with its values, and the field that is wrong."""
    token = token_of(site, "/new")
    data = {"repository": "elsewhere", "good": "v1", "bad": "v2", CSRF_FIELD: token}
    answer = site.client.post(
        "/new", data={**data, "recipe": "pip-wheel", "benchmark": "import-time"}
    )
    assert answer.status_code == 422
    page = Reader(answer.text)
    inputs = {attrs.get("name"): attrs for tag, attrs in page.elements if tag == "input"}
    assert inputs["repository"]["value"] == "elsewhere"
    assert inputs["repository"]["aria-invalid"] == "true"
    assert "is not known here" in page.text
    missing = Reader(site.client.post("/new", data=data).text)
    assert "recipe: is needed" in missing.text


def test_the_form_needs_its_token(site: Site) -> None:
    """A form from elsewhere is refused before anything in it is looked at."""
    assert site.client.post("/new", data={"repository": "x"}).status_code == 403


def test_the_form_shows_its_equivalents(site: Site) -> None:
    """What is filled in is shown as a command and as a request, quoted for the shell."""
    typed = "repository=framework&good=v1.0&bad=it's&threshold=70%25&max_runs=9&find=all"
    page = page_of(site, f"/new?{typed}&option_xla=on&option_cuda=off&option_mkl=")
    assert "--repo framework" in page.text
    assert "--threshold 70%" in page.text
    assert """--bad 'it'"'"'s'""" in page.text
    assert '"max_runs": 9' in page.text
    assert "--no-prove" in page.text
    assert '"prove": false' in page.text
    assert "--recipe-option xla=on" in page.text
    assert '"xla": true' in page.text
    assert '"cuda": false' in page.text
    assert "mkl=" not in page.text
    assert "prove" not in page_of(site, f"/new/equivalent?{typed}&prove=yes").text
    assert "prove" not in page_of(site, "/new/equivalent").text


def test_the_form_takes_packages_and_companions(site: Site) -> None:
    """A package needs neither repository nor recipe; a companion is bisected with one wheel."""
    typed = "package=tf-nightly-cpu&good=2026-04-01&bad=2026-05-05&benchmark=import-time&find=all"
    page = page_of(site, f"/new?{typed}")
    assert "--package tf-nightly-cpu" in page.text
    assert "--repo" not in page.text
    assert "--recipe " not in page.text
    inputs = {attrs.get("name"): attrs for tag, attrs in page.elements if tag == "input"}
    assert inputs["package"]["value"] == "tf-nightly-cpu"
    assert not [name for name in ("package", "repository", "recipe") if "required" in inputs[name]]
    told = page_of(site, f"/new/equivalent?{typed}&bisect_companion=models&at=2026-04-01").text
    assert "--bisect-companion models" in told
    assert '"at": "2026-04-01"' in told
    data = dict(pair.split("=") for pair in typed.split("&"))
    answer = site.client.post("/new", data={**data, CSRF_FIELD: token_of(site, "/new")})
    assert answer.status_code == 422
    assert "tf-nightly-cpu" in Reader(answer.text).text
    assert "PERFBISECT_ALLOWED_PACKAGES" in answer.text


def test_tokens_are_not_readable_by_scripts(site: Site) -> None:
    """The cookie of the forms is http-only and stays on this site."""
    cookie = site.client.get("/new").headers["set-cookie"]
    assert cookie.startswith(CSRF_COOKIE)
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_vendored_files_are_what_the_list_says() -> None:
    """Every vendored file is listed with its version, and has the digest of the list."""
    vendor = STATIC_DIR / "vendor"
    listed: list[dict[str, Any]] = json.loads((vendor / "vendored.json").read_text())["files"]
    assert {entry["file"] for entry in listed} == {
        path.name for path in vendor.iterdir() if path.name != "vendored.json"
    }
    for entry in listed:
        assert hashlib.sha256((vendor / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"])


def test_static_files_are_kept_by_content(site: Site) -> None:
    """A file asked for by its content's address may be kept for good, otherwise it is checked."""
    page = page_of(site, "/")
    style = next(
        attrs["href"]
        for tag, attrs in page.elements
        if tag == "link" and attrs.get("rel") == "stylesheet"
    )
    assert "immutable" in site.client.get(str(style)).headers["cache-control"]
    assert site.client.get("/static/style.css").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (3, 3, [3]),
        (0.011, 0.029, [0.015, 0.02, 0.025]),
        (-50, 50, [-40, -20, 0, 20, 40]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    """Ticks are multiples of 1, 2 or 5 within the interval."""
    assert nice_ticks(low, high, 5) == ticks


def test_a_chart_of_one_point_is_drawn() -> None:
    """One point, without any spread, has a place on the chart; no points give no chart."""
    empty: dict[str, Any] = {
        "points": {"position": [], "value": [], "rejected": []},
        "levels": {"position": [], "mean": [], "low": [], "high": []},
        "posterior": {"position": [], "probability": []},
        "steps": [],
        "unbuildable": [],
        "threshold": None,
        "last": 4,
    }
    assert plot_of(empty) is None
    one = plot_of({**empty, "points": {"position": [2], "value": [5.0], "rejected": [0]}})
    assert one is not None
    assert one.dots.startswith("M504.0 ")
    assert (one.dots.count("M"), one.line) == (1, "")
