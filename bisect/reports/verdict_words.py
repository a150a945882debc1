"""A verdict in words: sentence, culprits, ends, doubt, cost. Pure functions over its JSON.

The verdict is the object of ``GET /api/v1/bisections/{id}``. Fields that are not known yet may be
missing or null: a report can be made while the bisection still runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfbisect.core.states import BisectionState, Outcome
from perfbisect.report_steps import IN_A_SENTENCE, also_changed_text, besides, noun
from perfbisect.reports.companion_words import companions_sentence
from perfbisect.reports.words import (
    format_change,
    format_interval,
    format_probability,
    format_value,
    plural,
    printable,
    short,
)
from perfbisect.units import format_duration

Verdict = Mapping[str, Any]

#: Codes of a verdict that mean the request was wrong: its ends, its recipe or its benchmark.
BAD_INPUT_CODES = frozenset(
    {"bad-input", "ends_swapped", "end_unbuildable", "threshold_outside_ends"}
)

#: Key of an arm in a culprit's proof -> what was done.
PROOF_ARMS = (("revert", "reverted on the later end"), ("pick", "picked onto the earlier end"))
#: Conflicting files that are named.
_MOST_FILES = 5

_EXIT_CODES = {
    Outcome.CULPRITS: 0,
    Outcome.NOT_REPRODUCED: 1,
    Outcome.INCONCLUSIVE: 1,
    Outcome.BUDGET_EXHAUSTED: 1,
    Outcome.CANCELLED: 1,
    Outcome.FAILED: 3,
}


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
    #: ``proven by revert and pick``, ``contradicted``…; empty: nobody tried.
    proof: str = ""
    #: ``reverted by 59436c1``…
    relations: tuple[str, ...] = ()
    #: What else is known of the step: dependencies that moved with it, its commits.
    remarks: tuple[str, ...] = ()


def _name(culprit: Mapping[str, Any], noun: str) -> str:
    commits = culprit.get("commits") or []
    if len(commits) == 1:
        return short(commits[0])
    if not commits:
        return f"an unknown {noun}"
    # A resolved set can't be told apart; an unresolved one could still be narrowed down.
    more = "" if culprit.get("resolved", True) else ", not narrowed down yet"
    return f"one of {len(commits):,} {noun}s ({short(commits[0])}..{short(commits[-1])}{more})"


def _relation(relation: Mapping[str, Any]) -> str:
    words = str(relation.get("kind", "related to")).replace("_", " ")
    doubt = " (likely)" if relation.get("likely") else ""
    return f"{words} {short(str(relation.get('commit', '?')))}{doubt}"


def culprit_lines(verdict: Verdict) -> list[CulpritLine]:
    """Return the culprits in the order of the axis."""
    return [
        CulpritLine(
            commit=_name(culprit, noun(verdict)),
            subject=printable(culprit.get("subject") or ""),
            kind=str(culprit.get("kind", "")),
            before=format_value(culprit.get("before")),
            after=format_value(culprit.get("after")),
            change=format_change(culprit.get("change")),
            interval=format_interval(culprit.get("ci95")),
            probability=format_probability(culprit.get("probability")),
            verified="yes" if culprit.get("verified") else "no",
            proof=proof_word(culprit),
            relations=tuple(_relation(each) for each in culprit.get("relations") or ()),
            remarks=tuple(printable(each) for each in (*besides(culprit), *proof_remarks(culprit))),
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
        return f"{_culprits_sentence(verdict)} {companions_sentence(verdict)}".rstrip()
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
        return f"No {noun(verdict)} was named."
    if len(culprits) == 1:
        return _one_culprit(culprits[0], verdict)
    lines = culprit_lines(verdict)
    each = "; ".join(f"{line.commit} a {line.kind} of {line.change}" for line in lines)
    unverified = [line.commit for line in lines if line.verified == "no"]
    proof = f"not verified: {', '.join(unverified)}" if unverified else "all verified"
    proof += _proofs([line.proof for line in lines])
    moved = [
        f"; with {line.commit}, {also_changed_text(culprit, IN_A_SENTENCE)}"
        for line, culprit in zip(lines, culprits, strict=True)
        if culprit.get("also_changed")
    ]
    also = printable("".join(moved))
    return f"{len(lines)} steps explain the change: {each}; {proof}{_explained(verdict)}{also}."


def _one_culprit(culprit: Mapping[str, Any], verdict: Verdict) -> str:
    unit = str(verdict.get("unit") or "")
    also = printable(also_changed_text(culprit, IN_A_SENTENCE))
    proof = "verified" if culprit.get("verified") else "not verified"
    proof += f", {proof_word(culprit)}" if proof_word(culprit) else ""
    before, after = format_value(culprit.get("before")), format_value(culprit.get("after"))
    return (
        f"{_full_name(culprit, verdict)} is a {culprit.get('kind', 'change')}: "
        + f"{before} -> {after} {unit}".rstrip()
        + f", {format_change(culprit.get('change'))} "
        f"(95% interval {format_interval(culprit.get('ci95'))}), {proof}, "
        f"probability {format_probability(culprit.get('probability'))}{'; ' if also else ''}{also}."
    )


def proof_word(culprit: Mapping[str, Any]) -> str:
    """Return what revert and pick say of a culprit: ``proven by revert``; empty: not known yet."""
    return printable((culprit.get("proof") or {}).get("verdict") or "")


def proof_remarks(culprit: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a revert or a pick does not prove a culprit, where it does not."""
    proof = culprit.get("proof") or {}
    told = [(words, proof.get(kind) or {}) for kind, words in PROOF_ARMS]
    return tuple(
        f"{words}: {each.get('word')}{_conflicts(each)}: {each.get('meaning')}"
        for words, each in told
        if each and each.get("word") != "proven"
    )


def _conflicts(told: Mapping[str, Any]) -> str:
    files = [str(file.get("path")) for file in (told.get("problem") or {}).get("files") or ()]
    left = len(files) - _MOST_FILES
    more = f" and {left} more" if left > 0 else ""
    return f" ({', '.join(files[:_MOST_FILES])}{more})" if files else ""


def _proofs(words: Sequence[str]) -> str:
    """Return how many of several culprits are proven, and what the others are."""
    if not any(words):
        return ""
    proven = sum(word.startswith("proven") for word in words)
    if proven == len(words):
        return ", all proven" if len(set(words)) > 1 else f", all {words[0]}"
    others = ", ".join(dict.fromkeys(w or "not tried" for w in words if not w.startswith("proven")))
    return f", {proven} of {len(words)} proven (else: {others})"


def _full_name(culprit: Mapping[str, Any], verdict: Verdict) -> str:
    """Return a commit with its subject, or a version with its package and the one before it."""
    name = _name(culprit, noun(verdict))
    subject = printable(culprit.get("subject") or "")
    if verdict.get("axis") != "published":
        return f'{name} "{subject}"' if subject else name
    dated = f", {subject}," if subject else ""
    return f"{printable(verdict.get('package'))} {name}{dated} after {culprit.get('previous')}"


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
    """Return what the answer cost, ``9 builds, 31 runs, 2m``, and what its proof cost besides."""
    proof = verdict.get("proof") or {}
    parts = [_cost(verdict)]
    if proof.get("runs") is not None:
        parts.append(f"and the proof {_cost(proof)}")
    return "; ".join(parts)


def _cost(told: Mapping[str, Any]) -> str:
    return ", ".join(
        (
            plural(int(told.get("builds") or 0), "build"),
            plural(int(told.get("runs") or 0), "run"),
            format_duration(float(told.get("seconds") or 0.0)),
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
