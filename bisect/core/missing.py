"""What a failing build says that it misses: names, and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Most names taken from one build.
MOST_NAMES = 8
_SHORTEST_NAME = 3

#: ‘x’, 'x', `x' and "x", as compilers, linkers, Bazel and Python write them.
_QUOTED = re.compile(r"""[‘'`"]([^‘’'`"]{1,200})[’'"]""")
_PATH = re.compile(r"(?<![\w/.])(?:[\w.+-]+/)*[\w+-]+\.[A-Za-z]\w{0,4}\b(?=: No such file)")
_PATH_OF_MODULE = re.compile(r"No module named ['\"]?([\w.]+)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
#: Quoted, and yet never what is missing.
_WORDS = frozenset({"class", "const", "error", "function", "namespace", "string", "struct", "void"})


@dataclass(frozen=True, slots=True)
class Missing:
    """What the lines of a failed build name."""

    #: Identifiers, in the order of the lines.
    names: tuple[str, ...]
    #: Paths as the build writes them; their beginning may be missing.
    paths: tuple[str, ...]


def what_is_missing(lines: Iterable[str]) -> Missing:
    """Return the names and files that the telling lines of a build complain of."""
    names: dict[str, None] = {}
    paths: dict[str, None] = {}
    for line in lines:
        for path in _paths(line):
            paths.setdefault(path)
        for name in _names(line):
            names.setdefault(name)
    return Missing(tuple(names)[:MOST_NAMES], tuple(paths)[:MOST_NAMES])


def _paths(line: str) -> Iterator[str]:
    for found in _PATH.finditer(line):
        yield found[0]
    for found in _PATH_OF_MODULE.finditer(line):
        yield found[1].replace(".", "/") + ".py"


def _names(line: str) -> Iterator[str]:
    for quoted in _QUOTED.findall(line):
        # Of ``tensorflow::Graph::Copy(int)``, the last name before the arguments.
        named = _IDENTIFIER.findall(quoted.split("(")[0].split("<")[0])
        if named and len(named[-1]) >= _SHORTEST_NAME and named[-1] not in _WORDS:
            yield named[-1]
