"""From an alert's labels and annotations to a series, a benchmark and a range, by rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from perfbisect.core.states import ChangeKind
from perfbisect.errors import BadInputError

#: What a rule can set, and what is taken from labels and annotations of that name without one.
TEXTS = ("series", "repository", "package", "recipe", "benchmark", "pool", "good", "bad", "kind")
NUMBERS = ("before", "after", "change", "probability")
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
#: Longest text of each field that is stored.
MOST = {"series": 200, "package": 200, "recipe": 200, "benchmark": 200, "pool": 200}
_MOST_TEXT = 2000


class Rule(BaseModel):
    """``[[alerts.rule]]``: the first whose ``match`` holds is used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Label -> regular expression that its whole value has to match; all of them have to.
    match: Mapping[str, str] = Field(default_factory=dict)
    #: Texts in which ``{name}`` is the alert's label, else its annotation, of that name.
    series: str | None = None
    repository: str | None = None
    package: str | None = None
    recipe: str | None = None
    benchmark: str | None = None
    pool: str | None = None
    good: str | None = None
    bad: str | None = None
    kind: str | None = None
    before: str | None = None
    after: str | None = None
    change: str | None = None
    probability: str | None = None

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for pattern in value.values():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return value

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the rule is about an alert with these labels."""
        return all(
            re.fullmatch(pattern, labels.get(label, "")) is not None
            for label, pattern in self.match.items()
        )


def mapped(
    rules: Iterable[Rule], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields of an ``AlertSignal`` that follow from labels and annotations.

    Raises:
        BadInputError: the rule names a label that the alert has not, or a number is none.
    """
    values = {**annotations, **labels}
    rule = next((rule for rule in rules if rule.holds(labels)), None)
    found: dict[str, Any] = {}
    for name in (*TEXTS, *NUMBERS):
        template = None if rule is None else getattr(rule, name)
        text = values.get(name, "") if template is None else _filled(template, values, name)
        if text.strip():
            found[name] = checked(name, text.strip())
    return found


def _filled(template: str, values: Mapping[str, str], field: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise BadInputError(
                f"the rule's {field} = '{template}' names '{name}', which this alert has neither "
                "as a label nor as an annotation",
                field=field,
            )
        return values[name]

    return _PLACEHOLDER.sub(value, template)


def checked(name: str, value: str | float) -> Any:
    """Return one field of a signal as it is stored.

    Raises:
        BadInputError: it can't be right; names the field.
    """
    if name in NUMBERS:
        return _number(name, value)
    text = str(value)
    if name == "kind":
        if text not in list(ChangeKind):
            raise BadInputError(
                f"kind = {text!r:.80} should be regression or recovery", field="kind", value=text
            )
        return ChangeKind(text)
    most = MOST.get(name, _MOST_TEXT)
    if len(text) > most:
        raise BadInputError(f"{name} is longer than {most} characters", field=name)
    if not is_text(text):
        raise BadInputError(
            f"{name} holds a character that is no text (NUL or a lone surrogate)", field=name
        )
    return text


def is_text(text: str) -> bool:
    """Return whether git and a database can hold it: no NUL, no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _number(name: str, value: str | float) -> float:
    text = str(value).strip()
    scale = 1.0
    if name in ("change", "probability") and text.endswith("%"):
        text, scale = text[:-1], 0.01
    try:
        number = float(text) * scale
    except ValueError as error:
        raise BadInputError(
            f"{name} = {str(value)!r:.80} should be a number", field=name, value=value
        ) from error
    right = math.isfinite(number)
    if name in ("before", "after"):
        right = right and number > 0
    elif name == "change":
        right = right and number > -1
    elif name == "probability":
        right = right and 0 <= number <= 1
    if not right:
        raise BadInputError(f"{name} = {str(value)!r:.80} is out of range", field=name, value=value)
    return number
