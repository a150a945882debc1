"""A report as Markdown, ready to paste into an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfbisect.reports.document import Block, Bullets, Code, Document, Heading, Paragraph, Table
from perfbisect.reports.words import printable

#: Between ``@`` and a name: nobody is notified because a commit's subject names them.
_WORD_JOINER = "\N{WORD JOINER}"


def escape(text: object) -> str:
    """Escape text from commits and logs, so that it can't break a table or become markup.

    It can't become a link, a mention or a reference to an issue either.
    """
    safe = re.sub(r"([\\`*_{}\[\]<>|#~&])", r"\\\1", printable(text))
    safe = re.sub(r"@(?=\w)", f"@{_WORD_JOINER}", safe)
    safe = safe.replace("://", ":\\//")
    return re.sub(r"\b(www)\.", r"\1\\.", safe, flags=re.IGNORECASE)


def _line(text: str) -> str:
    """Escape text at the start of a line, where a dash or a number would begin a list."""
    return re.sub(r"^(\d+(?=[.)])|)([-+=.)])", r"\1\\\2", escape(text))


def to_markdown_text(document: Document) -> str:
    """Return a document as Markdown (GitHub's kind: it has tables)."""
    lines = [f"# {escape(document.title)}"]
    for block in document.blocks:
        lines += ["", *_block(block)]
    return "\n".join(lines) + "\n"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(text):
            yield f"## {escape(text)}"
        case Paragraph(text, strong):
            yield f"**{escape(text)}**" if strong else _line(text)
        case Bullets(items):
            for name, text in items:
                yield f"- {escape(name)}: {escape(text)}" if name else f"- {_line(text)}"
        case Code(text, language):
            yield from _fenced(text, language)
        case Table():
            yield from _table(block)


def _table(block: Table) -> Iterator[str]:
    if block.folded:
        yield from (f"<details><summary>{escape(block.folded)}</summary>", "")
    yield f"| {' | '.join(escape(cell) for cell in block.header)} |"
    yield f"|{'---|' * len(block.header)}"
    for row in block.rows:
        yield f"| {' | '.join(escape(cell) for cell in row)} |"
    if block.folded:
        yield from ("", "</details>")


def _fenced(text: str, language: str) -> Iterator[str]:
    """Yield a block of code; its fence is longer than any row of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    for line in text.splitlines():
        yield "".join(c if c.isprintable() or c == "\t" else "?" for c in line)
    yield fence
