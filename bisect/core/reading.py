"""What the parsers of all metric formats share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfbisect.core.recipe import Metric

#: A number as programs print it, NaN and infinity included so that they are seen, not skipped.
#: Each part is bounded by the next: text made of digits alone takes no longer than other text.
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity)"
#: Names that a message lists at most, and characters of each.
_NAMES, _NAME = 20, 100


#: Beyond these, sums and squares of values are no numbers any more.
LEAST_VALUE, MOST_VALUE = 1e-100, 1e100


class ReadingError(Exception):
    """The text holds no value that could be used; the message says what was looked for."""

    def __init__(self, message: str, *, advice: str = "", benchmark_failed: bool = False) -> None:
        super().__init__(message)
        self.message = message
        #: What would be right.
        self.advice = advice
        #: The tool itself reports that the benchmark failed: not a mistake of the metric.
        self.benchmark_failed = benchmark_failed


@dataclass(frozen=True, slots=True)
class Found:
    """What a format's parser found, before warm-up is dropped."""

    values: Sequence[float]
    #: Leading values that the tool itself defines as warm-up.
    warm_up: int = 0
    #: The tool's own result, where it is not a function of the values.
    total: float | None = None
    resolution: float = 0.0


Parser = Callable[[Metric, str], Found]


def listed(names: Sequence[str]) -> str:
    """Return names for a message, as many as people read."""
    more = ", …" if len(names) > _NAMES else ""
    return (", ".join(name[:_NAME] for name in names[:_NAMES]) or "none") + more


def to_number(value: object, what: str) -> float:
    """Return a number, from a number or its text; NaN and infinity are numbers here.

    Raises:
        ReadingError: it is neither; ``what`` says what was read.
    """
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    message = f"{what} is {value!r:.200}, which is not a number"
    raise ReadingError(message, advice="a number like 12.5 or 1e3, without a unit or ','")


def parse_json_text(text: str) -> Any:
    """Return the JSON document that the text is, or that its last JSON line is.

    Raises:
        ReadingError: neither.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    for line in reversed(text.splitlines()):
        if line.lstrip()[:1] in ("{", "["):
            try:
                return json.loads(line)
            except (ValueError, RecursionError):
                continue
    message = "neither the whole text nor one of its lines is JSON"
    raise ReadingError(message, advice="print one line of JSON last, or set metric.file")
