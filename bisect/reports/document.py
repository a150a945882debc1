"""A report as blocks of plain text: written once, rendered as Markdown and as HTML.

Text in blocks is never markup: whatever commits, logs and environments hold is escaped when it is
rendered, and nowhere before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str
    #: The one that a hurried reader reads.
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list; each item may have a word before it that says what it is."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text; every row has as many cells as the header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: Long: a page folds it away.
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy."""

    text: str
    #: ``console``, ``toml``, or nothing.
    language: str = ""


Block = Heading | Paragraph | Bullets | Table | Code


@dataclass(frozen=True, slots=True)
class Document:
    """A report."""

    title: str
    blocks: tuple[Block, ...]


def table(header: Sequence[str], rows: Sequence[Sequence[object]], folded: str = "") -> Table:
    """Return a table; what is None stays empty, a column that is empty throughout is left out."""
    cells = [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
    kept = [index for index in range(len(header)) if any(row[index] for row in cells)]
    return Table(
        tuple(header[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in cells),
        folded,
    )


def bullets(items: Sequence[tuple[str, str]]) -> list[Block]:
    """Return a list of the items that say something; nothing if none does."""
    told = tuple((name, text) for name, text in items if text)
    return [Bullets(told)] if told else []


def section(heading: str, blocks: Sequence[Block]) -> list[Block]:
    """Return blocks below their heading; nothing where there are none."""
    return [Heading(heading), *blocks] if blocks else []
