"""What to type to get the same again: the search, its proofs, its builds, its runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from perfbisect.core.recipe import Benchmark, Metric, Recipe
from perfbisect.core.revision import (
    Action,
    Revision,
    RevisionSyntaxError,
    parse_revision,
    patch_name,
)
from perfbisect.reports.document import Block, Code, Paragraph
from perfbisect.reports.words import short

#: Field of a request -> option of ``perfbisect bisect``, in the order in which people give them.
_OPTIONS = {
    "package": "--package",
    "repository": "--repo",
    "good": "--good",
    "bad": "--bad",
    "recipe": "--recipe",
    "recipe_options": "--recipe-option",
    "benchmark": "--benchmark",
    "env": "--env",
    "bisect_companion": "--bisect-companion",
    "at": "--at",
    "threshold": "--threshold",
    "min_effect": "--min-effect",
    "find": "--find",
    "confidence": "--confidence",
    "max_runs": "--max-runs",
    "max_builds": "--max-builds",
    "max_time": "--max-time",
    "probe": "--probe",
    "all_parents": "--all-parents",
    "paths": "--path",
    "carry": "--carry",
    "carry_pick": "--carry-pick",
}
_DEFAULTS = {"min_effect": "3%", "find": "all", "confidence": 0.99, "probe": 0}

#: Builds and runs whose commands are shown, at most.
_MOST_COMMANDS = 4


def bisect_command(dossier: Mapping[str, Any]) -> str:
    """Return the line that asks the same question, with both ends as full names; or nothing."""
    request = dict(dossier.get("request") or {})
    verdict = dossier.get("verdict") or {}
    if not request:
        return ""
    for end in ("good", "bad"):
        request[end] = (verdict.get(end) or {}).get("revision") or request.get(end)
    words = [["perfbisect", "bisect"]]
    for field, option in _OPTIONS.items():
        value = request.get(field)
        if value in (None, "", [], (), {}, False) or value == _DEFAULTS.get(field):
            continue
        if value is True:
            words.append([option])
        elif field == "recipe_options":
            words += [[option, f"{key}={'on' if on else 'off'}"] for key, on in value.items()]
        elif field == "carry":
            # Their texts are too long for a line; the names are those that builds and points tell.
            words += [[option, patch_name(text)] for text in value]
        elif field == "env":
            words += [[option, f"{key}={each}"] for key, each in value.items()]
        elif isinstance(value, list | tuple):
            words += [[option, str(each)] for each in value]
        else:
            words.append([option, _named(value)])
    words += [["--no-prove"]] if request.get("prove") is False else []
    return _broken(words)


def try_commands(dossier: Mapping[str, Any]) -> list[str]:
    """Return a line for each culprit's revert on the bad end and pick onto the good end."""
    verdict, common = dossier.get("verdict") or {}, _common(dossier)
    request = dossier.get("request") or {}
    if request.get("carry") or request.get("carry_pick"):
        # The proof carried it too, which no single command says.
        return []
    if not common or verdict.get("axis") == "published":
        return []
    ends = {end: (verdict.get(end) or {}).get("revision") for end in ("good", "bad")}
    lines = []
    for culprit in verdict.get("culprits") or ():
        commits = list(culprit.get("commits") or ())
        if not commits or len(commits) > 20:
            continue
        reverts = [["--revert", sha] for sha in reversed(commits)]
        picks = [["--pick", sha] for sha in commits]
        lines.append(_broken([*common, ["--base", str(ends["bad"])], *reverts]))
        lines.append(_broken([*common, ["--base", str(ends["good"])], *picks]))
    return lines


def experiment_command(dossier: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return the line that measures the same arms; nothing for patches, which are files."""
    common = _common(dossier)
    arms = [arm for arm in answer.get("arms") or () if arm.get("against") is not None]
    if not common or not arms or any("patch " in str(arm.get("revision")) for arm in arms):
        return ""
    try:
        if answer.get("kind") == "minimise_reverts":
            # The first subset is the whole list.
            return _broken([*common, *_changes(arms[0]), ["--minimise-reverts"]])
        named = {arm.get("position"): str(arm.get("revision")) for arm in answer["arms"]}
        return "\n\n".join(
            _broken([*common, *_changes(arm), *_reference(arm, named)]) for arm in arms
        )
    except RevisionSyntaxError:
        return ""


def _reference(arm: Mapping[str, Any], named: Mapping[Any, str]) -> list[list[str]]:
    """Return an arm's variables, and its reference where that is not the base unchanged."""
    env = [["--env", f"{key}={value}"] for key, value in (arm.get("env") or {}).items()]
    reference = named.get(arm.get("against"), "")
    plain = str(Revision(parse_revision(str(arm["revision"])).base))
    return [*env, ["--against", reference]] if reference not in ("", plain) else env


def _changes(arm: Mapping[str, Any]) -> list[list[str]]:
    revision = parse_revision(str(arm["revision"]))
    options = {Action.REVERT: "--revert", Action.PICK: "--pick", Action.PATCH: "--patch"}
    changes = [[options[change.kind], change.ref] for change in revision.changes]
    return [["--base", revision.base], *changes]


def _common(dossier: Mapping[str, Any]) -> list[list[str]]:
    request = dossier.get("request") or {}
    if not (request.get("repository") and request.get("recipe") and request.get("benchmark")):
        return []
    return [
        ["perfbisect", "try"],
        ["--repo", str(request["repository"])],
        ["--recipe", _named(request["recipe"])],
        ["--benchmark", _named(request["benchmark"])],
    ]


def _named(value: Any) -> str:
    """Return what an option takes; a definition goes by its name, see ``definitions_text``."""
    return str(value.get("name", "")) if isinstance(value, Mapping) else str(value)


def _broken(words: Sequence[Sequence[str]]) -> str:
    """Return a command with an option on each line."""
    return " \\\n  ".join(shlex.join(group) for group in words)


def definitions_text(dossier: Mapping[str, Any]) -> str:
    """Return recipe and benchmark as ``perfbisect.toml``, without what is the default anyway."""
    parts = []
    if dossier.get("recipe") and "kind" in dossier["recipe"]:
        parts.append(_toml("recipe", dossier["recipe"], fields(Recipe)))
    if dossier.get("benchmark"):
        benchmark = dict(dossier["benchmark"])
        benchmark["metric"] = _without_defaults(benchmark.get("metric") or {}, fields(Metric))
        parts.append(_toml("benchmark", benchmark, fields(Benchmark)))
    return "\n\n".join(parts)


def _toml(table: str, definition: Mapping[str, Any], known: Iterable[Field[Any]]) -> str:
    name = str(definition.get("name", ""))
    lines = [f"[{table}.{json.dumps(name)}]"]
    for key, value in _without_defaults(definition, known).items():
        if key != "name":
            lines.append(f"{key} = {_toml_value(value)}")
    return "\n".join(lines)


def _without_defaults(definition: Mapping[str, Any], known: Iterable[Field[Any]]) -> dict[str, Any]:
    kept = {}
    for item in known:
        value = definition.get(item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        plain = list(default) if isinstance(default, tuple) else default
        if value is not None and value != plain:
            kept[item.name] = value
    return kept


def _toml_value(value: Any) -> str:
    # Strings of JSON are strings of TOML, but for what JSON need not escape.
    if isinstance(value, Mapping):
        told = {key: each for key, each in value.items() if each is not None}
        pairs = ", ".join(f"{json.dumps(str(k))} = {_toml_value(v)}" for k, v in told.items())
        return f"{{{pairs}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(each) for each in value)}]"
    return json.dumps(value).replace("\x7f", "\\u007f")


def reproduction(dossier: Mapping[str, Any]) -> list[Block]:
    """Return what to type: search, proofs, definitions, builds and runs as they were recorded."""
    command = bisect_command(dossier)
    asked: list[Block] = (
        [Code("\n\n".join([command, *try_commands(dossier)]), "console")] if command else []
    )
    return [*asked, *definition_blocks(dossier), *recorded_commands(dossier)]


def definition_blocks(dossier: Mapping[str, Any]) -> list[Block]:
    """Return recipe and benchmark as a file."""
    text = definitions_text(dossier)
    files = ", ".join(str(name) for name in (dossier.get("benchmark") or {}).get("files") or ())
    if not text:
        return []
    note = f"; the benchmark's files beside it: {files}" if files else ""
    words = "Recipe and benchmark in full, for perfbisect.toml where their names are not known"
    return [Paragraph(f"{words}{note}:"), Code(text, "toml")]


def recorded_commands(dossier: Mapping[str, Any]) -> list[Block]:
    """Return the commands of builds and runs as they were recorded."""
    blocks: list[Block] = []
    for build in list(dossier.get("builds") or ())[:_MOST_COMMANDS]:
        commands = build.get("commands") or []
        if commands:
            where = f" in the image {build['image']}" if build.get("image") else ""
            blocks.append(Paragraph(f"Build of {short(str(build.get('commit')))}{where}:"))
            blocks.append(Code("\n".join(str(command) for command in commands), "console"))
    for run in list(dossier.get("commands") or ())[:_MOST_COMMANDS]:
        blocks.append(Paragraph(f"Run of the benchmark on {run.get('host')}:"))
        variables = [f"{key}={value}" for key, value in (run.get("variables") or {}).items()]
        argv = [str(word) for word in run.get("command") or ()]
        shown = shlex.join(["env", *variables, *argv] if variables else argv)
        blocks.append(Code(shown, "console"))
    return blocks
