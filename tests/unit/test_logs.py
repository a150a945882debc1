"""Logs as people may see them: plain, by offset, cut between lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect.logs import plain, read_log, read_tail


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\ndone", "100%\ndone"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("tab\tstays", "tab\tstays"),
        ("bell\x07 null\x00", "bell� null�"),
        ("turned\u202eround", "turned�round"),
        ("cut off \x1b[", "cut off "),
        ("\x1b]0;never closed\nnext line", "\nnext line"),
    ],
)
def test_escapes_are_gone(raw: str, shown: str) -> None:
    """What a terminal would do, rather than show, is gone; what overwrites itself is its last."""
    assert plain(raw) == shown


@given(st.text())
def test_no_control_character_is_left(raw: str) -> None:
    """Whatever a program wrote, only newlines and tabs are left of its control characters."""
    left = {letter for letter in plain(raw) if ord(letter) < 32 or 127 <= ord(letter) < 160}
    assert left <= {"\n", "\t"}


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x1b"), max_size=9)))
def test_parts_make_the_whole(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    """Read part by part, however small, a log is what it is when read at once."""
    path = tmp_path_factory.mktemp("log") / "a.log"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    whole = read_log(path, offset=0, over=True)
    assert whole.complete
    text, offset, complete = "", 0, False
    while not complete:
        part = read_log(path, offset=offset, limit=64, over=True)
        assert part.next_offset > offset or part.complete
        text, offset, complete = text + part.text, part.next_offset, part.complete
    assert text == whole.text


def test_a_line_longer_than_a_part_does_not_stop_the_reader(tmp_path: Path) -> None:
    """Where no line ends within a part, the part is cut where it has to be."""
    path = tmp_path / "a.log"
    path.write_text("x" * 100 + "\n")
    part = read_log(path, offset=0, limit=30, over=False)
    assert (part.text, part.next_offset) == ("x" * 30, 30)


def test_an_unfinished_line_waits_until_the_end(tmp_path: Path) -> None:
    """A last line without its end is kept back while somebody writes, and shown afterwards."""
    path = tmp_path / "a.log"
    path.write_text("one\ntw")
    assert read_log(path, offset=0, over=False).text == "one\n"
    assert read_log(path, offset=0, over=True).text == "one\ntw"


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    """Before its first line a log has no file, which is no error."""
    assert read_log(tmp_path / "none.log", offset=0, over=False).text == ""
    assert read_tail(tmp_path / "none.log", 100, over=True).complete


def test_a_tail_begins_with_a_line(tmp_path: Path) -> None:
    """The end of a log starts at the start of a line."""
    path = tmp_path / "a.log"
    path.write_text("first\nsecond\nthird\n")
    part = read_tail(path, 10, over=True)
    assert (part.text, part.offset) == ("third\n", 13)
