"""The report of a bisection: what changed, where, how sure, and how to see it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfbisect.report_steps import notes_lines, noun
from perfbisect.reports.document import Block, Document, Heading, Paragraph, bullets, section, table
from perfbisect.reports.environment_blocks import environment_blocks
from perfbisect.reports.experiment_document import KINDS, arms_blocks, decision_blocks
from perfbisect.reports.experiment_words import experiment_sentence
from perfbisect.reports.reproduction import reproduction
from perfbisect.reports.verdict_words import (
    PROOF_ARMS,
    cost_line,
    culprit_lines,
    doubt_line,
    ends_line,
    sentence,
)
from perfbisect.reports.words import (
    format_change,
    format_interval,
    format_span,
    format_value,
    plural,
    short,
)

#: Commits of a set that are named one by one.
_LISTED = 10
#: Lines of a failure that are told.
_LINES = 12


def bisection_document(dossier: Mapping[str, Any]) -> Document:
    """Return the report of a bisection.

    Args:
        dossier: ``verdict`` (the object of ``GET /api/v1/bisections/{id}``), and as far as known
            ``measured`` (objects with ``position``, ``commit``, ``subject``, ``mean``, ``ci95``,
            ``lowest``, ``highest``, ``runs``, ``rejected``, ``unbuildable``, ``date``,
            ``companions``: name -> commits, ``role``), ``experiments``
            (their answers), ``decisions``, ``hosts``, ``pythons``, ``images``, ``wheels``,
            ``builds``, ``commands``, ``request``, ``recipe``, ``benchmark``.
    """
    verdict = dossier["verdict"]
    blocks: list[Block] = [
        Paragraph(sentence(verdict), strong=True),
        *_failure(verdict),
        *_facts(verdict),
        *_culprits(verdict),
        *section("Proofs", _proofs(verdict)),
        *section("Measured revisions", _measured(dossier)),
        *_experiments(dossier.get("experiments") or ()),
        *section("Environment", environment_blocks(dossier)),
        *section("Reproduce", reproduction(dossier)),
        *section("Decisions", decision_blocks(dossier.get("decisions") or ())),
    ]
    return Document(f"Bisection {verdict.get('id', '')}", tuple(blocks))


def _failure(verdict: Mapping[str, Any]) -> list[Block]:
    error = verdict.get("error") or {}
    lines = [("", str(line)) for line in (error.get("lines") or ())[:_LINES]]
    message = str(error.get("message") or "")
    return [*([Paragraph(f"Problem: {message}")] if message else []), *bullets(lines)]


def _facts(verdict: Mapping[str, Any]) -> list[Block]:
    explained = verdict.get("explained") or {}
    parts = (explained.get("total"), explained.get("steps"))
    whole = (
        f"{format_change(parts[1])} of {format_change(parts[0])}"
        if None not in parts and verdict.get("culprits")
        else ""
    )
    places = verdict.get("positions") or {}
    count = abs(int(places.get("bad") or 0) - int(places.get("good") or 0))
    searched = f"{plural(count, noun(verdict))} of {verdict.get('repository')}" if count else ""
    better = verdict.get("better")
    measure = str(verdict.get("benchmark") or "")
    return bullets(
        [
            ("Searched", searched),
            ("Benchmark", f"{measure}, {better} is better" if measure and better else measure),
            ("Recipe", str(verdict.get("recipe") or "")),
            ("Ends", ends_line(verdict)),
            ("Explained by the steps", whole),
            ("Doubt", doubt_line(verdict)),
            ("Cost", cost_line(verdict)),
            *(("", note) for note in notes_lines(verdict)),
        ]
    )


def _culprits(verdict: Mapping[str, Any]) -> list[Block]:
    lines = culprit_lines(verdict)
    if not lines:
        return []
    header = (noun(verdict), "subject", "kind", "before", "after", "change", "95% interval")
    rows = [
        (c.commit, c.subject, c.kind, c.before, c.after, c.change, c.interval, c.probability,
         c.verified, c.proof, "; ".join(c.relations))
        for c in lines
    ]  # fmt: skip
    shown = table((*header, "probability", "verified", "proof", "relations"), rows)
    sets = [c["commits"] for c in verdict.get("culprits") or () if len(c.get("commits") or ()) > 1]
    named = [Paragraph(f"One of: {_list(commits)}") for commits in sets]
    remarks = bullets([("", f"{c.commit}: {each}") for c in lines for each in c.remarks])
    return [shown, *named, *remarks]


def _list(commits: Sequence[str]) -> str:
    names = ", ".join(short(sha) for sha in commits[:_LISTED])
    left = len(commits) - _LISTED
    return f"{names} and {left:,} more" if left > 0 else names


def _proofs(verdict: Mapping[str, Any]) -> list[Block]:
    rows = []
    for line, culprit in zip(culprit_lines(verdict), verdict.get("culprits") or (), strict=True):
        proof = culprit.get("proof") or {}
        for kind, words in PROOF_ARMS:
            told = proof.get(kind)
            if told:
                where = f"{words} (the nearest commit on which it applies)"
                rows.append(
                    (
                        line.commit,
                        where if told.get("nearest") else words,
                        "" if told.get("change") is None else format_change(told["change"]),
                        format_interval(told.get("ci95")) if told.get("ci95") else "",
                        format_change(told["expected"]) if told.get("expected") else "",
                        told.get("word", ""),
                        told.get("meaning", ""),
                    )
                )
    if not rows:
        return []
    header = ("culprit", "experiment", "change", "95% interval", "expected", "answer", "that is")
    return [table(header, rows)]


def measured_roles(verdict: Mapping[str, Any]) -> dict[int, str]:
    """Return position -> what it is to the verdict: an end, a side of a step."""
    roles: dict[int, list[str]] = {}
    places = verdict.get("positions") or {}
    for end in ("good", "bad"):
        if places.get(end) is not None:
            roles.setdefault(int(places[end]), []).append(f"{end} end")
    for number, culprit in enumerate(verdict.get("culprits") or (), 1):
        for key, word in (("before_position", "before"), ("position", "after")):
            if culprit.get(key) is not None:
                roles.setdefault(int(culprit[key]), []).append(f"{word} step {number}")
    return {position: ", ".join(words) for position, words in roles.items()}


def _measured(dossier: Mapping[str, Any]) -> list[Block]:
    """Return the ends, both sides of each step, and the newest measured since; count the rest."""
    verdict = dossier["verdict"]
    roles, unit = measured_roles(verdict), str(verdict.get("unit") or "")
    everything = list(dossier.get("measured") or ())
    told = [row for row in everything if row.get("position") in roles or row.get("role")]
    companions = sorted({name for row in told for name in row.get("companions") or {}})
    rows = [
        (
            roles.get(row["position"]) or row.get("role"),
            short(str(row.get("commit"))),
            row.get("subject"),
            row.get("date") or "",
            *(_companion(row, name) for name in companions),
            "" if row.get("mean") is None else format_value(row["mean"]),
            format_span(row.get("ci95")),
            format_span((row.get("lowest"), row.get("highest"))),
            _runs(row),
        )
        for row in told
    ]
    if not rows:
        return []
    mean = f"mean {unit}".rstrip()
    header = ("what", noun(verdict), "subject", "date", *companions, mean, "95% interval")
    header = (*header, "lowest to highest", "runs")
    left = len(everything) - len(rows)
    more = f"{plural(left, f'further {noun(verdict)}')} measured in between." if left else ""
    return [table(header, rows), *([Paragraph(more)] if more else [])]


def _companion(row: Mapping[str, Any], name: str) -> str:
    """Return the commits of a companion that a revision was measured with."""
    return ", ".join(short(str(commit)) for commit in (row.get("companions") or {}).get(name, ()))


def _runs(row: Mapping[str, Any]) -> str:
    if row.get("unbuildable") and not row.get("runs"):
        return "does not build or run"
    rejected = f" (+{row['rejected']} rejected)" if row.get("rejected") else ""
    return f"{row.get('runs') or 0}{rejected}"


def _experiments(answers: Sequence[Mapping[str, Any]]) -> list[Block]:
    blocks: list[Block] = []
    for answer in answers:
        kind = str(answer.get("kind") or "")
        name = KINDS.get(kind, kind)
        blocks.append(Heading(f"Experiment {answer.get('id', '')}: {name}"))
        blocks.append(Paragraph(experiment_sentence(answer)))
        blocks += arms_blocks(answer)
    return blocks
