"""What is typed into the form, as a request, a command and a line for curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from perfbisect.core.states import Find
from perfbisect.request_models import RecipeSwitch

#: Fields of the form in the order of the command line's options.
FIELDS = (
    "package",
    "repository",
    "good",
    "bad",
    "recipe",
    "benchmark",
    "bisect_companion",
    "at",
    "threshold",
    "min_effect",
    "find",
    "max_runs",
    "max_builds",
    "max_time",
    "prove",
)
#: Field of the form -> option of a recipe: on, off, or empty for what the recipe says.
SWITCHES = {f"option_{switch}": switch for switch in RecipeSwitch}
_ALWAYS_NEEDED = ("good", "bad", "benchmark")
_OF_COMMITS = ("repository", "recipe")

_DEFAULTS = {"min_effect": "3%", "find": Find.ALL.value}
_OPTIONS = {"repository": "--repo"}
#: A browser sends nothing for a box that is not ticked; this field it always sends.
_ALWAYS_SENT = "find"


def filled(given: Mapping[str, str]) -> dict[str, str]:
    """Return the form's values: what was given, else its defaults."""
    values = {name: given.get(name, _DEFAULTS.get(name, "")).strip() for name in FIELDS}
    if _ALWAYS_SENT not in given and "prove" not in given:
        values["prove"] = "yes"
    values |= {name: given.get(name, "") for name in SWITCHES if given.get(name) in ("on", "off")}
    return values


def needed(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields that a request can't do without: published wheels alone are not built."""
    return _ALWAYS_NEEDED if values.get("package") else (*_OF_COMMITS, *_ALWAYS_NEEDED)


def body_of(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that the form stands for; empty fields and defaults are left out."""
    chosen: dict[str, Any] = {
        name: value
        for name in FIELDS
        if (value := values.get(name)) and value != _DEFAULTS.get(name)
    }
    # Proofs are made unless somebody does not want them.
    if not chosen.pop("prove", ""):
        chosen["prove"] = False
    for name in ("max_runs", "max_builds"):
        if str(chosen.get(name, "")).isdecimal():
            chosen[name] = int(chosen[name])
    switches = {SWITCHES[name].value: values[name] == "on" for name in SWITCHES if name in values}
    return {**chosen, "recipe_options": switches} if switches else chosen


def command_line(body: Mapping[str, Any]) -> str:
    """Return the command that does the same on this machine."""
    words = ["perfbisect bisect"]
    for name, value in body.items():
        if name == "recipe_options":
            words += [f"--recipe-option {key}={'on' if on else 'off'}" for key, on in value.items()]
        elif value is False:
            words.append(f"--no-{name}")
        else:
            option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
            words.append(f"{option} {value if value == '…' else shlex.quote(str(value))}")
    return " \\\n  ".join(words)


def curl_line(body: Mapping[str, Any], base_url: str) -> str:
    """Return the request as a line for curl."""
    data = shlex.quote(json.dumps(body, indent=2, ensure_ascii=False))
    return (
        f"curl {shlex.quote(base_url + 'api/v1/bisections')} \\\n"
        f"  --header 'Content-Type: application/json' \\\n  --data {data}"
    )


def form_address(request: Mapping[str, Any]) -> str:
    """Return the address of the form, filled in with a request; empty where it can't hold it.

    Definitions that are not names, and variables, have no fields there.
    """
    if any(not isinstance(request.get(name), str) for name in needed(request)):
        return ""
    if request.get("env"):
        return ""
    values = {name: str(request[name]) for name in FIELDS if request.get(name) not in (None, False)}
    values |= {
        f"option_{name}": "on" if on else "off"
        for name, on in (request.get("recipe_options") or {}).items()
    }
    if request.get("prove") is not False:
        values["prove"] = "yes"
    return f"/new?{urlencode({'find': Find.ALL.value, **values})}"
