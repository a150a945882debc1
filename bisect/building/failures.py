"""From the log of a failed build to its failure: kind, cause, telling lines, advice."""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from perfbisect.core.states import FailureKind
from perfbisect.ports import Failure

#: Lines shown of a log: those that tell, or the last ones where none is known to tell.
TELLING_LINES = 12
#: Lines shown after the first telling one: notes, carets, includes.
_CONTEXT = 4
#: Bytes of a log that are looked at, from its end: builds stop soon after their first error.
LOOKED_AT = 4 * 1024 * 1024
_LONGEST_LINE = 400
#: Of each line, only so much is looked at: a minified megabyte would cost minutes.
_LONGEST_MATCHED = 2000
_LONGEST_CAUSE = 200


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of failures.toml."""

    name: str
    pattern: re.Pattern[str]
    kind: FailureKind
    cause: str
    advice: str = ""
    network: bool = False


@functools.cache
def patterns() -> tuple[Pattern, ...]:
    """Return the table, in order of precedence."""
    text = files("perfbisect.building").joinpath("failures.toml").read_text("utf-8")
    return tuple(
        Pattern(
            name=entry["name"],
            pattern=re.compile(entry["pattern"], re.MULTILINE),
            kind=FailureKind(entry["kind"]),
            cause=entry["cause"],
            advice=entry.get("advice", ""),
            network=entry.get("network", False),
        )
        for entry in tomllib.loads(text)["failure"]
    )


def classify(
    log: str,
    *,
    otherwise: FailureKind = FailureKind.PERMANENT,
    summary: str = "the build failed",
    network_allowed: bool = True,
) -> Failure:
    """Tell from a log why a build failed.

    Args:
        log: what the failed command printed.
        otherwise: kind where no pattern matches.
        summary: cause where no pattern matches.
        network_allowed: whether the build had a network to fail.
    """
    log = "\n".join(line[:_LONGEST_MATCHED] for line in log.splitlines())
    for entry in patterns():
        match = entry.pattern.search(log)
        if match is None:
            continue
        if entry.network and not network_allowed:
            return Failure(
                FailureKind.OURS,
                "the build wants the network, and its recipe does not allow it",
                _lines_at(log, entry.pattern),
                "Set network = true in the recipe.",
            )
        cause = _filled(entry.cause, match.groupdict())
        return Failure(entry.kind, cause, _lines_at(log, entry.pattern), entry.advice)
    return Failure(otherwise, summary, last_lines(log))


def read_log(path: Path, start: int, *, root: str) -> str:
    """Return what was appended to a log file after byte ``start``, at most its last megabytes.

    Args:
        path: of the log.
        start: byte to start from.
        root: of the tree; files in it are named from there.
    """
    with path.open("rb") as file:
        file.seek(max(start, path.stat().st_size - LOOKED_AT))
        return file.read().decode(errors="replace").replace(f"{root}/", "")


def last_lines(log: str) -> tuple[str, ...]:
    """Return the last lines that are not blank."""
    lines = [line for line in log.splitlines() if line.strip()]
    return tuple(line[:_LONGEST_LINE] for line in lines[-TELLING_LINES:])


def _filled(cause: str, groups: Mapping[str, str | None]) -> str:
    known = {name: (value or "").strip() for name, value in groups.items()}
    return cause.format_map(known).rstrip(" :")[:_LONGEST_CAUSE]


def _lines_at(log: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Return the matching lines, the first with what follows it, in the order of the log."""
    lines = itertools.islice(_telling(log, pattern), TELLING_LINES)
    return tuple(line[:_LONGEST_LINE] for line in lines)


def _telling(log: str, pattern: re.Pattern[str]) -> Iterator[str]:
    context = 0
    seen: set[str] = set()
    for line in log.splitlines():
        matched = pattern.search(line) is not None
        if matched and not seen:
            context = _CONTEXT + 1
        if (matched or context > 0) and line.strip() and line not in seen:
            seen.add(line)
            yield line.rstrip()
        context -= 1
