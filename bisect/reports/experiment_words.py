"""The answer of an experiment in words. Pure functions over its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfbisect.core.states import Outcome
from perfbisect.reports.verdict_words import BAD_INPUT_CODES, Verdict, cost_line
from perfbisect.reports.words import (
    format_change,
    format_interval,
    format_value,
    plural,
    printable,
    short,
)


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
    lines += [f"  {line}" for line in (*minimal_lines(verdict), *pick_set_lines(verdict))]
    lines += [f"  {printable(note)}" for note in verdict.get("carried") or ()]
    lines.append(f"Cost: {cost_line(verdict)}")
    return lines


def minimal_lines(verdict: Verdict) -> list[str]:
    """Return the smallest set of reverts as far as it is known; empty if none is looked for."""
    minimal = verdict.get("minimal") or {}
    if not minimal:
        return []
    if minimal.get("state") != "found":
        return ["smallest set of reverts: still looking"]
    if not minimal.get("holds"):
        return ["smallest set of reverts: none of the list restores the value"]
    names = ", ".join(short(str(sha)) for sha in minimal.get("commits") or ())
    doubts = len(minimal.get("unresolved") or ())
    more = f"; {plural(doubts, 'smaller set')} could not be told" if doubts else ""
    return [f"smallest set of reverts: {names}{more}"]


def pick_set_lines(verdict: Verdict) -> list[str]:
    """Return what became of each pick that applied but did not build at once; empty if all did."""
    names = {arm.get("position"): arm.get("name") for arm in verdict.get("arms") or ()}
    lines = []
    for told in verdict.get("pick_sets") or ():
        name, why = printable(names.get(told.get("arm"), "?")), printable(told.get("why") or "")
        tried = f"{plural(int(told.get('sets') or 0), 'set')} tried"
        if told.get("state") == "settled":
            more = "" if told.get("smallest") else "; a smaller set may build, too"
            chosen = printable(names.get(told.get("measured"), "?"))
            lines.append(f"{name}: builds as '{chosen}' ({why}; {tried}{more})")
        elif told.get("state") == "gave_up":
            lines.append(f"{name}: applies, but no set that builds was found: {why} ({tried})")
        else:
            lines.append(f"{name}: looking for a set that builds ({tried})")
    return lines


def _arm_line(arm: Mapping[str, Any], arms: Sequence[Mapping[str, Any]], unit: str) -> str:
    name = printable(arm.get("name", "?"))
    runs = plural(int(arm.get("runs") or 0), "run")
    if arm.get("against") is None:
        means = [each.get("reference_mean") for each in arms if each.get("reference_mean")]
        mean = format_value(means[0]) if means else "?"
        return f"{name}: {mean} {unit} (reference, {runs})"
    if arm.get("only_built"):
        return f"{name}: {only_built_words(arm)}"
    if arm.get("problem"):
        return f"{name}: can't be measured"
    if arm.get("change") is None:
        return f"{name}: {printable(arm.get('failure') or 'not measured')}"
    return (
        f"{name}: {format_value(arm.get('mean'))} {unit}, {format_change(arm['change'])} "
        f"(95% interval {format_interval(arm.get('ci95'))}, {runs}), {arm.get('difference')}"
    )


def only_built_words(arm: Mapping[str, Any]) -> str:
    """Return what became of an attempt at a pick set that is not measured."""
    if arm.get("problem"):
        return "does not apply"
    return f"does not build: {printable(arm['failure'])}" if arm.get("failure") else "tried"


def _problem_lines(arm: Mapping[str, Any]) -> list[str]:
    problem = arm.get("problem") or {}
    if problem.get("kind") == "empty":
        return [f"'{printable(problem['change'])}' changes nothing: {printable(problem['why'])}"]
    files = [printable(file["path"]) for file in problem.get("files") or ()]
    if files:
        return [f"'{printable(problem['change'])}' conflicts in {', '.join(files)}"]
    wanted = () if arm.get("only_built") else (arm.get("role") or {}).get("prerequisites") or ()
    return [
        f"needs {short(str(each['commit']['sha']))} {printable(each['commit']['subject'])} "
        f"(+{each['added']} -{each['removed']}, {plural(len(each['paths']), 'path')})"
        for each in wanted
    ]


def experiment_exit_code(verdict: Verdict) -> int:
    """Return 0 every arm was compared, 1 not all (yet), 2 the request was wrong, 3 failed."""
    outcome = verdict.get("outcome")
    if outcome == Outcome.ANSWERED:
        # A minimal set is the answer; subsets that could not be applied are part of the search,
        # and so are pick sets that did not build.
        arms = () if verdict.get("minimal") else verdict.get("arms") or ()
        compared = [
            arm.get("change")
            for arm in arms
            if arm.get("against") is not None and not arm.get("only_built")
        ]
        return 1 if None in compared else 0
    if (verdict.get("error") or {}).get("code") in BAD_INPUT_CODES:
        return 2
    return 3 if outcome == Outcome.FAILED else 1
