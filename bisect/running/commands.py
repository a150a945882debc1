"""A benchmark's command line and the environment it runs in."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from perfbisect.config_values import BENCHMARK_PLACEHOLDERS, PLACEHOLDER
from perfbisect.core.recipe import Benchmark
from perfbisect.core.states import FailureKind
from perfbisect.errors import did_you_mean
from perfbisect.running.failures import failed

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def format_command(command: str, values: Mapping[str, str]) -> list[str]:
    """Return the program and its arguments, without a shell.

    The command is split as a shell splits words, then placeholders are filled in, so that a path
    with a space stays one argument. ``sh -c '…'`` gives a shell to who needs one.

    Args:
        command: e.g. ``{python} run.py --jobs {jobs}``.
        values: placeholder -> text; a missing one can't be had for this wheel.

    Raises:
        RunFailed: ours: an unknown placeholder, one that can't be had, or quotes without an end.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        cause = f"command {command!r} can't be split into words: {error}"
        raise failed(FailureKind.OURS, cause) from error
    if not words:
        raise failed(FailureKind.OURS, "the benchmark's command is empty")
    for word in PLACEHOLDER.findall(command):
        _require_known(word, values)
    return [PLACEHOLDER.sub(lambda match: values[match.group(1)], word) for word in words]


def _require_known(word: str, values: Mapping[str, str]) -> None:
    if word in values:
        return
    if word in BENCHMARK_PLACEHOLDERS:
        cause = f"the command names {{{word}}}, but the recipe leaves no archive of artifacts"
        advice = "let the recipe name 'artifacts', or use {wheel}"
    else:
        cause = f"the command names {{{word}}}, which is unknown"
        cause += did_you_mean(word, BENCHMARK_PLACEHOLDERS)
        advice = "known: " + ", ".join(f"{{{name}}}" for name in BENCHMARK_PLACEHOLDERS)
    raise failed(FailureKind.OURS, cause, advice=advice)


def clean_environment(
    benchmark: Benchmark, *, environment: str, home: str, temporary: str
) -> dict[str, str]:
    """Return the variables that a benchmark sees: nothing of the user's own but what it names.

    Args:
        benchmark: whose ``env`` is added last.
        environment: path of the Python environment, whose programs come first on PATH.
        home: empty directory of this run alone.
        temporary: empty directory of this run alone.
    """
    variables = {
        "PATH": f"{environment}/bin:{_SYSTEM_PATH}",
        "HOME": home,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "VIRTUAL_ENV": environment,
        "PYTHONNOUSERSITE": "1",
        # The environment is shared between runs: nothing may write to it.
        "PYTHONDONTWRITEBYTECODE": "1",
        # Lines show as they come, and a hang shows where it is.
        "PYTHONUNBUFFERED": "1",
    }
    if benchmark.gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(benchmark.gpus)))
    return {**variables, **benchmark.env}


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))
