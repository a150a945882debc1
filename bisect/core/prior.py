"""How much a commit can matter, by the paths it touches. A prior only: no verdict rests on it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np

from perfbisect.core.facts import FloatArray

#: A commit never weighs less than this, whatever it touches.
LEAST = 0.02
#: What a commit weighs whose paths are not known.
UNKNOWN = 1.0

#: Glob -> weight, tried in order; the last that matches decides, so that particular rules stand
#: below general ones. ``**`` crosses directories, ``*`` does not; a pattern without a slash
#: matches the file's name in any directory.
GENERAL_RULES: Mapping[str, float] = {
    "**": 1.0,
    "*.md": 0.02,
    "*.rst": 0.02,
    "*.txt": 0.3,
    "CMakeLists.txt": 1.0,
    "requirements*.txt": 0.6,
    "docs/**": 0.02,
    "doc/**": 0.02,
    "**/docs/**": 0.02,
    "**/g3doc/**": 0.02,
    "*.png": 0.02,
    "*.svg": 0.02,
    "*.ipynb": 0.02,
    "LICENSE*": 0.02,
    "CHANGELOG*": 0.02,
    "CODEOWNERS": 0.02,
    ".github/**": 0.02,
    ".ci/**": 0.05,
    "**/test/**": 0.04,
    "**/tests/**": 0.04,
    "test/**": 0.04,
    "tests/**": 0.04,
    "**/testdata/**": 0.04,
    "test_*.py": 0.04,
    "*_test.*": 0.04,
    "conftest.py": 0.04,
    "examples/**": 0.05,
    "**/examples/**": 0.05,
}

#: On top of the general rules, for TensorFlow trees.
TENSORFLOW_RULES: Mapping[str, float] = {
    "tensorflow/java/**": 0.02,
    "tensorflow/go/**": 0.02,
    "tensorflow/js/**": 0.02,
    "tensorflow/lite/**": 0.03,
    "tensorflow/contrib/**": 0.15,
    "tensorflow/examples/**": 0.03,
    "tensorflow/tools/api/golden/**": 0.02,
    "tensorflow/tools/ci_build/**": 0.05,
    "tensorflow/tools/docs/**": 0.02,
    "tensorflow/tools/dockerfiles/**": 0.02,
    "tensorflow/tensorboard/**": 0.03,
    "tensorflow/python/tpu/**": 0.05,
    "tensorflow/core/tpu/**": 0.05,
    "tensorflow/stream_executor/tpu/**": 0.05,
    "tensorflow/core/platform/windows/**": 0.03,
    "tensorflow/compiler/xla/**": 0.7,
    "tensorflow/compiler/mlir/lite/**": 0.03,
    "tensorflow/core/kernels/**": 1.5,
    "tensorflow/core/common_runtime/**": 1.5,
    "tensorflow/core/grappler/**": 1.5,
    "tensorflow/core/kernels/*_test.cc": 0.04,
    "tensorflow/core/common_runtime/*_test.cc": 0.04,
    "tensorflow/core/grappler/**/*_test.cc": 0.04,
    "tensorflow/workspace.bzl": 1.5,
    "third_party/**": 1.0,
}


def default_rules(paths: Collection[str]) -> dict[str, float]:
    """Return the rules that suit a tree, given some of its paths."""
    rules = dict(GENERAL_RULES)
    if any(path.startswith("tensorflow/") for path in paths):
        rules |= TENSORFLOW_RULES
    return rules


def path_weights(
    paths_per_commit: Sequence[Collection[str] | None],
    rules: Mapping[str, float] | None = None,
) -> FloatArray:
    """Return the relative prior weight of each commit: that of the weightiest path it touches.

    Args:
        paths_per_commit: For each commit the paths it touches; None where they are not known. An
            empty collection (nothing changed) weighs least.
        rules: Glob -> weight on top of the defaults (``Recipe.relevance``); a later rule wins.

    Returns:
        Shape (number of commits,), each within [0.02, …] and greater than zero.
    """
    seen = [path for paths in paths_per_commit[:2000] if paths for path in list(paths)[:3]]
    table = default_rules(seen) | dict(rules or {})
    # A rule that is given again counts as given last.
    for pattern in rules or {}:
        table[pattern] = table.pop(pattern)
    matchers = [(_compiled(pattern), weight) for pattern, weight in reversed(table.items())]
    known: dict[str, float] = {}

    def weight_of(path: str) -> float:
        if path not in known:
            known[path] = next((w for match, w in matchers if match.fullmatch(path)), UNKNOWN)
        return known[path]

    weights = [
        UNKNOWN if paths is None else max((weight_of(path) for path in paths), default=LEAST)
        for paths in paths_per_commit
    ]
    return np.maximum(np.array(weights, dtype=np.float64), LEAST)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Translate a glob: ``**`` any characters, ``*`` and ``?`` none across directories."""
    if "/" not in pattern and pattern != "**":
        pattern = "**/" + pattern
    out = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern):
        if part == "**/":
            out.append("(?:.*/)?")
        elif part == "**":
            out.append(".*")
        elif part == "*":
            out.append("[^/]*")
        elif part == "?":
            out.append("[^/]")
        else:
            out.append(re.escape(part))
    return re.compile("".join(out))
