"""The report of an experiment: its answer, its arms, what did not apply, what was looked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfbisect.reports.document import (
    Block,
    Code,
    Document,
    Paragraph,
    bullets,
    section,
    table,
)
from perfbisect.reports.environment_blocks import environment_blocks
from perfbisect.reports.experiment_words import (
    experiment_sentence,
    minimal_lines,
    only_built_words,
    pick_set_lines,
)
from perfbisect.reports.reproduction import (
    definition_blocks,
    experiment_command,
    recorded_commands,
)
from perfbisect.reports.verdict_words import cost_line
from perfbisect.reports.words import (
    format_change,
    format_interval,
    format_span,
    format_value,
    plural,
    printable,
    short,
)

#: Lines of conflicting hunks that a report shows.
_MOST_LINES = 80

KINDS = {
    "try": "revisions against a reference",
    "prove": "proof of culprits by revert and pick",
    "minimise_reverts": "smallest set of reverts",
}


def experiment_document(dossier: Mapping[str, Any]) -> Document:
    """Return the report of an experiment.

    Args:
        dossier: ``answer`` (the object of ``GET /api/v1/experiments/{id}``), and as far as known
            ``request``, ``recipe``, ``benchmark``, ``hosts``, ``builds``, ``commands``,
            ``decisions``.
    """
    answer = dossier["answer"]
    kind = str(answer.get("kind") or "")
    blocks: list[Block] = [
        Paragraph(experiment_sentence(answer), strong=True),
        *bullets(
            [
                ("What", KINDS.get(kind, kind)),
                ("Repository", str(answer.get("repository") or "")),
                ("Recipe", str(answer.get("recipe") or "")),
                ("Benchmark", str(answer.get("benchmark") or "")),
                ("Of the bisection", str(answer.get("bisection") or "")),
                ("Cost", cost_line(answer)),
            ]
        ),
        *section("Arms", arms_blocks(answer)),
        *section("Environment", environment_blocks(dossier)),
        *section("Reproduce", _reproduction(dossier, answer)),
        *section("Decisions", decision_blocks(dossier.get("decisions") or (), answer)),
    ]
    return Document(f"Experiment {answer.get('id', '')}", tuple(blocks))


def arms_blocks(answer: Mapping[str, Any]) -> list[Block]:
    """Return the arms of an experiment as a table, and what there is to say of them."""
    arms = list(answer.get("arms") or ())
    if not arms:
        return []
    unit = str(answer.get("unit") or "")
    header = ("arm", "revision", "environment", f"mean {unit}".rstrip(), "95% interval of the mean")
    shown = table(
        (*header, "change", "95% interval", "difference", "runs"),
        [_arm_row(arm, arms) for arm in arms],
    )
    blocks: list[Block] = [shown]
    for arm in arms:
        blocks += _remarks(arm)
    told = (*minimal_lines(answer), *pick_set_lines(answer))
    blocks += [Paragraph(_capital(line)) for line in told]
    commits = (answer.get("minimal") or {}).get("commits") or ()
    return [*blocks, *bullets([("", str(sha)) for sha in commits])]


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _arm_row(arm: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> tuple[object, ...]:
    env = " ".join(f"{key}={value}" for key, value in (arm.get("env") or {}).items())
    words = str(arm.get("revision") or "").split(" ")
    start = (arm.get("name"), " ".join(short(word) for word in words), env)
    runs = arm.get("runs") or 0
    if arm.get("against") is None:
        mean = reference_mean(arm, arms)
        return (*start, "" if mean is None else format_value(mean), "", "", "", "reference", runs)
    if arm.get("only_built"):
        return (*start, "", "", "", "", only_built_words(arm), runs)
    if arm.get("problem"):
        return (*start, "", "", "", "", "can't be measured", runs)
    if arm.get("change") is None:
        return (*start, "", "", "", "", arm.get("failure") or "not measured", runs)
    return (
        *start,
        format_value(arm.get("mean")),
        format_span(arm.get("mean_ci95")),
        format_change(arm["change"]),
        format_interval(arm.get("ci95")),
        str(arm.get("difference") or ""),
        runs,
    )


def reference_mean(reference: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean of a reference, which is told by the arms compared with it."""
    means = [
        arm.get("reference_mean") for arm in arms if arm.get("against") == reference.get("position")
    ]
    told = [mean for mean in (*means, reference.get("mean")) if mean is not None]
    return float(told[0]) if told else None


def _remarks(arm: Mapping[str, Any]) -> list[Block]:
    """Return conflicts with their hunks, empty changes, prerequisites and failures of an arm."""
    problem, role = arm.get("problem") or {}, arm.get("role") or {}
    name, change = arm.get("name", "?"), problem.get("change", "")
    blocks: list[Block] = []
    if arm.get("only_built"):
        return []
    if arm.get("failure"):
        blocks.append(Paragraph(f"{name}: {arm['failure']}"))
    if problem.get("kind") == "empty":
        blocks.append(Paragraph(f"{name}: '{change}' changes nothing: {problem.get('why', '')}."))
    files = list(problem.get("files") or ())
    if files:
        named = ", ".join(str(file.get("path")) for file in files)
        blocks.append(Paragraph(f"{name}: '{change}' conflicts in {named}."))
        hunks = [hunk for file in files for hunk in file.get("hunks") or ()]
        lines = "\n".join(str(hunk) for hunk in hunks).splitlines()
        cut = [f"… {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
        blocks += [Code("\n".join([*lines[:_MOST_LINES], *cut]), "diff")] if lines else []
    miss = problem.get("nearest_miss") or {}
    if miss:
        blocks.append(Paragraph(f"No set of earlier commits was found: {miss.get('why', '')}."))
    wanted = role.get("prerequisites") or ()
    if wanted:
        blocks.append(Paragraph(f"{name} needs {plural(len(wanted), 'earlier commit')}:"))
        blocks.append(prerequisite_table(wanted))
    return blocks


def prerequisite_table(wanted: Sequence[Mapping[str, Any]]) -> Block:
    """Return the commits that a pick needs, each with its size and what it drags in."""
    rows = [
        (
            short(str((each.get("commit") or {}).get("sha"))),
            printable((each.get("commit") or {}).get("subject") or ""),
            f"+{each.get('added', '?')} -{each.get('removed', '?')}",
            ", ".join(str(path) for path in each.get("paths") or ()),
        )
        for each in wanted
    ]
    return table(("commit", "subject", "lines", "touches"), rows)


def decision_blocks(
    decisions: Sequence[Mapping[str, Any]], answer: Mapping[str, Any] | None = None
) -> list[Block]:
    """Return the decisions in their order, each with its reason."""
    if not decisions:
        return []
    names = {arm.get("position"): arm.get("name") for arm in (answer or {}).get("arms") or ()}
    rows = [
        (
            each.get("kind", ""),
            names.get(each.get("position"), each.get("position")),
            each.get("host"),
            each.get("reason", ""),
        )
        for each in decisions
    ]
    header = ("what", "arm" if names else "position", "host", "why")
    return [table(header, rows, folded=plural(len(rows), "decision"))]


def _reproduction(dossier: Mapping[str, Any], answer: Mapping[str, Any]) -> list[Block]:
    command = experiment_command(dossier, answer)
    blocks: list[Block] = [Code(command, "console")] if command else []
    return [*blocks, *definition_blocks(dossier), *recorded_commands(dossier)]
