"""Logs on pages: colours that can do nothing else, search, parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.serving import Site

from perfbisect.logs import coloured, plain, search_log
from perfbisect.web.ansi import MOST_PIECES, to_html

#: What a piece of coloured text may look like as HTML.
SPAN = re.compile(r'<span class="(?:[fg]-\d+|a-[a-z]+)(?: (?:[fg]-\d+|a-[a-z]+))*">|</span>')


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a <b> & c", "a &lt;b&gt; &amp; c"),
        ("\x1b[1;31merror:\x1b[0m x", '<span class="f-1 a-bold">error:</span> x'),
        ("\x1b[32ma\nb\x1b[0m", '<span class="f-2">a</span>\n<span class="f-2">b</span>'),
        ("\x1b[38;5;208morange\x1b[m", '<span class="f-9">orange</span>'),
        ("\x1b]0;title\x07\x1b[2Jshown", "shown"),
        ("10%\r20%\r30%\n", "30%\n"),
        ("\x1b[31m<script>\x1b[0m", '<span class="f-1">&lt;script&gt;</span>'),
        ("\u202eright to left", "\N{REPLACEMENT CHARACTER}right to left"),
    ],
)  # fmt: skip
def test_colours_become_classes(text: str, html: str) -> None:
    """Colours and emphasis are kept as classes, other escapes are not, and all else is escaped."""
    assert to_html(coloured(text)) == html


@settings(derandomize=True, database=None, max_examples=200)
@given(st.text(st.sampled_from(list("\x1b[]0123456789;:mKHJ\x07\r\n<>&\"' ab\x00\u202e"))))
def test_no_log_can_do_anything(text: str) -> None:
    """Whatever is printed, the page holds only spans with known classes, and the same text."""
    html = str(to_html(coloured(text)))
    rest = SPAN.sub("", html)
    assert "<" not in rest
    assert ">" not in rest
    assert "\x1b" not in html
    shown = rest.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"')
    assert shown.replace("&#39;", "'").replace("&amp;", "&") == plain(text)


def test_a_bomb_of_escapes_is_plain_text() -> None:
    """Beyond a number of coloured pieces the rest is shown without colours, and whole."""
    text = "\x1b[31mx\x1b[0m\n" * MOST_PIECES
    html = to_html(coloured(text))
    assert html.count("<span") <= MOST_PIECES
    assert SPAN.sub("", str(html)) == "x\n" * MOST_PIECES


def test_logs_are_searched_whole(tmp_path: Path) -> None:
    """Lines are found whatever their case or colour, with their number and place; many are cut."""
    log = tmp_path / "log"
    log.write_text("one\n\x1b[31mERROR\x1b[0m: two\nthree error\n")
    found, whole = search_log(log, "error")
    assert [(each.number, each.offset, each.text) for each in found] == [
        (2, 4, "ERROR: two"),
        (3, 24, "three error"),
    ]
    assert whole
    assert [each.number for each in search_log(log, "error", most=1)[0]] == [2]
    assert not search_log(log, "error", most=1)[1]
    assert search_log(tmp_path / "none", "error") == ([], True)
    assert not search_log(log, "three", reach=10)[1]


def test_the_page_searches_and_shows_parts(site: Site) -> None:
    """Lines that are found lead to where they stand; colours and attacks are text with classes."""
    path = f"/logs/builds/{site.finished.known_build}"
    log = site.services.settings.logs_dir / f"{site.finished.known_build}.log"
    log.write_text("first\n\x1b[31merror: <b>\x1b[0m\n" + "x" * 300_000 + "\nlast\n")
    page = site.client.get(path).text
    assert "last" in page
    assert "first" not in page
    found = site.client.get(f"{path}?q=ERROR").text
    assert f'<a href="{path}?from=6">2</a> <code>error: &lt;b&gt;</code>' in found
    part = site.client.get(f"{path}?from=6").text
    assert '<span class="f-1">error: &lt;b&gt;</span>' in part
    assert "Later" in part
    assert "last" not in part.partition('<pre id="log"')[2]
    more = site.client.get(f"{path}/part?offset=6")
    assert more.headers["perfbisect-log-complete"] == "true"
    assert more.text.startswith('<span class="f-1">error: &lt;b&gt;</span>')
