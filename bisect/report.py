"""A verdict in words: one sentence, Markdown, JSON, CSV. Pure functions over the verdict's JSON.

The verdict is the object of ``GET /api/v1/bisections/{id}``. Fields that are not known yet may be
missing or null: a report can be made while the bisection still runs.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfbisect.core.states import BisectionState, Outcome
from perfbisect.units import format_duration

Verdict = Mapping[str, Any]

#: Characters of a commit's name that people see.
SHORT = 10

#: Codes of a verdict that mean the request was wrong: its ends, its recipe or its benchmark.
BAD_INPUT_CODES = frozenset(
    {"bad-input", "ends_swapped", "end_unbuildable", "threshold_outside_ends"}
)

_EXIT_CODES = {
    Outcome.CULPRITS: 0,
    Outcome.NOT_REPRODUCED: 1,
    Outcome.INCONCLUSIVE: 1,
    Outcome.BUDGET_EXHAUSTED: 1,
    Outcome.CANCELLED: 1,
    Outcome.FAILED: 3,
}

#: Commits of a set that are named one by one.
_LISTED = 10

#: Columns of points in CSV, in this order; further keys of a point are left out.
POINT_COLUMNS = (
    "measured_at",
    "position",
    "commit",
    "value",
    "unit",
    "host",
    "purpose",
    "rejected",
    "seconds",
    "id",
    "run_id",
    "bisection_id",
    "wheel_id",
)


@dataclass(frozen=True, slots=True)
class CulpritLine:
    """A culprit as people read it; every field is text."""

    #: Short name, or the number of commits of a set.
    commit: str
    subject: str
    kind: str
    before: str
    after: str
    change: str
    interval: str
    probability: str
    verified: str
    #: ``reverted by 59436c1``…
    relations: tuple[str, ...] = ()


def short(sha: str) -> str:
    """Return the first characters of a commit's full name; other revisions stay as they are."""
    return sha[:SHORT] if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", sha) else sha


def format_value(value: float | None) -> str:
    """Return a value with four digits: ``9,000``, ``12.35``, ``0.001235``."""
    if value is None or not math.isfinite(value):
        return "?"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_change(change: float | None) -> str:
    """Return a relative change as a signed percentage: ``-67.8%``."""
    return "?" if change is None else f"{change:+.1%}"


def format_interval(interval: Sequence[float | None] | None) -> str:
    """Return an interval of relative changes: ``-69.0% to -66.0%``."""
    if not interval or any(end is None for end in interval):
        return "?"
    low, high = sorted(end for end in interval if end is not None)
    return f"{low:+.1%} to {high:+.1%}"


def format_probability(probability: float | None) -> str:
    """Return a probability without ever claiming certainty: ``99.2%``, ``>99.9%``, ``<0.1%``."""
    if probability is None:
        return "?"
    if probability > 0.9994:
        return ">99.9%"
    if probability < 0.0006:
        return "<0.1%"
    return f"{probability:.1%}"


def printable(text: object) -> str:
    """Return text from commits and logs on one line, without what a terminal would obey."""
    flat = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "?" for c in flat)


def plural(count: int, noun: str) -> str:
    """Return ``1 run``, ``2 runs``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _name(culprit: Mapping[str, Any]) -> str:
    commits = culprit.get("commits") or []
    if len(commits) == 1:
        return short(commits[0])
    if not commits:
        return "an unknown commit"
    # A resolved set can't be told apart; an unresolved one could still be narrowed down.
    more = "" if culprit.get("resolved", True) else ", not narrowed down yet"
    return f"one of {len(commits):,} commits ({short(commits[0])}..{short(commits[-1])}{more})"


def _relation(relation: Mapping[str, Any]) -> str:
    words = str(relation.get("kind", "related to")).replace("_", " ")
    return f"{words} {short(str(relation.get('commit', '?')))}"


def culprit_lines(verdict: Verdict) -> list[CulpritLine]:
    """Return the culprits in the order of the axis."""
    return [
        CulpritLine(
            commit=_name(culprit),
            subject=printable(culprit.get("subject") or ""),
            kind=str(culprit.get("kind", "")),
            before=format_value(culprit.get("before")),
            after=format_value(culprit.get("after")),
            change=format_change(culprit.get("change")),
            interval=format_interval(culprit.get("ci95")),
            probability=format_probability(culprit.get("probability")),
            verified="yes" if culprit.get("verified") else "no",
            relations=tuple(_relation(each) for each in culprit.get("relations") or ()),
        )
        for culprit in verdict.get("culprits") or ()
    ]


def sentence(verdict: Verdict) -> str:
    """Return the verdict in one sentence (two where the outcome needs its reason)."""
    state, outcome = verdict.get("state"), verdict.get("outcome")
    reason = printable(verdict.get("reason") or "").rstrip(".")
    if outcome is None:
        return _unfinished(verdict, str(state))
    if outcome == Outcome.CULPRITS:
        return _culprits_sentence(verdict)
    start = {
        Outcome.NOT_REPRODUCED: "Not reproduced",
        Outcome.INCONCLUSIVE: "Inconclusive",
        Outcome.BUDGET_EXHAUSTED: "The budget is exhausted",
        Outcome.CANCELLED: "Cancelled",
        Outcome.FAILED: "Failed",
    }[Outcome(outcome)]
    text = f"{start}: {reason}." if reason else f"{start}."
    if verdict.get("culprits"):
        text += f" Best answer so far: {_culprits_sentence(verdict)}"
    return text


def _unfinished(verdict: Verdict, state: str) -> str:
    begin = "Waiting to start" if state == BisectionState.QUEUED else "Still searching"
    if verdict.get("culprits"):
        return f"{begin}; most likely so far: {_culprits_sentence(verdict)}"
    return f"{begin}."


def _culprits_sentence(verdict: Verdict) -> str:
    culprits = verdict.get("culprits") or []
    if not culprits:
        return "No commit was named."
    if len(culprits) == 1:
        return _one_culprit(culprits[0], str(verdict.get("unit") or ""))
    lines = culprit_lines(verdict)
    each = "; ".join(f"{line.commit} a {line.kind} of {line.change}" for line in lines)
    unverified = [line.commit for line in lines if line.verified == "no"]
    proof = f"not verified: {', '.join(unverified)}" if unverified else "all verified"
    return f"{len(lines)} steps explain the change: {each}; {proof}{_explained(verdict)}."


def _one_culprit(culprit: Mapping[str, Any], unit: str) -> str:
    subject = f' "{printable(culprit["subject"])}"' if culprit.get("subject") else ""
    proof = "verified" if culprit.get("verified") else "not verified"
    before, after = format_value(culprit.get("before")), format_value(culprit.get("after"))
    return (
        f"{_name(culprit)}{subject} is a {culprit.get('kind', 'change')}: "
        + f"{before} -> {after} {unit}".rstrip()
        + f", {format_change(culprit.get('change'))} "
        f"(95% interval {format_interval(culprit.get('ci95'))}), {proof}, "
        f"probability {format_probability(culprit.get('probability'))}."
    )


def _explained(verdict: Verdict) -> str:
    explained = verdict.get("explained") or {}
    total, steps = explained.get("total"), explained.get("steps")
    if total is None or steps is None:
        return ""
    return f"; together {format_change(steps)} of {format_change(total)} in all"


def ends_line(verdict: Verdict) -> str:
    """Return both ends with their means, 95% intervals and runs; empty before they are measured."""
    unit = str(verdict.get("unit") or "")
    parts = []
    for end in ("good", "bad"):
        stat = verdict.get(end) or {}
        if stat.get("mean") is None:
            continue
        low, high = (stat.get("ci95") or [None, None])[:2]
        revision, runs = short(str(stat.get("revision", "?"))), int(stat.get("runs") or 0)
        parts.append(
            f"{end} {revision}: {format_value(stat['mean'])} {unit} "
            f"({format_value(low)} to {format_value(high)}, {plural(runs, 'run')})"
        )
    return "; ".join(parts)


def cost_line(verdict: Verdict) -> str:
    """Return what the answer cost: ``9 builds, 31 runs, 2m``."""
    return ", ".join(
        (
            plural(int(verdict.get("builds") or 0), "build"),
            plural(int(verdict.get("runs") or 0), "run"),
            format_duration(float(verdict.get("seconds") or 0.0)),
        )
    )


def doubt_line(verdict: Verdict) -> str:
    """Return the noise of a run and the expected number of steps not named; empty if unknown."""
    parts = []
    if verdict.get("noise") is not None:
        parts.append(f"noise of one run {verdict['noise']:.1%}")
    if verdict.get("missed") is not None:
        parts.append(f"steps expected but not named {verdict['missed']:.2g}")
    if verdict.get("confidence") is not None and verdict.get("outcome") is not None:
        whole = format_probability(float(verdict["confidence"]))
        parts.append(f"probability that this is the whole answer {whole}")
    return "; ".join(parts)


def exit_code(verdict: Verdict) -> int:
    """Return 0 answered, 1 no answer (yet), 2 the request was wrong, 3 failed."""
    outcome = verdict.get("outcome")
    if verdict.get("code") in BAD_INPUT_CODES:
        return 2
    return 1 if outcome is None else _EXIT_CODES[Outcome(outcome)]


def to_json(verdict: Verdict) -> str:
    """Return the verdict as indented JSON; refuses values that JSON does not have."""
    return json.dumps(verdict, indent=2, ensure_ascii=False, allow_nan=False)


def _markdown(text: object) -> str:
    """Escape text from commits and logs, so that it can't break a table or become markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", printable(text))


def _list(commits: Sequence[str]) -> str:
    names = ", ".join(short(sha) for sha in commits[:_LISTED])
    left = len(commits) - _LISTED
    return f"{names} and {left:,} more" if left > 0 else names


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(_markdown(cell) for cell in row)} |" for row in rows]
    return lines


def to_markdown(verdict: Verdict, decisions: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return a report for an issue or a message: sentence, culprits, ends, cost, decisions.

    Args:
        verdict: the verdict's JSON object.
        decisions: objects with ``kind``, ``position``, ``host`` and ``reason``, in their order.
    """
    lines = [f"# Bisection {_markdown(verdict.get('id', ''))}", "", _markdown(sentence(verdict))]
    culprits = culprit_lines(verdict)
    if culprits:
        header = ("commit", "subject", "kind", "before", "after", "change", "95% interval")
        rows = [
            (c.commit, c.subject, c.kind, c.before, c.after, c.change, c.interval, c.probability,
             c.verified, "; ".join(c.relations))
            for c in culprits
        ]  # fmt: skip
        lines += ["", *_markdown_table((*header, "probability", "verified", "relations"), rows)]
        sets = [c for c in verdict.get("culprits") or () if len(c.get("commits") or ()) > 1]
        lines += [f"\nOne of: {_list(c['commits'])}" for c in sets]
    details = [("Ends", ends_line(verdict)), ("Doubt", doubt_line(verdict))]
    lines += ["", *(f"- {name}: {_markdown(text)}" for name, text in details if text)]
    lines.append(f"- Cost: {cost_line(verdict)}")
    chosen = [
        (d.get("kind", ""), d.get("position", ""), d.get("host") or "", d.get("reason", ""))
        for d in decisions
    ]
    if chosen:
        lines += ["", "## Decisions", ""]
        lines += _markdown_table(("what", "position", "host", "why"), chosen)
    return "\n".join(lines) + "\n"


def _csv_cell(value: object) -> object:
    # A spreadsheet takes text that starts like this for a formula.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def points_csv(points: Iterable[Mapping[str, Any]]) -> str:
    """Return points as CSV with the columns ``POINT_COLUMNS``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(POINT_COLUMNS)
    for point in points:
        writer.writerow([_csv_cell(point.get(column)) for column in POINT_COLUMNS])
    return out.getvalue()


def experiment_sentence(verdict: Verdict) -> str:
    """Return the answer of an experiment in one sentence."""
    if verdict.get("outcome") is None:
        return "Still measuring."
    reason = printable(verdict.get("reason") or "").rstrip(".")
    start = {
        Outcome.ANSWERED: "Answered",
        Outcome.INCONCLUSIVE: "Inconclusive",
        Outcome.BUDGET_EXHAUSTED: "The budget is exhausted",
        Outcome.CANCELLED: "Cancelled",
        Outcome.FAILED: "Failed",
    }[Outcome(str(verdict["outcome"]))]
    return f"{start}: {reason}." if reason else f"{start}."


def experiment_lines(verdict: Verdict) -> list[str]:
    """Return the answer of an experiment for people: a sentence, a line for each arm, the cost."""
    unit = str(verdict.get("unit") or "")
    lines = ["", experiment_sentence(verdict)]
    arms = list(verdict.get("arms") or ())
    for arm in arms:
        lines.append(f"  {_arm_line(arm, arms, unit)}")
        lines += [f"      {line}" for line in _problem_lines(arm)]
    error = verdict.get("error") or {}
    lines += [f"  | {printable(line)}" for line in error.get("lines") or ()]
    lines.append(f"Cost: {cost_line(verdict)}")
    return lines


def _arm_line(arm: Mapping[str, Any], arms: Sequence[Mapping[str, Any]], unit: str) -> str:
    name = printable(arm.get("name", "?"))
    runs = plural(int(arm.get("runs") or 0), "run")
    if arm.get("against") is None:
        means = [each.get("reference_mean") for each in arms if each.get("reference_mean")]
        mean = format_value(means[0]) if means else "?"
        return f"{name}: {mean} {unit} (reference, {runs})"
    if arm.get("problem"):
        return f"{name}: can't be measured"
    if arm.get("change") is None:
        return f"{name}: {printable(arm.get('failure') or 'not measured')}"
    return (
        f"{name}: {format_value(arm.get('mean'))} {unit}, {format_change(arm['change'])} "
        f"(95% interval {format_interval(arm.get('ci95'))}, {runs}), {arm.get('difference')}"
    )


def _problem_lines(arm: Mapping[str, Any]) -> list[str]:
    problem = arm.get("problem") or {}
    if problem.get("kind") == "empty":
        return [f"'{printable(problem['change'])}' changes nothing: {printable(problem['why'])}"]
    files = [printable(file["path"]) for file in problem.get("files") or ()]
    if files:
        return [f"'{printable(problem['change'])}' conflicts in {', '.join(files)}"]
    wanted = (arm.get("role") or {}).get("prerequisites") or ()
    return [
        f"needs {short(str(each['commit']['sha']))} {printable(each['commit']['subject'])} "
        f"(+{each['added']} -{each['removed']}, {plural(len(each['paths']), 'path')})"
        for each in wanted
    ]


def experiment_exit_code(verdict: Verdict) -> int:
    """Return 0 answered, 1 undecided (yet), 2 the request was wrong, 3 failed."""
    outcome = verdict.get("outcome")
    if outcome == Outcome.ANSWERED:
        return 0
    if (verdict.get("error") or {}).get("code") in BAD_INPUT_CODES:
        return 2
    return 3 if outcome == Outcome.FAILED else 1
