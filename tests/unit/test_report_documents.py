"""Reports as documents: escaping, proofs, commands, definitions."""

from __future__ import annotations

import json
import shlex
import tomllib
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect import report
from perfbisect.commands.showing import culprit_table
from perfbisect.reports.document import Bullets, Code, Document, Heading, Paragraph, Table
from perfbisect.reports.formats import FORMATS, render_dossier
from perfbisect.reports.markdown_text import escape, to_markdown_text
from perfbisect.reports.reproduction import bisect_command, definitions_text, experiment_command
from perfbisect.reports.web_page import to_web_page

GOOD, BAD, CULPRIT = "a" * 40, "b" * 40, "c" * 40
EVIL = '`</pre><script>alert("x")</script> | [l](http://e.example) @all #1 <!-- *b* \x1b[2J ```'


def proof(verdict: str, **arms: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, **arms}


def arm(word: str, **changes: Any) -> dict[str, Any]:
    plain = {"word": word, "meaning": "m", "change": 1.0, "ci95": [0.9, 1.1], "expected": 1.0}
    return plain | changes


def dossier(**changes: Any) -> dict[str, Any]:
    culprit = {
        "commits": [CULPRIT],
        "subject": EVIL,
        "kind": "regression",
        "before": 8000.0,
        "after": 4000.0,
        "change": -0.5,
        "ci95": [-0.51, -0.49],
        "probability": 0.999,
        "verified": True,
        "before_position": 3,
        "position": 4,
        "proof": proof("proven by revert", revert=arm("proven")),
        **changes,
    }
    verdict = {
        "id": "01TEST",
        "state": "finished",
        "outcome": "culprits",
        "good": {"revision": GOOD, "mean": 8000.0, "ci95": [7900.0, 8100.0], "runs": 4},
        "bad": {"revision": BAD, "mean": 4000.0, "ci95": [3900.0, 4100.0], "runs": 4},
        "culprits": [culprit],
        "positions": {"good": 0, "bad": 9},
        "repository": EVIL,
        "benchmark": "resnet",
        "unit": EVIL,
        "explained": {"total": -0.5, "steps": -0.5},
        "noise": 0.02,
        "error": {"message": EVIL, "lines": [EVIL]},
        "notes": [EVIL],
    }
    place = {"commit": CULPRIT, "subject": EVIL, "mean": 1.0, "ci95": [0.9, 1.1], "runs": 3}
    return {
        "verdict": verdict,
        "request": {
            "repository": "https://e.example/r.git",
            "good": "v1",
            "bad": "master",
            "recipe": "copy; rm -rf /",
            "benchmark": {"name": "inline"},
            "min_effect": "1%",
            "max_runs": 50,
            "find": "all",
            "paths": ["src/a b"],
        },
        "recipe": {"name": 'x"]', "kind": "bazel", "xla": True, "define": {"a b": EVIL}},
        "benchmark": {"name": "inline", "command": EVIL, "unit": "s", "metric": {"skip": 2}},
        "measured": [{**place, "position": 3}, {**place, "position": 4}, {**place, "position": 7}],
        "hosts": [{"name": EVIL, "facts": {"cpu": EVIL, "memory_bytes": 2**33, "cores": 8}}],
        "pythons": ["3.11.7"],
        "wheels": [{"commit": CULPRIT, "filename": EVIL, "sha256": "d" * 64}],
        "builds": [{"commit": CULPRIT, "commands": [EVIL], "image": EVIL, "place": {"gcc": EVIL}}],
        "commands": [{"host": EVIL, "command": ["python", EVIL], "variables": {"A": EVIL}}],
        "decisions": [{"kind": "run", "position": 4, "host": EVIL, "reason": EVIL}],
    }


def shell_words(command: str) -> list[str]:
    """Return the words that a shell sees: it drops a line's end after a backslash."""
    return shlex.split(command.replace("\\\n", ""))


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_page_holds_only_its_own_elements() -> None:
    """Whatever commits and logs say, no element, attribute or address of theirs is in the page."""
    page = Tags(render_dossier(dossier(), "html"))
    allowed = {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "ul", "li"),
        *("strong", "table", "thead", "tbody", "tr", "th", "td", "div", "pre", "details"),
        "summary",
    }
    assert {tag for tag, _ in page.tags} <= allowed
    names = {name for _, attributes in page.tags for name in attributes}
    assert names <= {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "scope",
        "tabindex",
    }
    assert "\x1b" not in "".join(page.words)
    assert '<script>alert("x")</script>' in "".join(page.words)


def test_markdown_keeps_hostile_text_inside_its_cell() -> None:
    """Outside of code blocks nothing is markup, and tables keep their number of columns."""
    lines = render_dossier(dossier(), "md").splitlines()
    fence, rows, width = "", 0, 0
    for line in lines:
        if fence:
            fence = "" if line == fence else fence
            continue
        if line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
            continue
        bare = line.replace("\\\\", "").replace("\\<", "").replace("\\|", "")
        assert "<script" not in bare
        assert "@all" not in bare
        assert "http://" not in bare
        if line.startswith("|"):
            columns = bare.count("|")
            assert columns == width or not width, line
            width, rows = columns, rows + 1
        else:
            width = 0
    assert not fence, "a block of code is not closed"
    assert rows > 10


@given(st.text(max_size=60))
def test_any_text_stays_on_its_line_and_in_its_cell(text: str) -> None:
    """Escaped text has no line breaks, no bare pipe, no bare angle bracket, no bare backtick."""
    safe = escape(text)
    assert len(safe.splitlines()) <= 1
    rest = safe.replace("\\\\", "")
    for sign in "|<`[*_":
        assert rest.count(sign) == rest.count(f"\\{sign}")


@given(st.text(max_size=80))
def test_code_can_not_leave_its_fence(text: str) -> None:
    """Lines of a block of code never end it, however many backticks they hold."""
    lines = to_markdown_text(Document("t", (Code(text),))).splitlines()[2:]
    fence = lines[0]
    assert lines[-1] == fence
    assert all(not line.strip().startswith(fence) for line in lines[1:-1])


def test_every_block_is_rendered_both_ways() -> None:
    """A document has the same words as Markdown and as HTML."""
    document = Document(
        "title",
        (
            Heading("heading"),
            Paragraph("1. text"),
            Bullets((("name", "what"), ("", "- bare"))),
            Table(("head",), (("cell",),), folded="fold"),
            Code("code"),
        ),
    )
    markdown, page = to_markdown_text(document), "".join(Tags(to_web_page(document)).words)
    for word in (
        "title",
        "heading",
        "text",
        "name",
        "what",
        "bare",
        "head",
        "cell",
        "fold",
        "code",
    ):
        assert word in markdown
        assert word in page
    assert "\n1\\. text" in markdown


def test_what_to_type_is_quoted_for_a_shell() -> None:
    """The command has full names, only what is not the default, and one word for each value."""
    words = shell_words(bisect_command(dossier()))
    assert words[:2] == ["perfbisect", "bisect"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options == {
        "--repo": "https://e.example/r.git",
        "--good": GOOD,
        "--bad": BAD,
        "--recipe": "copy; rm -rf /",
        "--benchmark": "inline",
        "--min-effect": "1%",
        "--max-runs": "50",
        "--path": "src/a b",
    }


def test_definitions_are_read_back_as_they_were() -> None:
    """Recipe and benchmark are a valid perfbisect.toml, whatever their text holds."""
    found = tomllib.loads(definitions_text(dossier()))
    assert found["recipe"] == {'x"]': {"kind": "bazel", "xla": True, "define": {"a b": EVIL}}}
    assert found["benchmark"]["inline"]["command"] == EVIL
    assert found["benchmark"]["inline"]["metric"] == {"skip": 2}


@pytest.mark.parametrize("wanted", FORMATS)
def test_a_verdict_alone_has_a_report_in_every_format(wanted: Any) -> None:
    """A bisection that just began can be reported: what is not known is left out."""
    text = render_dossier({"verdict": {"id": "x", "state": "queued", "outcome": None}}, wanted)
    assert text
    if wanted == "json":
        assert json.loads(text)["report"] == {"reproduce": [""]}


@pytest.mark.parametrize(
    ("told", "remark"),
    [
        (proof("proven by revert and pick", revert=arm("proven"), pick=arm("proven")), ""),
        (
            proof("contradicted", revert=arm("contradicted", meaning="the value did not change")),
            "reverted on the later end: contradicted: the value did not change",
        ),
        (
            proof(
                "can't be applied",
                pick=arm("can't be applied", problem={"files": [{"path": "kernels/conv.cc"}]}),
            ),
            "picked onto the earlier end: can't be applied (kernels/conv.cc): m",
        ),
    ],
)
def test_the_terminal_tells_the_proof(told: dict[str, Any], remark: str) -> None:
    """Each culprit's line says how it is proven; what does not prove it is explained below."""
    verdict = dossier(proof=told)["verdict"]
    table = culprit_table(verdict)
    assert f"verified, {told['verdict']}" in table[0]
    assert any(remark in line for line in table[1:])
    assert f"verified, {told['verdict']}, probability" in report.sentence(verdict)


def test_an_experiment_is_repeated_by_its_command() -> None:
    """Arms become --base, --revert, --pick and --env; a reference of its own becomes --against."""
    answer = {
        "kind": "try",
        "arms": [
            {"position": 0, "against": None, "revision": "r2.0 revert abc"},
            {"position": 1, "against": 0, "revision": "r2.0 pick def parent 1", "env": {"A": "1"}},
        ],
    }
    words = shell_words(experiment_command(dossier(), answer))
    assert words[-8:] == [
        "--base", "r2.0", "--pick", "def", "--env", "A=1", "--against", "r2.0 revert abc",
    ]  # fmt: skip
    assert experiment_command(dossier(), {"arms": [{"against": 0, "revision": "x nonsense"}]}) == ""


def test_measured_revisions_are_told_with_their_companions_and_what_is_current() -> None:
    """Good, bad and current: date, commit, the model garden's commit, the range of the runs."""
    told = dossier()
    garden = {"companions": {"models": ["13e7c85" + "0" * 33]}, "date": "2019-07-31"}
    first, *others = [{**row, "subject": "Fuse"} for row in told["measured"]]
    current = {**first, "position": None, "role": "current", "commit": "1ae01a0" + "0" * 33}
    current |= {"companions": {}, "date": "2019-09-26", "lowest": 8300.0, "highest": 8500.0}
    told["measured"] = [{**first, **garden}, *others, current]
    text = render_dossier(told, "md")
    header, _, *rows = text.split("## Measured revisions\n\n")[1].split("\n\n")[0].splitlines()
    names = [cell.strip() for cell in header.split("|")[1:-1]]
    assert names[:5] == ["what", "commit", "subject", "date", "models"]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert [row[3] for row in cells if row[4] == "13e7c85000"] == ["2019-07-31"]
    (last,) = [row for row in cells if row[0] == "current"]
    assert (last[1], last[3]) == ("1ae01a0000", "2019-09-26")
    assert "8,300 to 8,500" in last
