"""Messages in words: what happened, in short, and where to read on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.alert_states import MessageEvent
from perfbisect.core.states import ChangeKind
from perfbisect.reports.bisection_document import bisection_document
from perfbisect.reports.document import Block, Document, Heading, Paragraph, bullets
from perfbisect.reports.markdown_text import to_markdown_text
from perfbisect.reports.words import format_change, format_value, short
from perfbisect.store import queries
from perfbisect.store.alert_tables import AlertRow, FindingRow

#: Alerts that one message names.
_MOST_ALERTS = 10


@dataclass(frozen=True, slots=True)
class Words:
    """A message before it has a target."""

    subject: str
    #: Markdown.
    body: str
    #: For programs.
    data: dict[str, Any] = field(default_factory=dict)


def name_of(row: AlertRow) -> str:
    """Return what an alert is about: its series, or its benchmark and pool."""
    if row.series:
        return row.series
    if row.benchmark:
        return f"{row.benchmark} on {row.pool}" if row.pool else row.benchmark
    return row.title or row.fingerprint


def change_line(row: AlertRow) -> str:
    """Return what changed, as far as it was told: ``−31%, 9,000 → 6,200``."""
    parts = []
    if row.change is not None:
        parts.append(format_change(row.change))
    if row.before is not None and row.after is not None:
        parts.append(f"{format_value(row.before)} → {format_value(row.after)}")
    return ", ".join(parts)


def range_line(row: AlertRow) -> str:
    """Return between what the change lies."""
    if not row.good or not row.bad:
        return ""
    ends = (row.good, row.bad) if row.kind is ChangeKind.REGRESSION else (row.bad, row.good)
    return f"{_end(ends[0])} .. {_end(ends[1])}"


def _end(text: str) -> str:
    return short(text) if len(text) == 40 else text


def words_for(session: Session, row: AlertRow, event: MessageEvent, public_url: str) -> Words:
    """Return the message of an event of an alert, as things are now."""
    title, blocks = _WORDS[event](session, row)
    page = _page(row, event)
    body = to_markdown_text(Document(title, tuple(blocks)))
    if public_url:
        body += f"\n{public_url.rstrip('/')}{page}\n"
    return Words(title, body, {"event": event.value, "page": page, **_data(session, row)})


def _page(row: AlertRow, event: MessageEvent) -> str:
    tells_verdict = event in (MessageEvent.FOUND, MessageEvent.PROVEN, MessageEvent.NOT_REPRODUCED)
    if tells_verdict and row.bisection_id is not None:
        return f"/bisections/{row.bisection_id}"
    return f"/alerts/{row.id}"


def _opened(session: Session, row: AlertRow) -> tuple[str, list[Block]]:
    what = "better" if row.kind is ChangeKind.RECOVERY else "worse"
    change = change_line(row)
    title = f"{name_of(row)} got {what}" + (f": {change}" if change else "")
    return title, [
        Paragraph(f"{title}.", strong=True),
        *bullets([("Between", range_line(row)), ("Now", row.reason), ("Told by", row.source)]),
    ]


def _found(session: Session, row: AlertRow) -> tuple[str, list[Block]]:
    verdict = _verdict(session, row)
    finding = session.get(FindingRow, row.finding_id) if row.finding_id else None
    blocks = list(bisection_document({"verdict": verdict}).blocks)
    first = next((at for at, block in enumerate(blocks) if isinstance(block, Heading)), len(blocks))
    who = _named(finding) if finding is not None else "a culprit"
    title = f"{name_of(row)}: found {who}"
    return title, [*blocks[:first], *_explained(session, row)]


def _explained(session: Session, row: AlertRow) -> list[Block]:
    """Return which other alerts the same culprit explains."""
    if row.finding_id is None:
        return []
    others = session.scalars(
        select(AlertRow)
        .where(AlertRow.finding_id == row.finding_id, AlertRow.id != row.id)
        .order_by(AlertRow.id)
        .limit(_MOST_ALERTS)
    )
    return bullets([("Explains too", f"{name_of(each)} {change_line(each)}") for each in others])


def _proven(session: Session, row: AlertRow) -> tuple[str, list[Block]]:
    verdict = _verdict(session, row)
    finding = session.get(FindingRow, row.finding_id) if row.finding_id else None
    who = _named(finding) if finding is not None else "the culprit"
    title = f"{name_of(row)}: {who} is proven"
    proofs = [
        ("", f"{short(culprit['commits'][-1])}: {culprit['proof']['verdict']}")
        for culprit in verdict.get("culprits") or ()
        if culprit.get("proof") and culprit.get("commits")
    ]
    return title, [Paragraph(str(verdict["sentence"]), strong=True), *bullets(proofs)]


def _not_reproduced(session: Session, row: AlertRow) -> tuple[str, list[Block]]:
    verdict = _verdict(session, row)
    title = f"{name_of(row)}: not reproduced"
    return title, [
        Paragraph(str(verdict["sentence"]), strong=True),
        *bullets([("Told", change_line(row)), ("Between", range_line(row))]),
    ]


def _fixed(session: Session, row: AlertRow) -> tuple[str, list[Block]]:
    finding = session.get(FindingRow, row.finding_id) if row.finding_id else None
    title = f"{name_of(row)}: over"
    return title, [
        Paragraph(row.resolution or row.reason, strong=True),
        *bullets([("It was", _named(finding) if finding is not None else change_line(row))]),
    ]


_WORDS = {
    MessageEvent.OPENED: _opened,
    MessageEvent.FOUND: _found,
    MessageEvent.PROVEN: _proven,
    MessageEvent.NOT_REPRODUCED: _not_reproduced,
    MessageEvent.FIXED: _fixed,
}


def _named(finding: FindingRow) -> str:
    commits = [_end(str(each)) for each in finding.commits]
    if len(commits) == 1:
        return f"{commits[0]} {finding.subject}".strip()
    return f"one of {len(commits)} ({commits[0]}..{commits[-1]})"


def _verdict(session: Session, row: AlertRow) -> Mapping[str, Any]:
    assert row.bisection_id is not None
    listing = queries.get_bisection(session, row.bisection_id)
    return {
        "repository": listing.source,
        "benchmark": listing.row.benchmark.get("name"),
        "recipe": listing.row.recipe.get("name") if listing.repository else None,
        "sentence": "",
        **(listing.row.verdict or {}),
    }


def _data(session: Session, row: AlertRow) -> dict[str, Any]:
    finding = session.get(FindingRow, row.finding_id) if row.finding_id else None
    return {
        "alert": row.id,
        "state": row.state.value,
        "series": row.series,
        "benchmark": row.benchmark,
        "pool": row.pool,
        "kind": row.kind.value,
        "good": row.good,
        "bad": row.bad,
        "before": row.before,
        "after": row.after,
        "change": row.change,
        "bisection": row.bisection_id,
        "commits": list(finding.commits) if finding is not None else [],
        "subject": finding.subject if finding is not None else "",
        "resolution": row.resolution,
    }
