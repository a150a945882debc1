"""Text with the colours of terminals, as HTML that can do nothing but look."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup, escape
from rich.ansi import AnsiDecoder
from rich.color import ColorSystem
from rich.style import Style
from rich.text import Text

from perfbisect.logs import plain

#: Coloured pieces of one part; beyond it (a bomb of escapes) the rest is plain.
MOST_PIECES = 6000


def to_html(text: str) -> Markup:
    """Return text whose only escapes say how it looks (``logs.coloured``) as HTML.

    Colours become classes, of sixteen kinds: the policy of the pages forbids styles in elements.
    """
    decoder = AnsiDecoder()
    pieces = 0
    lines: list[Markup] = []
    for line in text.split("\n"):
        pieces += line.count("\x1b")
        if pieces > MOST_PIECES:
            lines.append(escape(plain(line)))
        elif "\x1b" in line or decoder.style != Style.null():
            lines.append(Markup("").join(_spans(decoder.decode_line(line))))
        else:
            lines.append(escape(line))
    return Markup("\n").join(lines)


def _spans(line: Text) -> Iterator[Markup]:
    at = 0
    for start, end, style in line.spans:
        yield escape(line.plain[at:start])
        classes = " ".join(_classes(style)) if isinstance(style, Style) else ""
        piece = escape(line.plain[start:end])
        yield Markup('<span class="{}">{}</span>').format(classes, piece) if classes else piece
        at = end
    yield escape(line.plain[at:])


def _classes(style: Style) -> Iterator[str]:
    for name, kind in ((style.color, "f"), (style.bgcolor, "g")):
        if name is not None and not name.is_default:
            yield f"{kind}-{name.downgrade(ColorSystem.STANDARD).number}"
    for wanted, word in (
        (style.bold, "a-bold"), (style.dim, "a-dim"), (style.italic, "a-italic"),
        (style.underline, "a-under"),
    ):  # fmt: skip
        if wanted:
            yield word
