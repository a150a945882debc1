"""A report as one HTML file: nothing is loaded from anywhere, nothing in it can run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape

from perfbisect.reports.document import Block, Bullets, Code, Document, Heading, Paragraph, Table

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto;
  padding: 0 1rem; color: CanvasText; background: Canvas; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.answer { font-size: 1.2rem; font-weight: 600; line-height: 1.4; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0;
  border-bottom: 1px solid color-mix(in srgb, CanvasText 20%, transparent); }
pre { overflow-x: auto; padding: 0.8rem; font-size: 0.85rem;
  background: color-mix(in srgb, CanvasText 7%, transparent); border-radius: 0.4rem; }
summary { cursor: pointer; }
@media print { details { display: block; } pre { white-space: pre-wrap; } }
"""


_UNSEEN = "\N{REPLACEMENT CHARACTER}"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


#: What the file may do: apply its own style sheet, and nothing else.
POLICY = f"default-src 'none'; style-src 'sha256-{_hash(_STYLE)}'"


def to_web_page(document: Document) -> str:
    """Return a document as a whole HTML file."""
    title = escape(document.title)
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>"
    )
    lines = [head, f"<h1>{title}</h1>"]
    for block in document.blocks:
        lines += _block(block)
    return "\n".join([*lines, "</main>\n</body>\n</html>"]) + "\n"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(text):
            yield f"<h2>{_text(text)}</h2>"
        case Paragraph(text, strong):
            yield f'<p class="answer">{_text(text)}</p>' if strong else f"<p>{_text(text)}</p>"
        case Bullets(items):
            yield "<ul>"
            for name, text in items:
                start = f"<strong>{_text(name)}:</strong> " if name else ""
                yield f"<li>{start}{_text(text)}</li>"
            yield "</ul>"
        case Code(text):
            yield f'<pre tabindex="0">{_text(text)}</pre>'
        case Table():
            yield from _table(block)


def _table(block: Table) -> Iterator[str]:
    if block.folded:
        yield f"<details><summary>{_text(block.folded)}</summary>"
    heads = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in block.header)
    yield f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in block.rows:
        yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"
    if block.folded:
        yield "</details>"


def _text(text: str) -> str:
    """Escape text; characters that nobody sees but that change what is read are shown."""
    visible = (c if c.isprintable() or c in "\n\t" else _UNSEEN for c in text)
    return escape("".join(visible))
